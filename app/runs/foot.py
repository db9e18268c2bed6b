"""Below the list: how many runs there are, what they take on disk, and how much they may."""

from PySide6.QtWidgets import QWidget

from app.runs.library import RunLibrary
from app.ui.controls import DropDown
from app.ui.labels import label
from app.ui.layouts import row
from app.ui.line import Line
from app.ui.zoomed import sized, zoomed
from app.words import bytes_words, counted

GB = 10**9
LIMITS: list[tuple[str, object]] = [("no limit", 0), *((f"{n} GB", n * GB) for n in (1, 2, 5, 10, 20, 50, 100))]
TIP = "Beyond it, the oldest files without a tag go when this page is opened; the baseline and what has a tag stay"


class Foot(QWidget):
    """Follows the library."""

    def __init__(self, library: RunLibrary) -> None:
        super().__init__()
        self._library = library
        self.words = Line("runs_disk", size=12)
        self.limit = sized(DropDown("runs_limit", LIMITS, "Limit of the disk that runs take"), least_width=104)
        self.limit.setToolTip(TIP)
        self.limit.set_value(library.limit)
        self.setLayout(zoomed(row((self.words, 1), label("Limit", "secondary"), self.limit), spacing=8))
        self.limit.activated.connect(self._on_limit)
        library.changed.connect(self._say)
        library.told.connect(self._say)
        self._say()

    def _on_limit(self) -> None:
        self._library.set_limit(self.limit.currentData())
        self._library.keep_limit()

    def _say(self) -> None:
        library = self._library
        count, size = counted(len(library.entries), "run"), bytes_words(library.size)
        used = f"{size} on disk" if not library.limit else f"{size} of {bytes_words(library.limit)}"
        parts = [count, used]
        if library.baseline is not None:
            parts.append(f"× against {library.baseline.title}, ~ where prompts, model or machine are others")
        if library.trash.size:
            parts.append(f"{bytes_words(library.trash.size)} deleted, free when Batchscope closes")
        if library.unread:
            parts.append(f"{len(library.unread):,} still to be read")
        self.words.say("   ·   ".join(parts), "   ·   ".join(parts[:2]))
        if self.limit.currentData() != library.limit:
            self.limit.set_value(library.limit)
