"""The Models page: which models there are, here and on the hub, what each is, and in which quantization it fits."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QStackedWidget, QTabBar, QWidget

from app.language import tr
from app.models.deletion import Deletion
from app.models.download_strip import DownloadStrip
from app.models.facts import copied_words, facts, gated_words, place_words
from app.models.fit.panel import FitPanel
from app.models.header import ModelHeader
from app.models.items import Item, RowKey, Section
from app.models.library import ModelLibrary
from app.models.list import ModelsList
from app.models.load_strip import LoadStrip
from app.models.quality_section import QualitySection
from app.models.rows import ModelRows
from app.models.subject import Subject, SubjectFinder
from app.session.downloads import Download, Downloads
from app.session.recent_models import RecentModels
from app.session.session import Session, SessionState
from app.ui.banner import Banner
from app.ui.layout.boxes import Scrolled, column, panel, row
from app.ui.layout.zoomed import zoomed
from app.ui.look import theme
from app.ui.page import Page
from app.words import bytes_words, sentence
from engine import ModelSpec
from engine.checkpoints import why_unsupported
from engine.trace import ModelCard

LIST, SHARE = 340, 0.36  # width of the list in pixels of the design, and its most of the page


class ModelsPage(Page):
    """Builds the panels, joins their signals, and knows which model is chosen."""

    load_asked = Signal(object)  # ModelSpec
    loaded = Signal(object)  # ModelCard of a load that was asked for here

    def __init__(self, session: Session, recents: RecentModels, parent: QWidget) -> None:
        super().__init__("models_page", parent)
        self._session, self.recents = session, recents
        self.downloads = Downloads(session, self)
        self.rows = ModelRows(session)
        self.rows.setParent(self)
        self.library = ModelLibrary(session, recents, self.downloads, self.rows)
        self.library.setParent(self)
        self.list = ModelsList(self.rows)
        self.header = ModelHeader()
        self.download = DownloadStrip(self.downloads)
        self.loading = LoadStrip(session)
        self.fit = FitPanel(session)
        self.notice = Banner()
        self.deletion = Deletion(self, session, self.notice, self.rows)
        self.deletion.done.connect(self.library.rescan)
        self.quality = QualitySection(self, session)
        self.subject: Subject | None = None
        self.finder = SubjectFinder(session, self.library)
        self.finder.setParent(self)
        self._asked: ModelSpec | None = None
        self._begun = False
        self._load_when_known = False
        self._wanted: RowKey | None = None  # a row to choose once it is there
        self._make_actions()
        self._lay_out()
        self._connect()
        self._place()

    def _make_actions(self) -> None:
        self.search_action = self.action(tr("Search for a model"), self.start_search, "Ctrl+F")
        self.rescan_action = self.action(tr("Look again at the models that are here"), self.rescan, "Ctrl+R")
        self.action(tr("Add a model folder …"), self.list.choose_folder)
        self.action(tr("Forget all recent models"), self._on_forget)
        self.addActions([self.quality.compare_action, self.quality.awq_action])

    def _lay_out(self) -> None:
        self.header.column.addWidget(self.download)
        self.tabs = QTabBar(autoHide=True, expanding=False)
        self.tabs.setObjectName("models_tabs")
        self.tabs.setAccessibleName(tr("What is told of the model"))
        self.stack = QStackedWidget()
        self.sections = panel(zoomed(column(self.tabs, (self.stack, 1), spacing=0), (8, 2, 8, 0)))
        self.tabs.currentChanged.connect(self.stack.setCurrentIndex)
        for title, section in ((tr("Fit"), self.fit), (tr("Compare with the original"), self.quality.panel)):
            self.stack.addWidget(section)
            self.tabs.addTab(title)
        parts = column(self.header, self.loading, (self.sections, 1000), None)
        scroll = Scrolled(zoomed(parts, spacing=8), "models_scroll", tr("models"))
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        right = zoomed(column(self.notice, (scroll, 1)), spacing=8)
        self.setLayout(zoomed(row(self.list, (right, 1)), (8, 8, 8, 8), 8))

    def show_section(self, widget: QWidget) -> None:
        """Brings a section to the front."""
        self.tabs.setCurrentIndex(self.stack.indexOf(widget))

    def _connect(self) -> None:
        view, library = self.list, self.library
        view.chosen.connect(self._on_chosen)
        view.opened.connect(self._on_opened)
        view.hub_asked.connect(library.search)
        view.hub_cancelled.connect(library.cancel_search)
        view.folder_added.connect(self.open_folder)
        view.removed.connect(self._on_removed)
        view.deletion_asked.connect(self.deletion.ask)
        view.clear_asked.connect(self._on_forget)
        view.rescan_asked.connect(self.rescan)
        self.finder.found.connect(self._show)
        library.scanned.connect(self._on_scanned)
        library.search_begun.connect(lambda: view.say_searching(True))
        library.search_ended.connect(self._on_search_ended)
        library.hub_found.connect(self._on_hub_found)
        self.downloads.finished.connect(self._on_downloaded)
        self.fit.load_asked.connect(self._on_load_asked)
        self.fit.computed.connect(self._on_computed)
        self.fit.told.connect(lambda words: self.notice.tell("info", words, "", passes=True))
        self.fit.failed.connect(lambda words: self.notice.tell("error", words, ""))
        quality = self.quality
        quality.compare_action.triggered.connect(lambda: self.show_section(quality.panel))
        quality.load_asked.connect(self.load_asked)
        quality.made.connect(self.open_folder)
        self.fit.make_asked.connect(quality.awq_action.trigger)
        session = self._session
        session.model_loaded.connect(self._on_loaded)
        session.load_failed.connect(self._on_load_failed)
        session.state_changed.connect(self.rows.tell)
        theme.changes.theme_changed.connect(self._place)

    # -- what a person does ---------------------------------------------------------------------------------------

    def enter(self) -> None:
        if not self._begun:
            self._begun = True
            self.library.rescan()
        self.list.view.setFocus()

    def start_search(self) -> None:
        """Ctrl+F."""
        self.list.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.list.search.selectAll()

    def rescan(self) -> None:
        """Looks at this machine anew, and asks the hub again what it would not tell."""
        self.library.rescan()
        self.finder.ask_again()

    def open_folder(self, folder: Path) -> None:
        """Lists a folder and chooses it."""
        self.list.search.clear()
        self.recents.add_folder(folder)
        self._wanted = (Section.FOLDERS.value, str(folder.expanduser().absolute()), None)
        self.library.rescan()

    def give_up(self) -> bool:
        measuring = self.quality.measuring
        running = measuring.running
        if running:
            measuring.cancel()
        return running

    def take_file(self, path: Path) -> bool:
        """A folder is listed and chosen."""
        if path.is_dir():
            self.open_folder(path)
        return path.is_dir()

    def close_down(self) -> None:
        """Downloads stop, and can go on at the next start."""
        self.finder.close()
        self.downloads.close()
        self.quality.measuring.close()

    def spec(self, quantization: str) -> ModelSpec | None:
        """The chosen model in a quantization, as it is to be loaded."""
        subject = self.subject
        if subject is None:
            return None
        dtype, device = self.fit.chosen
        spec = ModelSpec(subject.item.source, quantization, dtype, device, subject.revision)
        settings = subject.item.settings
        return replace(spec, trust_remote_code=True) if settings is not None and settings.trust_remote_code else spec

    # -- the chosen model -----------------------------------------------------------------------------------------

    def _on_chosen(self, item: Item) -> None:
        self._load_when_known = False
        self.finder.find(item)

    def _show(self, subject: Subject) -> None:
        """The right side, as far as it is known."""
        self.subject = subject
        item, info, hub = subject.item, subject.info, subject.hub
        title = item.name if hub is None and item.section is not Section.RECENT else item.source.rsplit("/", 1)[-1]
        if item.section is Section.RECENT and item.entry is not None:
            title = item.entry.name
        entry = item.entry or self.library.found.entry(item.source, item.revision)
        known = facts(info, entry, hub) if info is not None else ()
        self.header.show_model(title, place_words(item, info, hub), copied_words(item, info, hub), known)
        self._say(subject)
        part = entry.size if entry is not None and entry.folder is None else 0
        refused = hub is not None and bool(hub.gated and subject.error)
        self.download.show_model(item.source, subject.revision, None if refused else hub, part)
        advise = hub is not None or not subject.why_not
        self.fit.show_model(info, item, subject.revision, why_not=subject.why_not, advise=advise)
        self.sections.setVisible(info is not None)
        self.quality.show_subject(subject, self.spec("none"))

    def _say(self, subject: Subject) -> None:
        info, hub = subject.info, subject.hub
        words, role = gated_words(hub) if hub is not None else "", "note"
        error = subject.error or (hub.problem if hub is not None else "")
        if subject.error and words:
            words, role = tr("{gated} {why}. Ctrl+R asks again.", gated=words, why=sentence(error)), "warning"
        elif error:
            words, role = sentence(error), "error"
        elif info is None:
            begun = tr("Asking the hub …") if self.finder.on_hub(subject.item) else tr("Reading its headers …")
            words = f"{begun}\n{words}".strip()
        elif why_unsupported(info.model_type):
            words, role = sentence(why_unsupported(info.model_type)), "warning"
        self.header.words.say(words, role)

    def _on_downloaded(self, entry: Download) -> None:
        size = tr("{bytes} in the Hugging Face cache.", bytes=bytes_words(entry.total))
        self.notice.tell("info", tr("{model} is on this machine", model=entry.id), size)
        subject = self.subject
        if subject is not None and (entry.id, entry.revision) == (subject.item.source, subject.revision):
            self._wanted = (Section.CACHE.value, entry.id, entry.revision)

    # -- loading --------------------------------------------------------------------------------------------------

    def _on_load_asked(self, quantization: str, dtype: str, device: str) -> None:
        spec = self.spec(quantization)
        if spec is not None and self._session.state is not SessionState.LOADING:  # the rows hear of it a little later
            self._asked = spec
            self.notice.hide()
            self.load_asked.emit(spec)

    def _on_opened(self, item: Item) -> None:
        """Enter: what a person most likely wants of the row."""
        subject = self.subject
        if subject is None or subject.item.key != item.key:
            return
        if subject.info is None and not subject.error:
            self._load_when_known = True
        elif self.download.isVisible() and subject.hub is not None:
            self.download.start()
        elif self.fit.bills is not None and self.fit.best:
            self._on_load_asked(self.fit.best, *self.fit.chosen)

    def _on_computed(self) -> None:
        if self._load_when_known and self.subject is not None:
            self._load_when_known = False
            self._on_opened(self.subject.item)

    def _on_loaded(self, card: ModelCard) -> None:
        self.rows.tell()
        if self._asked == self._session.spec:
            self._asked = None
            self.loaded.emit(card)

    def _on_load_failed(self, message: str) -> None:
        asked, self._asked = self._asked, None
        if asked is not None and not message:
            self.notice.tell("info", tr("The load was cancelled"), tr("Nothing of it is left in memory."))

    # -- the list -------------------------------------------------------------------------------------------------

    def _on_scanned(self) -> None:
        if self.library.found.error:
            self.list.note.say(sentence(self.library.found.error), "warning")
        if self._wanted is not None and self.list.choose(self._wanted):
            self._wanted = None
        subject = self.subject
        if subject is None:
            spec = self._session.spec
            if not self.list.choose((Section.SHIPPED.value, spec.source, spec.revision)):
                self._choose_first()
            return
        item = self.rows.item(self.rows.find(subject.item.key))
        if item is not None and item != subject.item:
            self._on_chosen(item)  # its files are others now

    def _choose_first(self) -> None:
        items = [item for section in Section for item in self.rows.items(section)]
        loaded = next((item for item in items if self.rows.loaded(item)), None)
        first = loaded or next((item for item in items if item.section is Section.SHIPPED), None)
        if first is not None:
            self.list.choose(first.key)

    def _on_search_ended(self, error: str) -> None:
        self.list.say_searching(False)
        if error:
            why = sentence(error).rstrip(".")
            self.list.note.say(tr("{why}. Local models work without it.", why=why), "warning")
        elif not self.rows.items(Section.HUB) and self.list.search.text():
            self.list.note.say(tr("The hub has no text-generation model with safetensors of this name."))

    def _on_hub_found(self, items: list[Item]) -> None:
        if items:
            self.list.choose(items[0].key)
            self.list.view.setFocus()

    def _on_removed(self, item: Item) -> None:
        words = tr("took {model} off the list", model=item.name)
        match item.section:
            case Section.RECENT if item.settings is not None:
                settings = item.settings
                self._remove(words, lambda: self.recents.remove(settings))
            case Section.FOLDERS if item.folder is not None:
                folder = item.folder
                self._remove(words, lambda: self.recents.remove_folder(folder))
            case Section.DOWNLOADS if item.download is not None:
                self.downloads.cancel(item.download)
                self.downloads.remove(item.download)

    def _on_forget(self) -> None:
        self._remove(tr("forgot all recent models"), self.recents.clear)

    def _remove(self, words: str, act: Callable[[], None]) -> None:
        """What goes from the list can come back."""
        recents = self.recents
        before = recents.entries, recents.folders
        act()
        if (recents.entries, recents.folders) != before:
            self.undoable.emit(words, lambda: recents.put_back(*before), act)

    # -- looks ----------------------------------------------------------------------------------------------------

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def _place(self) -> None:
        self.list.setFixedWidth(max(theme.px(200), min(theme.px(LIST), round(self.width() * SHARE))))
