"""The Play page: what is loaded at the left, the streams in the middle, live figures at the right, a prompt below."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QByteArray, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QKeyEvent, QShowEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app import storage
from app.inside.insights import INSIGHTS
from app.inside.on_demand import InsightPlace
from app.inside.panel import InsightPanel
from app.language import tr
from app.play.composer import Composer
from app.play.last_run import LastRun
from app.play.layout import AREAS, LAYOUT_VERSION, RIGHT, PlayLayout, dock_host
from app.play.setup.batching import BatchingPanel
from app.play.setup.model import ModelPanel
from app.play.setup.run import RunSetup
from app.play.setup.sampling import SamplingPanel
from app.play.setup.viewer import ViewerSetup
from app.play.streams.cards import EMPTY, LOADING, NO_MODEL, VIEWER
from app.play.streams.wall import StreamWall
from app.playback.bridge import Bridge
from app.playback.cursor_bar import CursorBar, cursor_key
from app.session.session import Session, SessionState
from app.ui.dock import Dock
from app.ui.labels import Hairline
from app.ui.layout.boxes import Scrolled, column, fill, held
from app.ui.look import theme
from app.ui.look.backstage import Backstage
from app.ui.page import Page
from engine.config import Prompt
from engine.jobs import engine_missing
from engine.trace import Header, RequestView

LAYOUT_KEY = "play/layout"
INSIDE_KEY = "play/inside"
COLUMNS_KEY = "play/request columns"


class PlayPage(Page):
    """Builds the panels and joins their signals; holds nothing else.

    The panels that are slow to build come with `complete`, after the window's first paint, and those that look inside
    when they are first seen.
    """

    told = Signal(str)  # something was done, in words
    failed = Signal(str)
    panel_built = Signal(object)  # InsightPanel

    def __init__(self, session: Session, bridge: Bridge, parent: QWidget) -> None:
        super().__init__("play_page", parent)
        self._session, self._bridge = session, bridge
        self.model = ModelPanel(session)
        self.batching = BatchingPanel(session, bridge)
        self.sampling = SamplingPanel()
        self.run = RunSetup()
        self.wall = StreamWall(bridge)
        self.last_run = LastRun(session, bridge, self)
        self.composer = Composer(session, bridge, self.sampling.params, lambda: self.sampling.turns)
        self.docks: dict[str, Dock] = {}
        self.places: dict[str, InsightPlace] = {}
        self._state = session.state
        self._before: QByteArray | None = None  # while presenting
        self._awaited = -1  # a request just made, opened as soon as its record arrives
        self.area = dock_host()
        self.composer.setVisible(not engine_missing())
        self.layout_of = PlayLayout(self.area, self.docks)
        self.area.setCentralWidget(self.wall)
        setup = column(spacing=0)
        self._setup_scroll = Scrolled(setup, "setup_scroll", tr("setup"))
        self._add_dock("setup", tr("Setup"), self._setup_scroll)
        Backstage(self, self.docks["setup"], self.composer)
        self.cursor_bar = CursorBar(bridge.scope)
        self.cursor_bar.inside_asked.connect(self.see_inside)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        layout = column((self.area, 1), margins=(8, 8, 8, 8), spacing=8)
        self.setLayout(layout)
        self._fill_setup(setup)
        fill(layout, self.cursor_bar, self.composer, margins=None)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()
        self.model.load_asked.connect(lambda spec: session.start(session.load(spec, session.config)))
        self.model.connect_asked.connect(lambda server: session.start(session.connect_to(server)))
        session.state_changed.connect(self._on_state)
        session.model_loaded.connect(lambda card: self.sampling.offer_adapters(card.adapters))
        self._on_state(session.state)
        session.submitted.connect(lambda requests: bridge.scope.follow())  # what is sent is to be seen
        self.wall.cards.stop_requested.connect(lambda request: session.stop([request]))
        self.composer.compression_asked.connect(self.compress)
        self.composer.undoable.connect(self.undoable)
        self.wall.cards.compression_requested.connect(
            lambda request: self.compress(prompt_of(bridge.requests[request]))
        )
        self.wall.cards.regenerate_requested.connect(lambda request: session.regenerate(bridge.requests[request]))

    def _on_state(self, state: SessionState) -> None:
        no_model = VIEWER if engine_missing() else NO_MODEL
        self.wall.cards.say_empty({SessionState.EMPTY: no_model, SessionState.LOADING: LOADING}.get(state, EMPTY))
        loaded = self._state is SessionState.LOADING and state is SessionState.READY
        self._state = state
        if loaded and self.window().focusWidget() is self.model.load:  # which would unload what is just there
            self.composer.prompt.setFocus()

    def complete(self) -> None:
        """Builds the rest, once the window is on the screen."""
        if "live" in self.docks:
            return
        from app.play.charts.live_budget import LiveBudgetButton
        from app.play.charts.panel import LiveCharts
        from app.play.requests.table import RequestTable
        from app.play.transcript.panel import Transcript

        self.charts = LiveCharts(self._bridge, beside=LiveBudgetButton(self._session))
        self.table = RequestTable(self._bridge)
        self.transcript = Transcript(self._bridge, self._session)
        for panel in (self.wall.cards, self.table):
            panel.request_opened.connect(self._on_opened)
        self.wall.cards.follow_up_requested.connect(self._on_follow_up)
        self.transcript.request_created.connect(self._on_created)
        self._bridge.records_arrived.connect(self._on_records)
        self._add_dock("live", tr("Live"), Scrolled(column(self.charts), "live_scroll", tr("live")), 12)
        self._add_dock("requests", tr("Requests"), self.table, 8)
        self._add_dock("transcript", tr("Transcript"), self.transcript, 8)
        for insight in INSIGHTS:
            place = self.places[insight.name] = InsightPlace(insight, self._bridge.scope)
            place.built.connect(self._on_built)
            self._add_dock(insight.name, insight.title, place, 12)
            self.docks[insight.name].visibilityChanged.connect(self._tell_titles)
        self.layout_of.prompt()
        kept, columns = storage.kept_state(LAYOUT_KEY), storage.kept_state(COLUMNS_KEY)
        if kept is not None:
            self.area.restoreState(kept, LAYOUT_VERSION)
            self.cursor_bar.inside.setChecked(str(storage.settings().value(INSIDE_KEY, "")).lower() == "true")
        if columns is not None:
            self.table.header.restoreState(columns)

    def enter(self) -> None:
        self.composer.prompt.setFocus()

    def give_up(self) -> bool:
        busy = self._bridge.busy
        if busy:
            self._session.stop()
        return busy

    def take_file(self, path: Path) -> bool:
        """A model folder is loaded, a file of prompts taken into the composer."""
        if path.is_dir():
            self.model.open_folder(str(path))
        else:
            self.composer.open_file(path)
        return True

    @property
    def panels(self) -> QByteArray:
        """Where the docks stand; while presenting, where they stood before."""
        return self._before or self.area.saveState(LAYOUT_VERSION)

    def present(self) -> None:
        """Keeps where the docks stand: presenting begins."""
        self._before = self.area.saveState(LAYOUT_VERSION)

    def put_back(self) -> None:
        """The docks stand as before presenting."""
        if self._before is not None:
            self.area.restoreState(self._before, LAYOUT_VERSION)
            self._before = None

    def keep_layout(self) -> None:
        """For the next start: where the docks stand; widths, order and sorting of the table's columns. A page that is
        not complete has nothing to keep."""
        if "live" not in self.docks:
            return
        storage.keep_state(COLUMNS_KEY, self.table.header.saveState())
        storage.keep_state(LAYOUT_KEY, self.area.saveState(LAYOUT_VERSION))

    def see_inside(self, inside: bool = True) -> None:
        """All docks that look inside, at once; or the usual ones: every dock where it was first."""
        arrange = self.layout_of.inside if inside else self.layout_of.prompt
        arrange()
        self.cursor_bar.inside.setChecked(inside)
        storage.settings().setValue(INSIDE_KEY, inside)

    def put_panels_back(self) -> None:
        """Every dock where it was first."""
        before, inside = self.area.saveState(LAYOUT_VERSION), self.cursor_bar.inside.isChecked()

        def undo() -> None:
            self.area.restoreState(before, LAYOUT_VERSION)
            self.cursor_bar.inside.setChecked(inside)

        self.see_inside(False)
        if self.area.saveState(LAYOUT_VERSION) != before:
            self.undoable.emit(tr("put all panels back"), undo, lambda: self.see_inside(False))

    def show_run(self, name: str, header: Header) -> None:
        """At the left, what a saved run was made with."""
        self.run.show_run(name, header)
        self._engine_setup.hide()
        self.run.show()

    def show_engine(self) -> None:
        """At the left, the settings of the engine again."""
        self.run.hide()
        self._engine_setup.show()

    def compress(self, prompt: Prompt) -> None:
        """Asks how a prompt is to be compressed, and shows what that changes."""
        from app.compression.dialog import CompressionDialog

        dialog = CompressionDialog(self.window(), self._session, prompt)
        dialog.use_asked.connect(self.composer.use)
        dialog.open()

    def cursor_commands(self) -> list[tuple[str, str, Callable[[], object]]]:
        """What the cursor can be told: words, key, and what it does."""
        scope = self._bridge.scope
        return [
            (tr("Play from the cursor, or pause"), "Space", scope.toggle),
            (tr("One step back"), ",", lambda: scope.step_by(-1)),
            (tr("One step on"), ".", lambda: scope.step_by(1)),
            (tr("Follow the newest"), "F", scope.follow),
        ]

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        QTimer.singleShot(0, self, self._come_back)  # a page behind another has no sizes to go by

    def hideEvent(self, event: QHideEvent) -> None:
        self.layout_of.rest()
        super().hideEvent(event)

    def _tell_titles(self) -> None:
        """A panel says its title where no tab does."""
        for name, place in self.places.items():
            if place.panel is not None:
                place.panel.heading.setVisible(not self.area.tabifiedDockWidgets(self.docks[name]))

    def _on_built(self, panel: InsightPanel) -> None:
        self._tell_titles()
        self.panel_built.emit(panel)
        panel.done.connect(self.told)
        panel.failed.connect(self.failed)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """What no panel had a use for: the cursor's keys."""
        if not cursor_key(self._bridge.scope, event):
            super().keyPressEvent(event)

    def _add_dock(self, name: str, title: str, content: QWidget, padding: int = 0) -> None:
        dock = self.docks[name] = Dock(f"dock_{name}", title, content, padding)
        self.area.addDockWidget(AREAS.get(name, RIGHT), dock)

    def _fill_setup(self, setup: QVBoxLayout) -> None:
        """Once it stands on the page: what is put into something else is dressed anew with all that is in it."""
        panels = column(spacing=0)
        self._engine_setup = held(panels)
        fill(setup, self.run, self._engine_setup, None)
        fill(panels, self.model, Hairline(), self.batching, Hairline(), self.sampling)
        if engine_missing():
            self._engine_setup.hide()
            self._engine_setup = ViewerSetup()
            setup.insertWidget(1, self._engine_setup)
        self._setup_scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)

    def _come_back(self) -> None:
        """Zooming while another page was in front leaves what it needs at least to be told again, and then taken in."""
        self._fit_setup()
        QTimer.singleShot(0, self, self.layout_of.follow_zoom)

    def _on_theme(self) -> None:
        self._fit_setup()
        self.layout_of.follow_zoom()

    def _fit_setup(self) -> None:
        bar = self._setup_scroll.verticalScrollBar().sizeHint().width()
        self._setup_scroll.setMinimumWidth(self._setup_scroll.sheet.minimumSizeHint().width() + bar)

    def _on_opened(self, request: int) -> None:
        self._bridge.scope.select(request)
        self.transcript.select(request)
        self.docks["transcript"].show()
        self.docks["transcript"].raise_()

    def _on_follow_up(self, request: int) -> None:
        self._on_opened(request)
        self.transcript.follow_up.setFocus(Qt.FocusReason.ShortcutFocusReason)

    def open_request(self, request: int) -> None:
        """Selects it in all panels, as soon as its record is there."""
        self._on_created(request)

    def _on_created(self, request: int) -> None:
        self._awaited = request
        self._on_records()

    def _on_records(self) -> None:
        if self._awaited in self._bridge.requests:
            request, self._awaited = self._awaited, -1
            self._on_opened(request)


def prompt_of(view: RequestView) -> Prompt:
    """A request's prompt as it was given: its messages, or its text."""
    return list(map(dict, view.messages)) if view.messages else view.prompt
