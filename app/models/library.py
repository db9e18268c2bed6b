"""Where the list's rows come from: the disk, what is remembered, the hub. Looks off the GUI thread; the rows follow."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.models.items import Item, Section, download_item, entry_item, hub_item, recent_item
from app.models.reference import hub_reference
from app.models.rows import ModelRows
from app.session.downloads import Downloads
from app.session.recent_models import Recent, RecentModels
from app.session.session import Session
from app.words import model_words
from engine import InvalidInput
from engine.checkpoints import (
    HubModel,
    ModelEntry,
    ModelInfo,
    cached_models,
    folder_model,
    hub_model,
    inspect_model,
    search_hub,
    shipped_models,
)

Key = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Found:
    """What a look at this machine has found: entries by section, and of each model its facts or why there are none."""

    shipped: Sequence[ModelEntry] = ()
    cached: Sequence[ModelEntry] = ()
    folders: Sequence[ModelEntry] = ()
    recent: Sequence[ModelEntry] = ()  # folders that were loaded before and are not listed
    infos: dict[Key, ModelInfo] = field(default_factory=dict)
    problems: dict[Key, str] = field(default_factory=dict)
    error: str = ""  # of the cache as a whole

    def entries(self) -> list[ModelEntry]:
        return [*self.shipped, *self.cached, *self.folders, *self.recent]

    def entry(self, source: str, revision: str | None) -> ModelEntry | None:
        """That of a model; any revision where none is named."""
        return next((e for e in self.entries() if e.source == source and revision in (None, e.revision)), None)


def scan(folders: Sequence[Path], recent: Sequence[Path], known: Found) -> Found:
    """Looks at this machine; blocks on disk. What is `known` and has not changed is not read again."""
    error = ""
    try:
        cached = cached_models()
    except (InvalidInput, OSError) as failure:
        cached, error = [], str(failure)
    listed, unlisted = [folder_model(f) for f in folders], [folder_model(f) for f in recent if f not in folders]
    found = Found(shipped_models(), cached, listed, unlisted, error=error)
    before = {(e.source, e.revision): e for e in known.entries()}
    for entry in found.entries():
        key = entry.source, entry.revision
        if entry.problem or key in found.infos:
            continue
        if before.get(key) == entry and key in known.infos:
            found.infos[key] = known.infos[key]
            continue
        try:
            found.infos[key] = inspect_entry(entry)
        except (InvalidInput, OSError) as failure:
            found.problems[key] = str(failure)
    return found


def inspect_entry(entry: ModelEntry) -> ModelInfo:
    """The facts of a model on this machine. Raises InvalidInput when it is none."""
    return inspect_model(str(entry.folder) if entry.folder is not None else entry.source)


class ModelLibrary(QObject):
    """Fills `rows`. Signals come on the GUI thread."""

    scanned = Signal()
    search_begun = Signal()
    search_ended = Signal(str)  # why it failed; "" when it did not
    hub_found = Signal(object)  # list[Item]

    def __init__(self, session: Session, recents: RecentModels, downloads: Downloads, rows: ModelRows) -> None:
        super().__init__()
        self._session, self.recents, self.downloads, self.rows = session, recents, downloads, rows
        self.found = Found()
        self.results: list[HubModel] = []
        self._scanning = self._again = False
        self._search = 0  # which search is the latest; one that was given up is none
        recents.changed.connect(self._on_recents)
        for changed in (downloads.changed, downloads.removed):
            changed.connect(lambda entry: self._fill_downloads())
        downloads.finished.connect(lambda entry: self.rescan())
        self._looked_at = self._paths()

    def _paths(self) -> tuple[list[Path], list[Path]]:
        """The folders that are listed, and those among the recent models."""
        sources = (recent.spec.source for recent in self.recents.entries)
        return list(self.recents.folders), [Path(source) for source in sources if Path(source).is_absolute()]

    # -- this machine ---------------------------------------------------------------------------------------------

    def rescan(self) -> None:
        """Looks at this machine anew."""
        if self._scanning:
            self._again = True
        elif not self._session.closing:
            self._scanning = True
            self._session.start(self._scan())

    async def _scan(self) -> None:
        (folders, recent), known = self._paths(), self.found
        try:
            self.found = await self._session.off_thread(lambda: scan(folders, recent, known))
        finally:
            self._scanning = False
        if self._session.closing:
            return
        self.fill()
        self.scanned.emit()
        if self._again:
            self._again = False
            self.rescan()

    def fill(self) -> None:
        """The rows anew, from what is known."""
        found, rows = self.found, self.rows
        self._fill_downloads()
        here = {Section.SHIPPED: found.shipped, Section.CACHE: found.cached, Section.FOLDERS: found.folders}
        for section, entries in here.items():
            items = []
            for entry in entries:
                key = entry.source, entry.revision
                if not entry.problem or self.downloads.find(*key) is None:  # else it stands among the downloads
                    items.append(entry_item(section, entry, found.infos.get(key), found.problems.get(key, "")))
            rows.set_section(section, items)
        rows.set_section(Section.RECENT, [self._recent_item(recent) for recent in self.recents.entries])
        self._fill_hub()

    def _recent_item(self, recent: Recent) -> Item:
        spec = recent.spec
        entry = self.found.entry(spec.source, spec.revision)
        if entry is None:
            return recent_item(recent, model_words(spec.source), None)
        problem = entry.problem or self.found.problems.get((entry.source, entry.revision), "")
        return recent_item(recent, entry.name, entry, problem)

    def _fill_downloads(self) -> None:
        self.rows.set_section(Section.DOWNLOADS, [download_item(entry) for entry in self.downloads.entries])

    def _on_recents(self) -> None:
        if self._paths() != self._looked_at:
            self._looked_at = self._paths()
            self.rescan()
        self.fill()

    # -- the hub --------------------------------------------------------------------------------------------------

    def search(self, words: str) -> None:
        """Asks the hub: for models with these words, or for the one that they name."""
        self._search += 1
        self.search_begun.emit()
        self._session.start(self._ask(words, self._search))

    def cancel_search(self) -> None:
        """What the hub answers to the search under way is not wanted any more."""
        self._search += 1
        self.search_ended.emit("")

    async def _ask(self, words: str, number: int) -> None:
        wanted, error, results = hub_reference(words), "", list[HubModel]()
        try:
            results = await self._session.off_thread(
                lambda: search_hub(words) if wanted is None else [hub_model(wanted.id, wanted.revision)]
            )
        except InvalidInput as failure:
            error = str(failure)
        except Exception as failure:  # whatever it was, the person is told and the window goes on
            error = f"{type(failure).__name__}: {failure}".splitlines()[0]
        if number != self._search or self._session.closing:
            return
        if not error:
            self.results = results
            self._fill_hub()
        self.search_ended.emit(error)
        if not error:
            self.hub_found.emit(self.rows.items(Section.HUB))

    def _fill_hub(self) -> None:
        cached = {entry.source for entry in self.found.cached if not entry.problem}
        self.rows.set_section(Section.HUB, [hub_item(model, model.id in cached) for model in self.results])
