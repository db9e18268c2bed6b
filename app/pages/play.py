"""The Play page: what is loaded at the left, the streams in the middle, live figures at the right, a prompt below."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMainWindow, QScrollArea, QTabWidget, QVBoxLayout, QWidget

from app import places, theme
from app.bridge import Bridge
from app.panels.batching import BatchingPanel
from app.panels.composer import Composer
from app.panels.model import ModelPanel
from app.panels.sampling import SamplingPanel
from app.panels.stream_wall import StreamWall
from app.session import Session
from app.widgets.dock import Dock
from app.widgets.labels import Hairline
from engine import ModelSpec

LAYOUT_KEY, LAYOUT_VERSION = "play/layout", 1
COLUMNS_KEY = "play/request columns"
SIDES = Qt.DockWidgetArea.LeftDockWidgetArea, Qt.DockWidgetArea.RightDockWidgetArea


class PlayPage(QWidget):
    """Builds the panels and joins their signals; holds nothing else.

    The panels that are slow to build come with `complete`, after the window's first paint.
    """

    def __init__(self, session: Session, bridge: Bridge) -> None:
        super().__init__()
        self.setObjectName("play_page")
        self.setProperty("role", "page")
        self._session, self._bridge = session, bridge
        self.model = ModelPanel(session)
        self.batching = BatchingPanel(session, bridge)
        self.sampling = SamplingPanel()
        self.wall = StreamWall(bridge)
        self.composer = Composer(session, bridge, self.sampling.params)
        self.docks: dict[str, Dock] = {}
        self._awaited = -1  # a request just made, opened as soon as its record arrives
        self.area = QMainWindow()
        self.area.setObjectName("play_area")
        self.area.setWindowFlags(Qt.WindowType.Widget)
        self.area.setDockOptions(
            QMainWindow.DockOption.AnimatedDocks
            | QMainWindow.DockOption.AllowNestedDocks
            | QMainWindow.DockOption.AllowTabbedDocks
        )
        self.area.setContextMenuPolicy(Qt.ContextMenuPolicy.NoContextMenu)
        for corner in (Qt.Corner.TopLeftCorner, Qt.Corner.BottomLeftCorner):
            self.area.setCorner(corner, SIDES[0])
        for corner in (Qt.Corner.TopRightCorner, Qt.Corner.BottomRightCorner):
            self.area.setCorner(corner, SIDES[1])
        self.area.setCentralWidget(self.wall)
        self._add_dock("setup", "Setup", self._setup(), SIDES[0])
        column = QVBoxLayout(self)
        column.setContentsMargins(8, 8, 8, 8)
        column.setSpacing(8)
        column.addWidget(self.area, 1)
        column.addWidget(self.composer)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()
        self.model.load_asked.connect(self._on_load_asked)
        self.wall.stop_requested.connect(self._on_stop_asked)
        self.wall.regenerate_requested.connect(session.regenerate)

    def complete(self) -> None:
        """Builds the rest, once the window is on the screen."""
        if "live" in self.docks:
            return
        from app.panels.charts import LiveCharts
        from app.panels.request_table import RequestTable
        from app.panels.transcript import Transcript

        self.charts = LiveCharts(self._bridge)
        self.table = RequestTable(self._bridge)
        self.transcript = Transcript(self._bridge, self._session)
        for panel in (self.wall, self.table):
            panel.request_selected.connect(self._on_selected)
            panel.request_opened.connect(self._on_opened)
        self.wall.follow_up_requested.connect(self._on_follow_up)
        self.transcript.request_created.connect(self._on_created)
        self._bridge.records_arrived.connect(self._on_records)
        self.tabs = QTabWidget()
        self.tabs.setObjectName("detail_tabs")
        self.tabs.setDocumentMode(True)
        self.tabs.addTab(self.table, "Requests")
        self.tabs.addTab(self.transcript, "Transcript")
        self._add_dock("live", "Live figures", self.charts, SIDES[1], 12)
        self._add_dock("detail", "Requests and transcript", self.tabs, Qt.DockWidgetArea.BottomDockWidgetArea, 8)
        self.default_layout = self.area.saveState(LAYOUT_VERSION)
        self._size_docks()
        kept = places.settings().value(LAYOUT_KEY)
        if kept is not None:
            self.area.restoreState(kept, LAYOUT_VERSION)
        columns = places.settings().value(COLUMNS_KEY)
        if columns is not None:
            self.table.restore_columns(columns)

    def keep_layout(self) -> None:
        places.settings().setValue(COLUMNS_KEY, self.table.save_columns())
        places.settings().setValue(LAYOUT_KEY, self.area.saveState(LAYOUT_VERSION))

    def reset_layout(self) -> None:
        """Every dock back in its first place."""
        for dock in self.docks.values():
            dock.setFloating(False)
        self.area.restoreState(self.default_layout, LAYOUT_VERSION)
        for dock in self.docks.values():
            dock.show()
        self._size_docks()

    def dock_actions(self) -> list[QAction]:
        return [dock.toggleViewAction() for dock in self.docks.values()]

    def _add_dock(self, name: str, title: str, content: QWidget, where: Qt.DockWidgetArea, padding: int = 0) -> None:
        dock = self.docks[name] = Dock(f"dock_{name}", title, content, padding)
        self.area.addDockWidget(where, dock)

    def _size_docks(self) -> None:
        sides = [self.docks["setup"], self.docks["live"]]
        self.area.resizeDocks(sides, [theme.px(264), theme.px(300)], Qt.Orientation.Horizontal)
        self.area.resizeDocks([self.docks["detail"]], [theme.px(240)], Qt.Orientation.Vertical)

    def _setup(self) -> QWidget:
        sheet = QWidget()
        sheet.setProperty("role", "sheet")
        column = QVBoxLayout(sheet)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        for i, panel in enumerate((self.model, self.batching, self.sampling)):
            if i:
                column.addWidget(Hairline())
            column.addWidget(panel)
        column.addStretch(1)
        scroll = QScrollArea()
        scroll.setObjectName("setup_scroll")
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(sheet)
        self._setup_scroll, self._setup_sheet = scroll, sheet
        return scroll

    def _on_theme(self) -> None:
        bar = self._setup_scroll.verticalScrollBar().sizeHint().width()
        self._setup_scroll.setMinimumWidth(self._setup_sheet.minimumSizeHint().width() + bar)

    def _on_load_asked(self, spec: ModelSpec) -> None:
        self._session.start(self._session.load(spec, self._session.config))

    def _on_selected(self, request: int) -> None:
        for panel in (self.wall, self.table, self.transcript):
            panel.select(request if request >= 0 else None)

    def _on_opened(self, request: int) -> None:
        self._on_selected(request)
        self.docks["detail"].show()
        self.tabs.setCurrentWidget(self.transcript)

    def _on_follow_up(self, request: int) -> None:
        self._on_opened(request)
        self.transcript.ask()

    def _on_created(self, request: int) -> None:
        self._awaited = request
        self._on_records()

    def _on_records(self) -> None:
        if self._awaited in self._bridge.requests:
            request, self._awaited = self._awaited, -1
            self._on_opened(request)

    def _on_stop_asked(self, request: int) -> None:
        self._session.stop([request])
