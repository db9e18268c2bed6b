"""What the chosen row's model is: known from the scan, read off its headers, or asked of the hub."""

from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, QTimer, Signal

from app.language import tr
from app.models.items import Item
from app.models.library import ModelLibrary, inspect_entry
from app.session.session import Session
from engine import InvalidInput
from engine.checkpoints import HubModel, ModelInfo, hub_info, hub_model, why_unsupported

PAUSE_MS = 120  # before a row that was walked over is looked at


@dataclass(frozen=True, slots=True)
class Subject:
    """The model that the page is about. `info` is None while nothing is known; `hub` where it is not on this
    machine; `error` why nothing is known."""

    item: Item
    info: ModelInfo | None = None
    hub: HubModel | None = None
    error: str = ""

    @property
    def why_not(self) -> str:
        """Why it cannot be loaded as it is; "" where it can, or nothing is known yet."""
        if self.hub is not None:
            return tr("Download it first.")
        return self.item.problem or (why_unsupported(self.info.model_type) if self.info is not None else "")

    @property
    def revision(self) -> str | None:
        return self.hub.revision if self.hub is not None else self.item.revision


class SubjectFinder(QObject):
    """Tells of the row named last, as more and more becomes known of it."""

    found = Signal(object)  # Subject

    def __init__(self, session: Session, library: ModelLibrary) -> None:
        super().__init__()
        self._session, self._library = session, library
        self._hub_facts: dict[tuple[str, str | None], Subject] = {}
        self._item: Item | None = None
        self._number = 0  # of the row named last: what is found out of an earlier one is not told
        self._pause = QTimer(self, singleShot=True, interval=PAUSE_MS)
        self._pause.timeout.connect(self._look)

    def find(self, item: Item) -> None:
        """Tells at once what is known, and later the rest."""
        self._item = item
        self._number += 1
        subject = self._known(item) or Subject(item)
        if subject.info is None and not subject.error:
            self._pause.start()
        self.found.emit(subject)

    def ask_again(self) -> None:
        """What the hub told is forgotten; a row of which nothing is known is looked into anew."""
        known = self._known(self._item) if self._item is not None else None
        self._hub_facts.clear()
        if self._item is not None and (known is None or known.hub is not None):
            self.find(self._item)

    def close(self) -> None:
        """Tells no more."""
        self._number += 1
        self._pause.stop()

    def on_hub(self, item: Item) -> bool:
        """Whether its weights, or the rest of them, are still to be fetched."""
        if "/" not in item.source or item.source.startswith(("/", "~", ".")):
            return False
        entry = self._library.found.entry(item.source, item.revision)
        return entry is None or (entry.folder is None and bool(entry.problem))

    def _known(self, item: Item) -> Subject | None:
        """What was found out before; None where the files or the hub must be asked."""
        if self.on_hub(item):
            known = self._hub_facts.get(item.model)
            return replace(known, item=item) if known is not None else None
        if item.problem:
            return Subject(item, error=item.problem)
        entry = item.entry
        info = self._library.found.infos.get((entry.source, entry.revision)) if entry is not None else None
        return Subject(item, info) if info is not None else None

    def _look(self) -> None:
        if self._item is not None and not self._session.closing:
            self._session.start(self._find_out(self._item, self._number))

    async def _find_out(self, item: Item, number: int) -> None:
        try:
            subject = await (self._ask_hub(item, number) if self.on_hub(item) else self._read(item))
        except (InvalidInput, OSError) as error:
            subject = Subject(item, error=str(error))
        self._tell(subject, number)

    async def _read(self, item: Item) -> Subject:
        entry = item.entry or self._library.found.entry(item.source, item.revision)
        if entry is None:
            raise InvalidInput(tr("it is not on this machine any more"))
        return Subject(item, await self._session.off_thread(lambda: inspect_entry(entry)))

    async def _ask_hub(self, item: Item, number: int) -> Subject:
        hub = await self._session.off_thread(lambda: hub_model(item.source, item.revision))
        subject = Subject(item, hub=hub)
        self._tell(subject, number)
        try:
            info = await self._session.off_thread(lambda: hub_info(hub.id, hub.revision))
            subject = replace(subject, info=info)
        except InvalidInput as error:  # its files are gated, or none that can be read
            subject = replace(subject, error=str(error))
        self._hub_facts[item.model] = subject
        return subject

    def _tell(self, subject: Subject, number: int) -> None:
        if number == self._number and not self._session.closing:
            self.found.emit(subject)
