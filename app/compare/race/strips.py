"""A race's latencies as strips of dots, a strip a lane."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen, QPolygonF

from app.compare.lane_names import fitting
from app.compare.race.chart import RaceChart, RaceLane
from app.compare.race.series import LaneSeries, jitter, ratio_axis, round_ratio, thinned
from app.language import tr
from app.plot.marks import draw_mark, lane_color
from app.plot.scales import axis_words, nice_top
from app.ui.look import theme
from app.words import duration
from engine.trace import Array, Column

DOT_ALPHA = 0.7
GAP, LEAST_NAME = 12, 60  # pixels of the design: between a lane's name and its figures; that a name has at least


@dataclass(frozen=True, slots=True)
class Dots:
    """What is drawn of each lane: when its values came, and the values, seconds."""

    title: str
    formula: str
    columns: Callable[[LaneSeries], tuple[Column, Column]]


TTFT = Dots(
    tr("Time to first token"),
    tr("TTFT = first token − submit, a dot a request; ticks at p50 and, shorter, p95"),
    lambda series: (series.ttft_time, series.ttft),
)
ITL = Dots(
    tr("Inter-token latency"),
    tr("ITL = gaps between emissions, pooled; at most 600 dots a lane, ticks at p50 and, shorter, p95 of all"),
    lambda series: (series.itl_time, series.itl),
)


class StripChart(RaceChart):
    """A strip of dots a lane, one dot a value, with ticks at the median and the 95th percentile. `logarithmic`: equal
    distances are equal ratios."""

    def __init__(self, name: str, dots: Dots, lanes: Sequence[RaceLane], *, logarithmic: bool = False) -> None:
        super().__init__(name, dots.title, dots.formula, lanes)
        self._dots, self.logarithmic = dots, logarithmic
        self._middles: WeakKeyDictionary[LaneSeries, tuple[int, Array]] = WeakKeyDictionary()

    def values(self, lane: RaceLane) -> Array:
        return lane.seen(*self._dots.columns(lane.series))

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
        values = [v for v in (self._dots.columns(lane.series)[1].values for lane in self.lanes) if len(v)]
        highest = max((float(v.max()) for v in values), default=1.0)
        if not self.logarithmic:
            return 0.0, nice_top(highest * 1.02)
        return ratio_axis(min((float(v.min()) for v in values), default=0.01), highest)

    def draw(self, painter: QPainter, area: QRectF) -> None:
        if not self.lanes:
            return
        axis, px = self.axis(), theme.px
        self.foot(painter, area.left(), area.right(), area.bottom(), self._ticks(axis))
        head = math.ceil(self.small.height)
        each = min((area.height() - px(4)) / len(self.lanes), float(px(72)))
        band = max(px(6), each - head - px(6))
        for i, lane in enumerate(self.lanes):
            y = area.top() + i * each
            self._strip_head(painter, lane, y + math.ceil(self.small.ascent), area.width())
            self._strip(painter, lane, QRectF(area.left(), y + head + px(1), area.width(), band), axis)

    def _ticks(self, axis: tuple[float, float]) -> list[tuple[float, str]]:
        begin, end = axis
        middle = round_ratio(math.sqrt(begin * end)) if self.logarithmic else (begin + end) / 2
        values = [begin, middle, end] if begin < middle < end else [begin, end]
        return [(float(self._shares(np.array(value), axis)), axis_words(value)) for value in values]

    def _strip_head(self, painter: QPainter, lane: RaceLane, baseline: float, width: float) -> None:
        t, px = theme.current(), theme.px
        mark = px(7)
        left = mark + px(6)
        name, figure = self.head_words(lane, width - left)
        self.tiny.say(painter, width, baseline, figure, t.secondary, before=1.0)
        draw_mark(painter, lane.index, mark / 2 + 1, baseline - self.small.cap / 2, mark)
        self.small.say(painter, left, baseline, name, t.text)

    def head_words(self, lane: RaceLane, width: float) -> tuple[str, str]:
        """Over its strip: the lane's name, or what tells it from the others, and as much of its figures as that
        leaves room for."""
        figure = self.figure(lane)
        figures = figure, figure.partition(" · ")[0], ""
        names = (lane.name, figures[0]), *((lane.short, each) for each in figures[:2])
        for name, words in names:
            if self.small.width(name) + GAP * theme.zoom() + self.tiny.width(words) <= width:
                return name, words
        room = width - GAP * theme.zoom() - self.tiny.width(figures[1])
        words = figures[1] if room >= theme.px(LEAST_NAME) else ""
        room = room if words else width
        name = fitting(lane.short, lambda words: self.small.width(words) <= room)
        return self.small.cut(name, room, Qt.TextElideMode.ElideMiddle), words

    def _strip(self, painter: QPainter, lane: RaceLane, band: QRectF, axis: tuple[float, float]) -> None:
        values = self.values(lane)
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
