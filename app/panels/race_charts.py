"""The charts of a race: every lane's tokens, waits, gaps and queue, one over the other on the same seconds."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt, QTimer
from PySide6.QtGui import (
    QHideEvent,
    QPainter,
    QPen,
    QPolygonF,
    QShowEvent,
)
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app import theme
from app.column import Array, Column
from app.panels.lane_colors import lane_color
from app.panels.plot import Plot, apart, draw_line, draw_mark
from app.panels.race_series import LaneSeries, jitter, ratio_axis, round_ratio, stairs, thinned
from app.plot.scales import axis_words, nice_end, nice_top, tick_words
from app.words import duration, number
from engine import Record

TICK_MS = 33  # one chart a tick: each of four is drawn eight times a second
MARKS_A_LINE = 4
DOT_ALPHA = 0.7


@dataclass(slots=True)
class RaceLane:
    """A lane as the charts know it: its name, its colour's index, and what it did up to `cursor` (None: all)."""

    name: str
    index: int
    series: LaneSeries = field(default_factory=LaneSeries)
    cursor: float | None = None

    def end(self, span: float) -> float:
        """Where its lines end: at its cursor, else where it is; a lane that is over stays level to the end."""
        if self.cursor is not None:
            return min(self.cursor, span)
        return span if self.series.over else self.series.now

    def seen(self, times: Column, values: Column) -> Array:
        return values.values[: self.series.count(times, self.cursor)]


class RaceChart(Plot):
    """One chart of all lanes."""

    formula = ""

    def __init__(self, name: str, lanes: Sequence[RaceLane]) -> None:
        super().__init__(name)
        self.lanes = lanes
        self.span = 10.0

    def draw(self, painter: QPainter, area: QRectF) -> None:
        if self.lanes:
            self.draw_lanes(painter, area)

    @abstractmethod
    def draw_lanes(self, painter: QPainter, area: QRectF) -> None:
        """Draws the lanes, of which there is at least one."""

    def tooltip(self) -> str:
        """The formula, and each lane's figures."""
        return "\n".join((self.formula, *(f"{lane.name}: {self.figure(lane)}" for lane in self.lanes)))

    @abstractmethod
    def figure(self, lane: RaceLane) -> str:
        """A lane's latest value in words; "–" when there is none."""

    def describe(self) -> None:
        """Tells screen readers the figures."""
        self.setAccessibleDescription(", ".join(f"{lane.name} {self.figure(lane)}" for lane in self.lanes))


class CurveChart(RaceChart):
    """Lines over time, each with its latest value at the right edge."""

    smooth = True

    @abstractmethod
    def columns(self, lane: RaceLane) -> list[Column]:
        """The lane's lines, a value a step; the first is the strong one."""

    def draw_lanes(self, painter: QPainter, area: QRectF) -> None:
        px, ink = theme.px, self.tiny
        top = self._top()
        ticks = [tick_words(top * share) for share in (0.0, 0.5, 1.0)]
        labels = [self.figure(lane) for lane in self.lanes]
        left = area.left() + max(ink.width(word) for word in ticks) + px(6)
        right = area.right() - max(ink.width(word) for word in labels) - px(6)
        plot = QRectF(left, area.top() + px(4), max(1.0, right - left), area.height() - px(4))
        self.side(painter, plot, ticks)
        self.foot(painter, left, right, plot.bottom(), _span_ticks(self.span))
        for lane in self.lanes:
            for i, column in reversed(list(enumerate(self.columns(lane)))):
                self._line(painter, plot, lane, column, top, 0.45 if i else 1.0)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for i, lane in enumerate(self.lanes):
            self._marks(painter, plot, lane, i, top)
        self._labels(painter, plot, labels, top)

    def _top(self) -> float:
        """The end of the vertical axis: high enough for whatever the cursors still hide."""
        columns = [column for lane in self.lanes for column in self.columns(lane)]
        return nice_top(1.02 * max((float(column.values.max()) for column in columns if column.count), default=0.0))

    def _line(
        self, painter: QPainter, plot: QRectF, lane: RaceLane, column: Column, top: float, strength: float
    ) -> None:  # fmt: skip
        end = lane.end(self.span)
        line = lane.seen(lane.series.step_time, column)
        times = lane.series.step_time.values[: len(line)]
        x, y = stairs(times, line, max(1, int(plot.width() * end / self.span)), end)
        if not len(x):
            return
        x, y = plot.left() + x * (plot.width() / self.span), plot.bottom() - y * (plot.height() / top)
        color = theme.faded(lane_color(lane.index), strength)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, self.smooth)
        draw_line(painter, theme.over(color, theme.current().panel), x, y)

    def _marks(self, painter: QPainter, plot: QRectF, lane: RaceLane, place: int, top: float) -> None:
        """A few of the lane's marks along its line, beside those of the other lanes."""
        end = lane.end(self.span)
        line = lane.seen(lane.series.step_time, self.columns(lane)[0])
        if not len(line):
            return
        first = (place + 0.5) / len(self.lanes)
        for time in ((first + i) * self.span / MARKS_A_LINE for i in range(MARKS_A_LINE)):
            step = int(np.searchsorted(lane.series.step_time.values[: len(line)], time, "right"))
            if time <= end and step:
                x = plot.left() + time / self.span * plot.width()
                draw_mark(painter, lane.index, x, plot.bottom() - line[step - 1] / top * plot.height(), theme.px(6))

    def _labels(self, painter: QPainter, plot: QRectF, labels: Sequence[str], top: float) -> None:
        """The latest values at the right edge, moved apart where they would lie on each other."""
        ink = self.tiny
        painter.setFont(ink.font)
        cap = ink.metrics.capHeight()
        latest = [lane.seen(lane.series.step_time, self.columns(lane)[0])[-1:] for lane in self.lanes]
        wanted = [plot.bottom() - float(v.sum()) / top * plot.height() + cap / 2 for v in latest]
        places = apart(wanted, cap + theme.px(5), plot.top() + cap, plot.bottom())
        for lane, y, words in zip(self.lanes, places, labels):
            painter.setPen(lane_color(lane.index))
            ink.draw(painter, plot.right() + theme.px(6), y, words)


class TokensChart(CurveChart):
    title = "Tokens over time"
    formula = "output tokens so far; a level stretch is a wait"

    def columns(self, lane: RaceLane) -> list[Column]:
        return [lane.series.tokens]

    def figure(self, lane: RaceLane) -> str:
        seen = lane.seen(lane.series.step_time, lane.series.tokens)
        return number(float(seen[-1])) if len(seen) else "–"


class QueueChart(CurveChart):
    title = "Running · waiting"
    smooth = False  # stairs are sharper so
    formula = "requests that hold a slot · requests that wait for one (fainter), after each step"

    def columns(self, lane: RaceLane) -> list[Column]:
        return [lane.series.running, lane.series.waiting]

    def figure(self, lane: RaceLane) -> str:
        running, waiting = (lane.seen(lane.series.step_time, column) for column in self.columns(lane))
        return f"{running[-1]:,} · {waiting[-1]:,}" if len(running) else "–"


class StripChart(RaceChart):
    """A strip of dots a lane, one dot a value, with ticks at the median and the 95th percentile."""

    def __init__(self, name: str, lanes: Sequence[RaceLane], *, logarithmic: bool = False) -> None:
        self.logarithmic = logarithmic
        self._middles: WeakKeyDictionary[LaneSeries, tuple[int, Array]] = WeakKeyDictionary()
        super().__init__(name, lanes)

    def set_logarithmic(self, on: bool) -> None:
        """Whether equal distances are equal ratios."""
        self.logarithmic = on
        self.update()

    @abstractmethod
    def columns(self, lane: RaceLane) -> tuple[Column, Column]:
        """When the lane's values came, and the values, seconds."""

    def values(self, lane: RaceLane) -> Array:
        return lane.seen(*self.columns(lane))

    def percentiles(self, lane: RaceLane) -> Array:
        """p50 and p95 of the lane's values, of which there is at least one."""
        values = self.values(lane)
        count, known = self._middles.get(lane.series, (0, values))
        if count != len(values):
            known = np.percentile(values, (50, 95))
            self._middles[lane.series] = len(values), known
        return known

    def figure(self, lane: RaceLane) -> str:
        if not len(self.values(lane)):
            return "–"
        p50, p95 = self.percentiles(lane)
        return f"p50 {duration(float(p50))} · p95 {duration(float(p95))}"

    def axis(self) -> tuple[float, float]:
        """The first and last second of the axis: wide enough for whatever the cursors still hide."""
        values = [v for v in (self.columns(lane)[1].values for lane in self.lanes) if len(v)]
        highest = max((float(v.max()) for v in values), default=1.0)
        if not self.logarithmic:
            return 0.0, nice_top(highest * 1.02)
        return ratio_axis(min((float(v.min()) for v in values), default=0.01), highest)

    def draw_lanes(self, painter: QPainter, area: QRectF) -> None:
        values = [self.values(lane) for lane in self.lanes]
        axis = self.axis()
        plot = QRectF(area.left(), area.top(), area.width(), area.height())
        self.foot(painter, plot.left(), plot.right(), plot.bottom(), self._ticks(axis))
        head = math.ceil(self.small.height)
        each = min((plot.height() - theme.px(4)) / len(self.lanes), float(theme.px(72)))
        band = max(theme.px(6), each - head - theme.px(6))
        for i, (lane, own) in enumerate(zip(self.lanes, values)):
            y = plot.top() + i * each
            self._strip_head(painter, lane, y + math.ceil(self.small.ascent), plot.width())
            self._strip(painter, lane, own, QRectF(plot.left(), y + head + theme.px(1), plot.width(), band), axis)

    def _ticks(self, axis: tuple[float, float]) -> list[tuple[float, str]]:
        begin, end = axis
        middle = round_ratio(math.sqrt(begin * end)) if self.logarithmic else (begin + end) / 2
        values = [begin, middle, end] if begin < middle < end else [begin, end]
        return [(float(self._shares(np.array(value), axis)), axis_words(value)) for value in values]

    def _strip_head(self, painter: QPainter, lane: RaceLane, baseline: float, width: float) -> None:
        t, ink = theme.current(), self.small
        figure = self.figure(lane)
        taken = self.tiny.width(figure)
        if taken + theme.px(60) > width:
            figure, taken = "", 0.0
        painter.setFont(self.tiny.font)
        painter.setPen(t.secondary)
        self.tiny.draw(painter, width - taken, baseline, figure)
        mark = theme.px(7)
        draw_mark(painter, lane.index, mark / 2 + 1, baseline - ink.metrics.capHeight() / 2, mark)
        painter.setFont(ink.font)
        painter.setPen(t.text)
        left = mark + theme.px(6)
        ink.draw(
            painter,
            left,
            baseline,
            ink.cut(lane.name, width - taken - left - theme.px(12), Qt.TextElideMode.ElideMiddle),
        )

    def _strip(
        self, painter: QPainter, lane: RaceLane, values: Array, band: QRectF, axis: tuple[float, float]
    ) -> None:  # fmt: skip
        if not len(values):
            return
        t, px = theme.current(), theme.px
        radius = px(5) / 2
        places = thinned(values)
        x = band.left() + radius + self._shares(values[places], axis) * (band.width() - 2 * radius)
        y = band.top() + radius + jitter(places) * max(0.0, band.height() - 2 * radius)
        pen = QPen(theme.faded(lane_color(lane.index), DOT_ALPHA), 2 * radius)
        pen.setCapStyle(Qt.PenCapStyle.RoundCap)
        painter.setPen(pen)
        painter.drawPoints(QPolygonF([QPointF(*point) for point in zip(x.tolist(), y.tolist())]))
        painter.setPen(Qt.PenStyle.NoPen)
        for share, height, wide in zip(self._shares(self.percentiles(lane), axis), (1.0, 0.6), (px(2), px(1))):
            at = round(band.left() + radius + float(share) * (band.width() - 2 * radius) - wide / 2)
            tall = band.height() * height
            tick = QRectF(at, band.center().y() - tall / 2, wide, tall)
            painter.fillRect(tick, t.text)

    def _shares(self, values: Array, axis: tuple[float, float]) -> Array:
        begin, end = axis
        if self.logarithmic:
            values = np.log(np.maximum(values, begin) / begin) / math.log(end / begin)
        else:
            values = values / end
        return np.clip(values, 0.0, 1.0)


class TtftChart(StripChart):
    title = "Time to first token"
    formula = "TTFT = first token − submit, a dot a request; ticks at p50 and, shorter, p95"

    def columns(self, lane: RaceLane) -> tuple[Column, Column]:
        return lane.series.ttft_time, lane.series.ttft


class ItlChart(StripChart):
    title = "Inter-token latency"
    formula = "ITL = gaps between emissions, pooled; at most 600 dots a lane, ticks at p50 and, shorter, p95 of all"

    def columns(self, lane: RaceLane) -> tuple[Column, Column]:
        return lane.series.itl_time, lane.series.itl


class RaceCharts(QWidget):
    """The four charts side by side, each in its panel. `row` has room for more panels at its end."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("race_charts")
        self._lanes: list[RaceLane] = []
        self.tokens = TokensChart("race_tokens", self._lanes)
        self.ttft = TtftChart("race_ttft", self._lanes)
        self.itl = ItlChart("race_itl", self._lanes, logarithmic=True)
        self.queue = QueueChart("race_queue", self._lanes)
        self.charts: tuple[RaceChart, ...] = (self.tokens, self.ttft, self.itl, self.queue)
        self.row = QHBoxLayout(self)
        self.row.setContentsMargins(0, 0, 0, 0)
        self._frames: list[QHBoxLayout | QVBoxLayout] = []
        for chart in self.charts:
            frame = QFrame()
            frame.setProperty("role", "panel")
            inner = QVBoxLayout(frame)
            inner.addWidget(chart)
            self._frames.append(inner)
            self.row.addWidget(frame, 1)
        self._stale: set[RaceChart] = set()
        self._timer = QTimer(self)
        self._timer.setInterval(TICK_MS)
        self._timer.timeout.connect(self._on_tick)
        self._turn = 0
        theme.changes.theme_changed.connect(self.restyle)
        self.restyle()

    def add_lane(self, name: str, colour_index: int | None = None) -> int:
        """Adds a lane with its own colour and returns its number, from 0 on."""
        index = len(self._lanes)
        self._lanes.append(RaceLane(name, index if colour_index is None else colour_index))
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

    def restyle(self) -> None:
        """Takes the theme's colours, fonts and lengths anew."""
        self.row.setSpacing(theme.px(8))
        pad = theme.px(12)
        for inner in self._frames:
            inner.setContentsMargins(pad, pad, pad, pad - theme.px(2))
        for chart in self.charts:
            chart.restyle()

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


def _span_ticks(span: float) -> list[tuple[float, str]]:
    return [(share, f"{span * share:,.3g} s") for share in (0.0, 0.5, 1.0)]
