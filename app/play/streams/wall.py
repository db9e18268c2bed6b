"""The wall of streams: a line of counts, and a card for every request of the trace on show."""

from PySide6.QtCore import QRect, Qt, QTimer
from PySide6.QtGui import QAction, QActionGroup, QPainter, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from app import storage
from app.language import tr
from app.play.streams.cards import StreamCards
from app.play.streams.density import TITLES, Density
from app.playback.bridge import Bridge
from app.playback.player import touched_by
from app.ui.labels import label
from app.ui.layout.boxes import column, named, row
from app.ui.layout.zoomed import zoomed
from app.ui.line import Parts
from app.ui.look import theme
from app.ui.painted import Painted
from app.words import duration, number, sentence
from engine.trace import Record

FIGURES_MS = 100
LAYOUT = "play/stream layout"
RATES = tr("Output tokens of the last second, or of the last run over its whole time · frames the window painted")


class StreamWall(Painted):
    """Every stream of the bridge's trace as a card that grows, or as it stood at the scope's moment."""

    def __init__(self, bridge: Bridge, parent: QWidget | None = None) -> None:
        super().__init__("stream_wall", parent=parent)
        self.bridge = bridge
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)  # else all that is behind it paints for each frame
        self._moved = False  # while it could not be seen
        self.counts = Parts("stream_counts")
        self.figures = Parts("stream_figures")
        self.figures.setAlignment(Qt.AlignmentFlag.AlignRight)
        self.newest = QToolButton()
        self.newest.setText(tr("↓ newest"))
        self.newest.setToolTip(tr("Go to the newest stream and follow it"))
        self.newest.setCursor(Qt.CursorShape.PointingHandCursor)
        self.newest.setObjectName("follow_newest")
        self.newest.hide()
        self.figures.setToolTip(RATES)
        self.cards = StreamCards(bridge)
        self.layout_button = self._layout_button()
        ends = self.newest, self.figures, self.layout_button
        head = zoomed(row(label(tr("Streams"), "brand"), (self.counts, 1), *ends), (2, 2, 2, 2), 12)
        self.setLayout(zoomed(column(head, (self.cards, 1)), spacing=6))
        self._timer = QTimer(self, interval=FIGURES_MS)
        self._timer.timeout.connect(self._tell_figures)
        self._timer.start()
        self.newest.clicked.connect(self.cards.follow)
        self.cards.following_changed.connect(lambda following: self.newest.setVisible(not following))
        bridge.records_arrived.connect(self._on_records)
        bridge.trace_reset.connect(self._on_reset)
        bridge.scope.moved.connect(self._on_moved)
        bridge.scope.selected.connect(self.cards.select)
        self._on_reset()
        self.restyle()

    def _layout_button(self) -> QToolButton:
        """How close the cards stand; remembered."""
        tip = tr("How close the streams stand")
        button = named(QToolButton(), "stream_layout", said=tr("Layout of the streams"), tip=tip)
        button.setText("⋯")
        button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        menu, group = QMenu(button), QActionGroup(button)
        kept = str(storage.settings().value(LAYOUT, ""))
        chosen = Density(kept) if kept in list(Density) else Density.AUTO
        for density in Density:
            action = QAction(sentence(TITLES[density]), group, checkable=True, checked=density is chosen)
            action.triggered.connect(lambda checked=False, density=density: self.set_density(density))
            menu.addAction(action)
        button.setMenu(menu)
        self.cards.set_density(chosen)
        return button

    def set_density(self, density: Density) -> None:
        """How close the cards stand; remembered."""
        storage.settings().setValue(LAYOUT, str(density))
        self.cards.set_density(density)

    def _on_reset(self, trace: object = None) -> None:
        self.cards.clear()
        self._show_moment()

    def _on_records(self, records: list[Record]) -> None:
        if not self.bridge.scope.following:
            return
        touched = touched_by(records)
        self.cards.show_first(self.bridge.tally.ids, len(self.bridge.tally.ids))
        if touched:
            self.cards.changed(touched, self.bridge.tally.at().newest)
        self._tell_counts()

    def _on_moved(self) -> None:
        if self.isVisible():
            self._show_moment()
        else:
            self._moved = True

    def _show_moment(self) -> None:
        """The cards and counts as they stood at the scope's moment."""
        self._moved = False
        tally = self.bridge.tally.at(self.bridge.scope.moment)
        self.cards.show_first(self.bridge.tally.ids, tally.requests)
        self.cards.moved(tally.newest)
        self._tell_counts()
        self._tell_figures()

    def _tell_counts(self) -> None:
        scope = self.bridge.scope
        tally = self.bridge.tally.at(scope.moment)
        parts = [tr("{count:,} failed", count=tally.failed)] if tally.failed else []  # what has no room goes at the end
        parts += [
            tr("{count:,} running", count=tally.running),
            tr("{count:,} waiting", count=tally.waiting),
            tr("{count:,} done", count=tally.finished),
        ]
        parts += [tr("{count:,} cancelled", count=tally.cancelled)] if tally.cancelled else []
        then = [] if scope.following else [tr("at {time}", time=duration(max(0.0, scope.moment - scope.origin)))]
        told = [*then, *parts] if tally.requests or then else []
        none = tr("{count:,} running", count=0), tr("{count:,} waiting", count=0), tr("{count:,} done", count=0)
        self.counts.say_parts(told, [part for part in told if part not in none])

    def _tell_figures(self) -> None:
        rate, frames = self.bridge.live_rate, self.bridge.frames_per_second
        run = self.bridge.over
        if run is not None:
            self.figures.say_parts([tr("{rate} tok/s", rate=number(run.output_throughput)), tr("last run")])
            return
        live = self.cards.ids and self.bridge.scope.following
        self.figures.say_parts(
            [*([tr("{rate} tok/s", rate=number(rate))] if live else []), tr("{frames:.0f} fps", frames=frames)]
        )

    def restyle(self) -> None:
        super().restyle()
        self._share_head()
        self.cards.refresh()

    def _share_head(self) -> None:
        """The counts come first: the figures have what is left, or nothing."""
        self.figures.set_width(min(theme.px(164), max(1, self.width() - theme.px(250))))

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._share_head()
        super().resizeEvent(event)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._moved:
            self._show_moment()

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        painter.fillRect(dirty, theme.current().window)
