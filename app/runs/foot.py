"""Below the list: how many runs there are, what they take on disk, and how much they may."""

from PySide6.QtWidgets import QWidget

from app.language import tr, trn
from app.runs.library import RunLibrary
from app.ui.controls import DropDown
from app.ui.labels import label
from app.ui.layout.boxes import row
from app.ui.layout.zoomed import sized, zoomed
from app.ui.line import Line
from app.words import bytes_words

GB = 10**9
LIMITS: list[tuple[str, object]] = [(tr("no limit"), 0), *((f"{n} GB", n * GB) for n in (1, 2, 5, 10, 20, 50, 100))]
TIP = tr("Beyond it, the oldest files without a tag go when this page is opened; the baseline and what has a tag stay")


class Foot(QWidget):
    """Follows the library."""

    def __init__(self, library: RunLibrary) -> None:
        super().__init__()
        self._library = library
        self.words = Line("runs_disk", size=12)
        self.limit = sized(DropDown("runs_limit", LIMITS, tr("Limit of the disk that runs take")), least_width=104)
        self.limit.setSizeAdjustPolicy(DropDown.SizeAdjustPolicy.AdjustToContents)
        self.limit.setToolTip(TIP)
        self.limit.set_value(library.limit)
        self.setLayout(zoomed(row((self.words, 1), label(tr("Limit"), "secondary"), self.limit), spacing=8))
        self.limit.activated.connect(self._on_limit)
        library.changed.connect(self._say)
        library.told.connect(self._say)
        self._say()

    def _on_limit(self) -> None:
        self._library.set_limit(self.limit.currentData())
        self._library.keep_limit()

    def _say(self) -> None:
        library = self._library
        count, size = trn("{count:,} run", "{count:,} runs", len(library.entries)), bytes_words(library.size)
        if library.limit:
            used = tr("{size} of {limit}", size=size, limit=bytes_words(library.limit))
        else:
            used = tr("{size} on disk", size=size)
        parts = [count, used]
        if library.baseline is not None:
            base = library.baseline.title
            parts.append(tr("× against {base}, ~ where prompts, model or machine are others", base=base))
        if library.trash.size:
            gone = bytes_words(library.trash.size)
            parts.append(tr("{size} deleted, free when Batchscope closes", size=gone))
        if library.unread:
            parts.append(tr("{count:,} still to be read", count=len(library.unread)))
        self.words.say("   ·   ".join(parts), "   ·   ".join(parts[:2]))
        if self.limit.currentData() != library.limit:
            self.limit.set_value(library.limit)
