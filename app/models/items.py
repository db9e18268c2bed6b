"""The rows of the list of models: what each is, in words, and how they lie in sections. No Qt."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from app.language import tr, trn
from app.models.reference import short_revision
from app.session.downloads import Download, DownloadState
from app.session.recent_models import Recent
from app.words import bytes_words, count_words, left_words
from engine import ModelSpec
from engine.checkpoints import HubModel, ModelEntry, ModelInfo, Place, why_unsupported
from engine.config import SCHEMES

RowKey = tuple[str, str, str | None]  # section, source, revision
DAY = 86400
AGES: tuple[tuple[int, Callable[[int], str]], ...] = (
    (365 * DAY, lambda n: trn("{count:,} year ago", "{count:,} years ago", n)),
    (30 * DAY, lambda n: trn("{count:,} month ago", "{count:,} months ago", n)),
    (7 * DAY, lambda n: trn("{count:,} week ago", "{count:,} weeks ago", n)),
    (DAY, lambda n: trn("yesterday", "{count:,} days ago", n)),
    (3600, lambda n: trn("{count:,} hour ago", "{count:,} hours ago", n)),
    (60, lambda n: trn("{count:,} minute ago", "{count:,} minutes ago", n)),
)


class Section(StrEnum):
    """In the order in which they are shown; `TITLES` has their words."""

    DOWNLOADS = "Downloads"
    SHIPPED = "Shipped"
    RECENT = "Recent"
    CACHE = "On this machine"
    FOLDERS = "Folders"
    HUB = "Hub results"


class Mark(StrEnum):
    """What a row says at its right end, in the words of `MARKS`."""

    NONE = ""
    LOADED = "loaded"
    HERE = "on this machine"
    UNSUPPORTED = "not supported"
    PARTIAL = "not all here"
    PROBLEM = "cannot be loaded"


TITLES = {
    Section.DOWNLOADS: tr("Downloads"),
    Section.SHIPPED: tr("Shipped"),
    Section.RECENT: tr("Recent"),
    Section.CACHE: tr("On this machine"),
    Section.FOLDERS: tr("Folders"),
    Section.HUB: tr("Hub results"),
}
MARKS = {
    Mark.NONE: "",
    Mark.LOADED: tr("loaded"),
    Mark.HERE: tr("on this machine"),
    Mark.UNSUPPORTED: tr("not supported"),
    Mark.PARTIAL: tr("not all here"),
    Mark.PROBLEM: tr("cannot be loaded"),
}


@dataclass(frozen=True, slots=True)
class Item:
    """A row. `source` and `revision` are what ModelSpec takes; `detail` is its second line. `settings`: how it was
    loaded last. `share` of a download, 0 to 1, None for all else."""

    section: Section
    source: str
    revision: str | None
    name: str
    detail: str
    entry: ModelEntry | None = None
    hub: HubModel | None = None
    settings: ModelSpec | None = None
    download: Download | None = None
    problem: str = ""
    unsupported: str = ""
    here: bool = False
    share: float | None = None

    @property
    def key(self) -> RowKey:
        """The row, whatever it says at the moment."""
        return self.section.value, self.source, self.revision

    @property
    def model(self) -> tuple[str, str | None]:
        """The model, wherever it stands."""
        return self.source, self.revision

    @property
    def folder(self) -> Path | None:
        return self.entry.folder if self.entry is not None else None

    @property
    def partial(self) -> bool:
        """Whether its download was cut short, and can go on."""
        entry = self.entry
        return entry is not None and entry.place is Place.CACHE and entry.folder is None and bool(entry.problem)

    @property
    def removable(self) -> bool:
        """Whether Delete takes it off the list."""
        return self.section in (Section.RECENT, Section.FOLDERS, Section.DOWNLOADS)

    def mark(self, loaded: bool) -> Mark:
        told: dict[Mark, object] = {Mark.LOADED: loaded, Mark.PARTIAL: self.partial, Mark.PROBLEM: self.problem}
        told |= {Mark.UNSUPPORTED: self.unsupported, Mark.HERE: self.here}
        return next((mark for mark, counts in told.items() if counts), Mark.NONE)

    def words(self, loaded: bool = False) -> str:
        """The whole row, as it is read aloud."""
        said = self.name, self.detail, MARKS[self.mark(loaded)], self.problem or self.unsupported
        return ", ".join(part for part in (TITLES[self.section], *said) if part)


def matches(item: Item, words: str) -> bool:
    """Whether every word typed is in its name, source or second line."""
    hay = f"{item.name} {item.source} {item.detail}".lower()
    return all(word in hay for word in words.lower().split())


def age_words(then: float, now: float | None = None) -> str:
    """ "just now", "5 minutes ago", "yesterday", "3 weeks ago"; "" for no time."""
    if then <= 0:
        return ""
    seconds = max(0.0, (time.time() if now is None else now) - then)
    for size, ago in AGES:
        if count := int(seconds // size):
            return ago(count)
    return tr("just now")


def big_words(count: int) -> str:
    """Downloads and likes: "812", "41 k", "1.2 M"."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size:
            figure = count / size
            return f"{figure:.1f} {unit}" if figure < 9.95 else f"{figure:.0f} {unit}"
    return str(count)


def joined(*parts: str) -> str:
    """Those that say something."""
    return "  ·  ".join(part for part in parts if part)


def settings_words(spec: ModelSpec) -> str:
    """ "int8, float32, CPU": what was chosen, what was left to itself not told."""
    device = {"auto": "", "cpu": "CPU", "cuda": "GPU"}.get(spec.device, spec.device)
    scheme = "" if spec.quantization == "none" else SCHEMES[spec.quantization].title
    return ", ".join(part for part in (scheme, "" if spec.dtype == "auto" else spec.dtype, device) if part)


def entry_item(section: Section, entry: ModelEntry, info: ModelInfo | None, why: str = "") -> Item:
    """A model on this machine. `info` is None while its files were not looked at; `why` they could not be read."""
    detail, unsupported, problem = [bytes_words(entry.size)] if entry.size else [], "", entry.problem or why
    if info is not None:
        detail = [bytes_words(entry.size or info.weight_bytes), count_words(info.parameters), stored_words(info)]
        unsupported = why_unsupported(info.model_type)
    if problem:  # without the path, which the row's name tells
        detail = [problem.replace(f"{entry.folder}/", "").replace(f"{entry.folder} ", "")]
    elif section is Section.CACHE:
        detail.append(short_revision(entry.revision))
    row = Item(section, entry.source, entry.revision, entry.name, joined(*detail), entry=entry)
    return replace(row, problem=problem, unsupported=unsupported)


def stored_words(info: ModelInfo) -> str:
    """How the weights are stored: their precision, or the quantization that the checkpoint brings."""
    held = info.quantized
    return info.dtype if held is None else tr("{method} {bits} bit", method=held.method.upper(), bits=held.bits)


def recent_item(recent: Recent, name: str, entry: ModelEntry | None, problem: str = "") -> Item:
    spec, detail = recent.spec, joined(settings_words(recent.spec), age_words(recent.used))
    return Item(Section.RECENT, spec.source, spec.revision, name, detail, entry=entry, settings=spec, problem=problem)


def hub_item(model: HubModel, here: bool) -> Item:
    detail = [
        tr("gated") if model.gated else "",
        tr("private") if model.private else "",
        bytes_words(model.size) if model.size else "",
        tr("{count} downloads", count=big_words(model.downloads)) if model.downloads else "",
        trn("{count} like", "{count} likes", model.likes, count=big_words(model.likes)) if model.likes else "",
        model.licence,
    ]
    return Item(Section.HUB, model.id, model.revision or None, model.id, joined(*detail), hub=model, here=here)


def download_item(entry: Download) -> Item:
    match entry.state:
        case DownloadState.RUNNING:
            detail = joined(done_words(entry), rate_words(entry))
        case DownloadState.WAITING:
            detail = tr("waits for the download before it")
        case _:
            detail = joined(tr("failed") if entry.state is DownloadState.FAILED else tr("stopped"), done_words(entry))
    row = Item(Section.DOWNLOADS, entry.id, entry.revision, entry.id, detail)
    return replace(row, download=entry, share=entry.share)


def done_words(entry: Download) -> str:
    """ "1.2 GB of 15 GB", or nothing while it is unknown."""
    if not entry.total:
        return ""
    return tr("{done} of {all}", done=bytes_words(entry.done), all=bytes_words(entry.total))


def rate_words(entry: Download) -> str:
    """ "12 MB/s", or nothing while it is unknown."""
    return tr("{bytes}/s", bytes=bytes_words(entry.rate)) if entry.rate > 0 else ""


def rest_words(entry: Download) -> str:
    """ "about 3 min left", or nothing while it is unknown."""
    left = entry.remaining
    if left is None:
        return ""
    return tr("about {time} left", time=left_words(left) if left < 5400 else f"{left / 3600:.1f} h")
