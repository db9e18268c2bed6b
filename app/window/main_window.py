"""The window: top bar, banner, pages, actions and their keys. What they do is in the session and the panels."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, QRect, QSize, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QMainWindow, QMenu

from app import storage
from app.language import tr
from app.play.page import PlayPage
from app.playback.bridge import Bridge
from app.preferences import FIRST_PAGE
from app.session.loading.progress import LoadStatus
from app.session.recent_models import RecentModels
from app.session.server_link import ServerLink
from app.session.session import LEASED_WORDS, Session, SessionState
from app.session.session_words import session_words
from app.stage.stage import Stage
from app.ui.banner import Banner
from app.ui.layout.boxes import column, held
from app.ui.look import theme
from app.ui.page import Page
from app.ui.undo import UndoStack
from app.window.actions import WindowActions, page_action
from app.window.export.run_export import RunExport
from app.window.fleet import FleetBeside
from app.window.notices import Notices
from app.window.opener import Opener
from app.window.page_name import PAGES
from app.window.pages import Pages
from app.window.runs.chat_requests import ChatRequests
from app.window.runs.new_session import NewSession
from app.window.runs.saved_runs import SavedRuns
from app.window.runs.viewer import Viewer
from app.window.stage.presenting import Presenting
from app.window.stage.touring import Touring
from app.window.top_bar import TopBar
from app.window.window_layout import WindowLayout
from app.words import held_words, model_words, run_words, sentence
from engine import EngineConfig, ModelSpec, Trace
from engine.remote import ServerAddress
from engine.trace import ModelCard

if TYPE_CHECKING:
    from app.chat.page import ChatPage
    from app.compare.page import ComparePage
    from app.compare.race.session import RaceSession
    from app.models.page import ModelsPage
    from app.runs.page import RunsPage

FIRST_SIZE = (1600, 1000)
FRAME = 40  # pixels that a desktop's title bar takes
PAGE_KEY = "window/page"
PLAY, CHAT, COMPARE, RUNS, MODELS = range(5)


class MainWindow(QMainWindow):
    """Shows itself first; `start` then loads a model. Closing ends the engine before the window is gone."""

    closed = Signal()

    def __init__(self, session: Session, bridge: Bridge) -> None:
        super().__init__()
        self.setObjectName("main_window")
        self.setWindowTitle("Batchscope")
        self.setAcceptDrops(True)
        self.session, self.bridge = session, bridge
        self.keeps_layout = True
        self._closing = self.finished = False
        self.banner = Banner()
        self.menu = QMenu(self)
        self.menu.setObjectName("main_menu")
        self.top_bar = TopBar(self.menu, PAGES)
        makers = self._make_chat, self._make_compare, self._make_runs, self._make_models
        self.pages = Pages([lambda: self.page, *makers])
        central = column(self.top_bar, self.banner, (self.pages, 1), spacing=0)
        self.setCentralWidget(held(central, "page"))  # before the page is there: what moves is dressed anew
        self.page = PlayPage(session, bridge, self.pages)
        self.pages.build(PLAY)
        self.compare: ComparePage | None = None  # built when it is first asked for
        self.models: ModelsPage | None = None  # likewise
        self.recents = RecentModels(self)
        self.server_link = ServerLink(session, self)
        self.fleet = FleetBeside(session, self)
        self.runs = SavedRuns(session, bridge, self.banner, self)
        self.exports = RunExport(session, bridge, self.page, self.runs, self.banner, self._race, self)
        self.notices = Notices(session, bridge, self.banner, self.runs, self)
        self.undo = UndoStack(self)
        parts = session, bridge, self.runs, self.banner, self.undo
        self.new_session = NewSession(*parts, lambda: self.show_page(PLAY), self)
        self.opener = Opener(self.pages, self.runs, self._open_race, self.page.take_file)
        self.open_path = self.opener.open
        self.viewer = Viewer(self.banner, self.runs, self.open_path, partial(self.show_page, RUNS))
        stage = Stage(session, bridge, self.page, self._built_compare, self.pages, self.show_page)
        self.touring = Touring(stage, self.runs, self.banner, self)
        self.presenting = Presenting(stage, self.touring, (self.top_bar, self.banner), self)
        central.addWidget(self.touring.bar)
        self.window_actions = WindowActions(self, self.pages, {page.name: page.title for page in PAGES})
        self.layout_kept = WindowLayout(self, self.page, self.banner, QRect(QPoint(0, 0), QSize(*FIRST_SIZE)))
        self.commands = self.window_actions.all
        self._make_actions()
        self._connect()
        self._say_state()
        self.layout_kept.restore()
        self.page.composer.prompt.setFocus()

    def fit_screen(self) -> None:
        """No larger than the screen it will be on, with room for the frame around it."""
        self.resize(self.size().boundedTo(self.screen().availableGeometry().size() - QSize(0, FRAME)))

    def start(
        self, spec: ModelSpec | None, config: EngineConfig, run: Path | None = None, server: ServerAddress | None = None
    ) -> None:
        """Completes the page after the first paint, then loads the model, shows a saved run, or joins a server."""
        self.page.model.set_spec(spec or ModelSpec("demo"))
        self.page.batching.set_config(config)

        def go() -> None:
            self.page.complete()
            self.window_actions.add_settings()
            self.fill_menu()
            names = [page.name for page in PAGES]
            kept = storage.settings().value(PAGE_KEY) if FIRST_PAGE.value == "last" else FIRST_PAGE.value
            if kept in names[COMPARE:]:
                self.show_page(names.index(kept))
            if run is not None:
                self.open_path(run)
            elif server is not None:
                self.page.model.show_server(server)
                self.session.start(self.session.connect_to(server))
            elif spec is not None and not self.viewer.begin():
                self.session.start(self.session.load(spec, config))

        QTimer.singleShot(0, self, go)

    # -- actions --------------------------------------------------------------------------------------------------

    def _make_actions(self) -> None:
        session, composer, model = self.session, self.page.composer, self.page.model
        add = self.window_actions.add
        for own in (composer.send_action, composer.stop_action):
            self.page.addAction(own)  # the keys of a page are for the page on show
            self.commands.append(own)
        go = [add(page_action(page.title), partial(self.show_page, i), page.keys) for i, page in enumerate(PAGES)]
        self.models_action = go[MODELS]
        runs_models = [self.models_action, add(tr("Search for a model …"), self._on_find_model)]
        add(tr("Stop, or cancel the load"), self._on_escape, "Esc")
        self.commands += self.undo.actions
        self.new_action = add(tr("New session"), self.new_session.ask, "Ctrl+Shift+N")
        ask = partial(self.opener.ask, self)
        self.open_action = add(tr("Open a model, a run, a prompt file or a workload …"), ask, "Ctrl+O")
        self.run_action = add(tr("Open a saved run or race …"), lambda: self.runs.ask(self, self.open_path))
        self.live_action = add(tr("Back from the saved run to the engine"), self.runs.close)
        self.live_action.setEnabled(False)
        self.export_actions = [add(words, ask) for words, ask in self.exports.actions()]
        runs_models.append(add(tr("Open a model folder …"), model.choose_folder))
        add(tr("Take prompts from a file …"), composer.choose_file)
        load_demo = add(
            tr("Load the demo model"), lambda: session.start(session.load(ModelSpec("demo"), session.config))
        )
        self.unload_action = add(tr("Unload the model"), lambda: session.start(session.unload()))
        add(tr("Write a prompt"), composer.prompt.setFocus, "Ctrl+L")
        runs_models += [self.new_action, load_demo, add(tr("Compress the prompt …"), composer.ask_compression)]
        self.tour_action = add(tr("Take the tour"), self.touring.ask)
        self.present_actions = [add(words, act, *keys) for words, act, *keys in self.presenting.actions()]
        self.window_actions.add_appearance()
        self.fleet_action = add(tr("Watch the fleet: replicas, queues, where requests go"), self.fleet.show)
        self.fleet_action.setEnabled(False)
        self.inside_action = add(tr("See inside: all panels at once"), self._on_inside, "Ctrl+I")
        self.reset_action = add(tr("Put all panels back"), self.page.put_panels_back)
        for text, key, act in self.page.cursor_commands():
            self.window_actions.tell(text, key, act)  # the page acts, since in a text field the key is a letter
        add(tr("Put the window and its panels back as they were first"), lambda: self.layout_kept.reset())
        self.window_actions.add_window()
        self.viewer.restrict(*runs_models, *map(self.top_bar.pages.button, (CHAT, MODELS)), composer.compress)

    def fill_menu(self) -> None:
        """The menu, once the page has all its docks."""
        docks = [dock.toggleViewAction() for dock in self.page.docks.values()]
        shared = self.window_actions
        self.menu.clear()
        opened = self.new_action, self.models_action, self.open_action, self.run_action, self.live_action
        self.menu.addActions([*self.undo.actions, *opened, self.unload_action, self.tour_action])
        self.menu.addMenu(tr("Export the run")).addActions(self.export_actions)
        self.menu.addSeparator()
        panels = self.menu.addMenu(tr("Panels"))
        panels.addActions(docks)
        scenes = self.touring.scenes()
        self.commands.extend(action for action in (*docks, *scenes.actions()) if action not in self.commands)
        panels.addSeparator()
        panels.addActions([self.inside_action, self.fleet_action, self.reset_action])
        self.menu.addMenu(scenes)
        self.menu.addActions([*self.present_actions, shared.full_screen, shared.settings])
        self.menu.addMenu(shared.help)
        self.menu.addSeparator()
        self.menu.addAction(shared.quit)

    def _connect(self) -> None:
        session = self.session
        session.requests = self.runs
        session.state_changed.connect(self._on_state)
        session.load_progressed.connect(self._on_progress)
        session.model_loaded.connect(lambda card: None if session.server else self.recents.add(session.spec))
        for tell in (self._say_state, self.page.model.say_link, self.fleet.look):
            self.server_link.changed.connect(tell)
        self.fleet.offered.connect(self.fleet_action.setEnabled)
        self.page.model.server.fleet_asked.connect(self.fleet.show)
        session.load_failed.connect(self._on_load_failed)
        session.trace_changed.connect(self._on_trace)
        session.config_changed.connect(self._say_state)
        session.config_changed.connect(lambda config: self.page.sampling.set_mode(config.mode))
        for after in (session.submitted, self.undo.indexChanged):
            after.connect(self.banner.pass_by)
        self.page.composer.path_dropped.connect(self.open_path)
        self.page.model.models_asked.connect(lambda: self.show_page(MODELS))
        self.page.undoable.connect(self.undo.did)
        self.page.told.connect(lambda words: self.banner.tell("info", words, "", passes=True))
        self.page.failed.connect(lambda words: self.banner.tell("error", words, ""))
        self.runs.opened.connect(self._on_run_opened)
        self.runs.closed.connect(self._on_run_closed)
        self.page.run.back_asked.connect(self.runs.close)
        self.top_bar.search.clicked.connect(self.window_actions.search)
        self.top_bar.page_asked.connect(self.show_page)
        theme.changes.theme_changed.connect(self.top_bar.fold)  # once the page has given way
        self.undo.failed.connect(
            lambda words: self.banner.tell("warning", tr("That cannot be undone"), sentence(words))
        )
        self.pages.built.connect(self._on_page_built)
        self.pages.shown.connect(self._on_page_shown)

    # -- pages ----------------------------------------------------------------------------------------------------

    def show_page(self, index: int) -> None:
        """Shows a page, and builds it where it is not there yet."""
        self.pages.show_page(index)

    def _make_compare(self) -> ComparePage:
        from app.compare.page import ComparePage

        self.compare = ComparePage(self.session, self.pages)
        self.exports.figures.offer_race(self.compare)
        return self.compare

    def _make_runs(self) -> RunsPage:
        from app.runs.page import RunsPage

        page = RunsPage(self.session, self.undo)
        page.open_asked.connect(self.open_path)
        page.compare_asked.connect(self._on_compare_runs)
        page.export_asked.connect(self.exports.ask_of)
        page.play_asked.connect(lambda: self.show_page(PLAY))
        return page

    def _make_models(self) -> ModelsPage:
        from app.models.page import ModelsPage

        self.models = ModelsPage(self.session, self.recents, self.pages)
        self.models.load_asked.connect(self.page.model.load_asked)
        self.models.loaded.connect(self._on_loaded_from_models)
        return self.models

    def _make_chat(self) -> ChatPage:
        from app.chat.page import ChatPage

        page = ChatPage(self.session, self.undo, self.recents)
        page.inside_asked.connect(ChatRequests(self.session, self.runs, self.page, self).show)
        page.inside_asked.connect(lambda: self.show_page(PLAY))
        return page

    def _built_compare(self) -> ComparePage:
        self.pages.build(COMPARE)
        assert self.compare is not None
        return self.compare

    def _on_page_built(self, page: Page) -> None:
        self.commands.extend(page.actions())
        page.undoable.connect(self.undo.did)

    def _on_page_shown(self, index: int) -> None:
        self.top_bar.show_page(index)
        storage.settings().setValue(PAGE_KEY, PAGES[index].name)

    # -- slots ----------------------------------------------------------------------------------------------------

    def _open_race(self, path: Path) -> None:
        self.show_page(COMPARE)
        self._built_compare().open_race(path)

    def _race(self) -> RaceSession | None:
        """That of the Compare page, where that is on show."""
        return self.compare.race if self.compare is not None and self.compare.isVisible() else None

    def _on_run_opened(self) -> None:
        self.live_action.setEnabled(True)
        if self.runs.path is not None:
            self.page.show_run(self.runs.path.stem, self.bridge.trace.header)
        self.show_page(PLAY)
        self.page.setFocus()
        self._say_state()

    def _on_run_closed(self) -> None:
        self.live_action.setEnabled(False)
        self.page.show_engine()
        self._say_state()

    def _on_compare_runs(self, paths: list[Path]) -> None:
        self.show_page(COMPARE)
        self._built_compare().open_runs(paths)

    def _on_inside(self) -> None:
        self.show_page(PLAY)
        self.page.see_inside(not self.page.cursor_bar.inside.isChecked())

    def _on_escape(self) -> None:
        if self.presenting.on:
            self.presenting.escape()
        elif self.touring.on:
            self.touring.leave()
        elif self.runs.reading:
            self.runs.cancel()
        elif self.session.state is SessionState.LOADING:
            self.session.cancel_load()
        elif not self.pages.current.give_up() and self.isFullScreen():
            self.showNormal()

    def _on_find_model(self) -> None:
        self.show_page(MODELS)
        if self.models is not None:
            self.models.start_search()

    def _on_loaded_from_models(self, card: ModelCard) -> None:
        """Who loads a model there wants to use it."""
        self.runs.close()
        self.show_page(PLAY)
        where = "GPU" if card.device.startswith("cuda") else "CPU"
        held, keys = held_words(card), PAGES[MODELS].native_keys
        words = tr("{held} on the {device}. {keys} is the way back.", held=held, device=where, keys=keys)
        self.banner.tell("info", tr("{model} is loaded", model=model_words(card.source)), words, passes=True)

    def _on_state(self, state: SessionState) -> None:
        self.unload_action.setEnabled(state in (SessionState.READY, SessionState.DIED))
        if state is SessionState.LEASED:
            self.page.composer.send_button.setToolTip(LEASED_WORDS)
        self._say_state()

    def _say_state(self) -> None:
        if self.runs.path is not None:
            self.top_bar.say(tr("saved run  ·  {run}", run=run_words(self.bridge.trace.header)))
        else:
            sweeps = self.compare is not None and self.compare.sweep.running
            self.top_bar.say(session_words(self.session, sweeps))

    def _on_progress(self, status: LoadStatus) -> None:
        words = status.words
        if status.total and not status.counted:
            words = f"{status.stage} · {100 * status.done / status.total:.0f} %"
        model = model_words(self.session.spec.source)
        self.top_bar.say(tr("loading {model} · {progress}", model=model, progress=words))

    def _on_trace(self, trace: Trace) -> None:
        if self.runs.path is None:
            self.bridge.show(trace, keep_until_used=True)
        self._say_state()

    def _on_load_failed(self, message: str) -> None:
        if message and not self.page.model.isVisible():
            lost = self.page.model.serves
            title = tr("The server was not reached") if lost else tr("The model was not loaded")
            self.banner.tell("error", title, sentence(message))

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if any(url.isLocalFile() for url in event.mimeData().urls()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        self.opener.drop(event)

    # -- the end --------------------------------------------------------------------------------------------------

    def closeEvent(self, event: QCloseEvent) -> None:
        event.setAccepted(self.finished)
        if not (self.finished or self._closing):
            self._closing = True
            self.runs.close_down()
            self.presenting.leave()
            self.touring.close_down()
            if self.keeps_layout:
                self.layout_kept.keep()
            self.hide()
            for page in self.pages.all_built():
                page.close_down()
            self.session.start(self._shut())

    async def _shut(self) -> None:
        self.bridge.stop()
        self.server_link.stop()
        self.fleet.close_down()
        await self.session.close()
        self.finished = True
        self.close()
        self.closed.emit()
