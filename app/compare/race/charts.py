"""The charts of a race: every lane's tokens, waits, gaps and queue, one over the other on the same seconds."""

from collections.abc import Iterable

from PySide6.QtCore import QTimer
from PySide6.QtGui import QHideEvent, QShowEvent

from app.compare.lane_names import short_names
from app.compare.race.chart import RaceChart, RaceLane
from app.compare.race.curves import QUEUE, TOKENS, CurveChart
from app.compare.race.series import LaneSeries
from app.compare.race.strips import ITL, TTFT, StripChart
from app.plot.scales import nice_end
from app.ui.layout.side_by_side import SideBySide
from engine.trace import Record

TICK_MS = 33  # one chart a tick: each of four is drawn eight times a second


class RaceCharts(SideBySide):
    """The four charts side by side."""

    def __init__(self) -> None:
        super().__init__("race_charts")
        self._lanes: list[RaceLane] = []
        self.tokens = CurveChart("race_tokens", TOKENS, self._lanes)
        self.ttft = StripChart("race_ttft", TTFT, self._lanes)
        self.itl = StripChart("race_itl", ITL, self._lanes, logarithmic=True)
        self.queue = CurveChart("race_queue", QUEUE, self._lanes)
        self.charts: tuple[RaceChart, ...] = (self.tokens, self.ttft, self.itl, self.queue)
        self.add(*self.charts)
        self._stale: set[RaceChart] = set()
        self._timer = QTimer(self, interval=TICK_MS)
        self._timer.timeout.connect(self._on_tick)
        self._turn = 0

    def add_lane(self, name: str, colour_index: int | None = None) -> int:
        """Adds a lane with its own colour and returns its number, from 0 on."""
        index = len(self._lanes)
        self._lanes.append(RaceLane(name, index if colour_index is None else colour_index))
        for lane, short in zip(self._lanes, short_names([lane.name for lane in self._lanes])):
            lane.short = short
        self._changed()
        return index

    def feed(self, lane: int, records: Iterable[Record], origin: float = 0.0) -> None:
        """Takes the lane's next records. `origin`: the time of its trace at which it began."""
        self._lanes[lane].series.feed(records, origin)
        self._changed()

    def set_cursor(self, lane: int, seconds: float | None) -> None:
        """Shows the lane only up to this second; None: all of it."""
        if self._lanes[lane].cursor != seconds:
            self._lanes[lane].cursor = seconds
            self._changed()

    def reset(self, lane: int) -> None:
        """Forgets what the lane did: another run of it begins."""
        self._lanes[lane].series, self._lanes[lane].cursor = LaneSeries(), None
        self._changed()

    def clear(self) -> None:
        """Forgets all lanes."""
        self._lanes.clear()
        self._changed()

    @property
    def extent(self) -> float:
        """Seconds of the longest lane so far."""
        return max((lane.series.now for lane in self._lanes), default=0.0)

    def refresh(self) -> None:
        """Draws every chart that is not up to date, now."""
        for chart in self.charts:
            self._draw(chart)

    def _changed(self) -> None:
        self._stale.update(self.charts)
        if self.isVisible() and not self._timer.isActive():
            self._timer.start()

    def _on_tick(self) -> None:
        """One chart a tick, in turn."""
        for _ in self.charts:
            self._turn = (self._turn + 1) % len(self.charts)
            if self.charts[self._turn] in self._stale:
                self._draw(self.charts[self._turn])
                break
        if not self._stale:
            self._timer.stop()

    def _draw(self, chart: RaceChart) -> None:
        if chart in self._stale:
            self._stale.discard(chart)
            chart.span = nice_end(self.extent)
            chart.describe()
            chart.update()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._stale:
            self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        self._timer.stop()
        super().hideEvent(event)
