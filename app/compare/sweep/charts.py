"""A sweep's charts: throughput and latency against batch size, and what throughput costs in latency."""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

import numpy as np
from PySide6.QtCore import QLineF, QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import QPainter, QPen

from app.language import tr
from app.plot.marks import draw_mark, lane_color
from app.plot.plot import Plot, draw_line
from app.plot.scales import axis_words, nice_top, tick_words
from app.ui.layout.side_by_side import SideBySide
from app.ui.look import theme
from app.words import duration, number

# where words may stand beside their point, in gaps to the right and down
NEAR = ((-1, -0.5), (1, 0.5), (0, -1), (1, 0), (0, 1), (-1, 0), (1, -0.5), (-1, 0.5))
FAR = ((0, -2), (0, 2), (2, 2), (-2, -2))


@dataclass(frozen=True, slots=True)
class SweptPoint:
    """One setting of one mode. `size` is a batch size (or a rate); `throughput` in tokens a second; `average_latency`,
    total time ÷ tokens, and `p99` in seconds. `knee`: from here on more batching pays less."""

    mode: str
    size: float
    throughput: float
    average_latency: float
    p99: float
    knee: bool = False
    recommended: bool = False

    @property
    def words(self) -> str:
        """What is said beside its ring."""
        if self.recommended:
            return tr("recommended, knee") if self.knee else tr("recommended")
        return tr("knee") if self.knee else ""


Spot = tuple[SweptPoint, QPointF]
LATENCY = tr("p99 latency")


class SweepPlot(Plot):
    """Points of several modes, each mode a line with its mark."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.modes: dict[str, list[SweptPoint]] = {}  # by size
        self.by_rate, self.latency = False, LATENCY
        self.spots: list[Spot] = []  # where the points were drawn last
        self.said: list[tuple[str, QRectF]] = []  # what was written beside them, and where

    def show_points(self, points: Sequence[SweptPoint]) -> None:
        self.modes = {}
        for point in points:
            self.modes.setdefault(point.mode, []).append(point)
        for own in self.modes.values():
            own.sort(key=attrgetter("size"))
        self.setAccessibleDescription("; ".join(self.lines()))
        self.update()

    @property
    def points(self) -> list[SweptPoint]:
        return [point for own in self.modes.values() for point in own]

    def lines(self) -> list[str]:
        """A line a point, in words."""
        return [self._line(point) for point in self.points]

    def _line(self, point: SweptPoint) -> str:
        figures = tr(
            "{rate} tok/s, {average} a token, p99 {p99}",
            rate=number(point.throughput),
            average=duration(point.average_latency),
            p99=duration(point.p99),
        )
        return f"{point.mode} {point.size:g}: " + " · ".join(filter(None, (figures, point.words)))

    def tooltip(self) -> str:
        return "\n".join((self.formula(), *self.lines()))

    @abstractmethod
    def formula(self) -> str:
        """What is drawn against what."""

    def legend(self, painter: QPainter, area: QRectF) -> float:
        """The modes' marks and names in a row, as many as fit; returns what is below them."""
        ink, px = self.small, theme.px
        x, size = area.left(), float(px(7))
        baseline = area.top() + ink.ascent
        for i, mode in enumerate(self.modes):
            width = size + px(6) + ink.width(mode)
            if x > area.left() and x + width > area.right():
                x, baseline = area.left(), baseline + ink.height + px(2)
            draw_mark(painter, i, x + size / 2 + 1, baseline - ink.cap / 2, size)
            left = x + size + px(6)
            ink.say(painter, left, baseline, ink.cut(mode, area.right() - left), theme.current().text)
            x += width + px(14)
        return baseline + ink.descent + px(8)

    def curves(
        self, painter: QPainter, plot: QRectF, across: Callable[[SweptPoint], float], up: Callable[[SweptPoint], float]
    ) -> list[Spot]:
        """Each mode's line and its marks; returns where the points are. `across` and `up` are shares of the plot."""
        spots: list[Spot] = []
        for i, own in enumerate(self.modes.values()):
            places = [
                QPointF(plot.left() + across(p) * plot.width(), plot.bottom() - up(p) * plot.height()) for p in own
            ]
            x, y = (np.array([get(place) for place in places]) for get in (QPointF.x, QPointF.y))
            draw_line(painter, lane_color(i), x, y)
            for place in places:
                draw_mark(painter, i, place.x(), place.y(), theme.px(7))
            spots += zip(own, places)
        return spots

    def mark(self, painter: QPainter, spots: list[Spot], bounds: QRectF, sizes: bool) -> None:
        """Rings around the points that have a name, and words where there is room: names first, then sizes."""
        self.spots, self.said = spots, []
        taken = [self.ring(painter, point, place) for point, place in spots if point.words]
        taken += [_around(place, theme.px(4)) for _, place in spots]
        for (one, begin), (other, end) in pairwise(spots):
            if one.mode == other.mode:
                steps = max(1, int(QLineF(begin, end).length() / theme.px(5)))
                taken += [_around(begin + (end - begin) * (i / steps), 1) for i in range(steps)]
        for point, place in sorted(spots, key=lambda spot: not spot[0].words):
            words = f"{point.size:g} {point.words}".rstrip() if sizes else point.words
            box = self._free(words, place, taken, bounds, far=bool(point.words)) if words else None
            if box is not None:
                color = theme.current().text if point.words else lane_color([*self.modes].index(point.mode))
                self.tiny.say(painter, box.left(), box.top() + self.tiny.ascent, words, color)
                taken.append(box)
                self.said.append((f"{point.mode}: {words}", box))

    def ring(self, painter: QPainter, point: SweptPoint, place: QPointF) -> QRectF:
        """A ring around a point; returns what it covers."""
        t, radius = theme.current(), theme.px(15) / 2
        painter.setPen(QPen(t.accent if point.recommended else t.text, max(1.0, theme.zoom() * 1.25)))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawEllipse(place, radius, radius)
        return _around(place, radius)

    def _free(self, words: str, place: QPointF, taken: Sequence[QRectF], bounds: QRectF, far: bool) -> QRectF | None:
        """Where beside a point words lie on nothing else; None where there is no room."""
        size = QSizeF(self.tiny.width(words), math.ceil(self.tiny.height))
        gap = theme.px(9)
        for x, y in (*NEAR, *(FAR if far else ())):
            left = place.x() + x * gap - _before(x) * size.width()
            top = place.y() + y * gap - _before(y) * size.height()
            box = QRectF(QPointF(left, top), size)
            if bounds.contains(box) and not any(box.intersects(other) for other in taken):
                return box
        return None


class SizePlot(SweepPlot):
    """Throughput above, average latency below, over the same sizes; equal distances double the size."""

    title = tr("Throughput and latency by batch size")

    def formula(self) -> str:
        if self.by_rate:
            return tr("output tokens ÷ wall time, and average latency = total time ÷ tokens, against request rate")
        return tr("output tokens ÷ wall time, and average latency = total time ÷ tokens, against batch size")

    def draw(self, painter: QPainter, area: QRectF) -> None:
        if not self.points:
            return
        top = self.legend(painter, area)
        px = theme.px
        sides = (("throughput", tr("throughput, tok/s")), ("average_latency", tr("average latency a token")))
        tops = [nice_top(1.02 * max(getattr(point, name) for point in self.points)) for name, _ in sides]
        words = [
            [tick_words(tops[0] * share) for share in (0, 0.5, 1)],
            [axis_words(tops[1] * share) for share in (0, 0.5, 1)],
        ]
        left = area.left() + px(6) + max(self.tiny.width(word) for each in words for word in each)
        caption = math.ceil(self.tiny.height)
        height = (area.bottom() - top - px(14)) / 2 - caption
        for i, (name, said) in enumerate(sides):
            plot = QRectF(left, top + caption + i * (height + caption + px(14)), area.right() - left, max(1.0, height))
            baseline = plot.top() - caption + self.tiny.ascent - px(2)
            self.tiny.say(painter, left, baseline, said, theme.current().secondary)
            self.side(painter, plot, words[i])
            inner = plot.adjusted(px(8), px(4), -px(8), 0)
            self.foot(painter, plot.left(), plot.right(), plot.bottom(), self._ticks(plot, inner) if i else [])
            self._pane(painter, plot, inner, name, tops[i], marked=i == 0)

    def _share(self, size: float) -> float:
        first, last = (math.log2(f(p.size for p in self.points)) for f in (min, max))
        return 0.5 if last == first else (math.log2(size) - first) / (last - first)

    def _ticks(self, plot: QRectF, inner: QRectF) -> list[tuple[float, str]]:
        """The sizes, as many as there is room for: each, or every second, fourth …"""
        sizes = sorted({p.size for p in self.points})
        room = max(2, int(inner.width() / (theme.px(12) + max(self.tiny.width(f"{s:g}") for s in sizes))))
        every = -(-len(sizes) // room)
        return [
            ((inner.left() + self._share(s) * inner.width() - plot.left()) / plot.width(), f"{s:g}")
            for s in sizes[::every]
        ]

    def _pane(self, painter: QPainter, plot: QRectF, inner: QRectF, name: str, top: float, *, marked: bool) -> None:
        spots = self.curves(painter, inner, lambda p: self._share(p.size), lambda p: getattr(p, name) / top)
        if marked:
            self.mark(painter, spots, plot, sizes=False)
        else:
            for point, place in spots:
                if point.words:
                    self.ring(painter, point, place)


class CostPlot(SweepPlot):
    """Throughput against latency: up is quicker in all, left is quicker for each."""

    title = tr("Throughput against latency")

    def formula(self) -> str:
        if self.by_rate:
            return tr(
                "output tokens ÷ wall time against {latency}; the numbers are request rates", latency=self.latency
            )
        return tr("output tokens ÷ wall time against {latency}; the numbers are batch sizes", latency=self.latency)

    def draw(self, painter: QPainter, area: QRectF) -> None:
        if not self.points:
            return
        top, px = self.legend(painter, area), theme.px
        caption = math.ceil(self.tiny.height)
        highest = nice_top(1.02 * max(point.throughput for point in self.points))
        longest = nice_top(1.02 * max(point.p99 for point in self.points))
        ticks = [tick_words(highest * share) for share in (0, 0.5, 1)]
        left = area.left() + px(6) + max(self.tiny.width(word) for word in ticks)
        plot = QRectF(left, top + caption, area.right() - left, max(1.0, area.bottom() - top - caption))
        said = tr("tok/s against {latency}", latency=self.latency)
        self.tiny.say(painter, left, top + self.tiny.ascent - px(2), said, theme.current().secondary)
        self.side(painter, plot, ticks)
        words = [(share, axis_words(longest * share)) for share in (0.0, 0.5, 1.0)]
        self.foot(painter, plot.left(), plot.right(), plot.bottom(), words)
        spots = self.curves(painter, plot, lambda p: p.p99 / longest, lambda p: p.throughput / highest)
        self.mark(painter, spots, plot, sizes=True)


class SweepChart(SideBySide):
    """Both plots side by side."""

    def __init__(self) -> None:
        super().__init__("sweep_chart")
        self.sizes, self.cost = SizePlot("sweep_sizes"), CostPlot("sweep_cost")
        self.add(self.sizes, self.cost)

    def show_points(self, points: Sequence[SweptPoint], *, by_rate: bool = False, latency: str = LATENCY) -> None:
        """Draws these and no others. Modes have their colours in order of first appearance; `by_rate`: request rates
        were swept, not batch sizes; `latency` is what `p99` is a percentile of."""
        for plot in (self.sizes, self.cost):
            plot.by_rate, plot.latency = by_rate, latency
            plot.show_points(points)


def _before(way: float) -> float:
    """The share of a text that lies before a point, from which it stands some way off."""
    return float(way < 0) if way else 0.5


def _around(place: QPointF, radius: float) -> QRectF:
    return QRectF(place.x() - radius, place.y() - radius, 2 * radius, 2 * radius)
