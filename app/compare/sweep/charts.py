"""A sweep's charts: throughput and latency against batch size, and what throughput costs in latency."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter

import numpy as np
from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.plot.colors import lane_color
from app.plot.plot import Plot, draw_line, draw_mark
from app.plot.scales import axis_words, nice_top, tick_words
from app.ui import theme
from app.words import duration, number


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
            return "recommended, knee" if self.knee else "recommended"
        return "knee" if self.knee else ""


class SweepPlot(Plot):
    """Points of several modes, each mode a line with its mark."""

    def __init__(self, name: str) -> None:
        self.modes: dict[str, list[SweptPoint]] = {}  # by size
        self.unit, self.latency = "batch size", "p99 latency"
        super().__init__(name)

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
        return [
            f"{p.mode} {p.size:g}: {number(p.throughput)} tok/s, {duration(p.average_latency)} a token, "
            f"p99 {duration(p.p99)}{' · ' if p.words else ''}{p.words}"
            for p in self.points
        ]

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
        painter.setFont(ink.font)
        for i, mode in enumerate(self.modes):
            width = size + px(6) + ink.width(mode)
            if x > area.left() and x + width > area.right():
                x, baseline = area.left(), baseline + ink.height + px(2)
            draw_mark(painter, i, x + size / 2 + 1, baseline - ink.metrics.capHeight() / 2, size)
            painter.setPen(theme.current().text)
            ink.draw(painter, x + size + px(6), baseline, ink.cut(mode, area.right() - x - size - px(6)))
            x += width + px(14)
        return baseline + ink.descent + px(8)

    def curve(self, painter: QPainter, index: int, places: Sequence[QPointF]) -> None:
        """A mode's line and its marks."""
        x, y = (np.array([get(place) for place in places]) for get in (QPointF.x, QPointF.y))
        draw_line(painter, lane_color(index), x, y)
        for place in places:
            draw_mark(painter, index, place.x(), place.y(), theme.px(7))

    def mark(
        self, painter: QPainter, spots: Sequence[tuple[SweptPoint, QPointF]], bounds: QRectF, *, sizes: bool
    ) -> None:  # fmt: skip
        """Rings around the points that have a name, and words where there is room: names first, then sizes."""
        taken = [self.ring(painter, point, place) for point, place in spots if point.words]
        taken += [_around(place, theme.px(4)) for _, place in spots]
        for (one, begin), (other, end) in pairwise(spots):
            if one.mode == other.mode:
                steps = max(1, int(QLineF(begin, end).length() / theme.px(5)))
                taken += [_around(begin + (end - begin) * (i / steps), 1) for i in range(steps)]
        for point, place in sorted(spots, key=lambda spot: not spot[0].words):
            words = f"{point.size:g} {point.words}".rstrip() if sizes else point.words
            if words:
                self.say(painter, point, place, words, taken, bounds)

    def ring(self, painter: QPainter, point: SweptPoint, place: QPointF) -> QRectF:
        """A ring around a point; returns what it covers."""
        t, radius = theme.current(), theme.px(15) / 2
        painter.setPen(QPen(t.accent if point.recommended else t.text, max(1.0, theme.zoom() * 1.25)))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawEllipse(place, radius, radius)
        return _around(place, radius)

    def say(
        self, painter: QPainter, point: SweptPoint, place: QPointF, words: str, taken: list[QRectF], bounds: QRectF
    ) -> bool:  # fmt: skip
        """Words beside a point, where nothing else is; False where there is no room."""
        ink = self.tiny
        width, height, gap = ink.width(words), float(math.ceil(ink.height)), theme.px(9)
        x, y = place.x(), place.y()
        near = (
            (x - gap - width, y - gap / 2 - height), (x + gap, y + gap / 2), (x - width / 2, y - gap - height),
            (x + gap, y - height / 2), (x - width / 2, y + gap), (x - gap - width, y - height / 2),
            (x + gap, y - gap / 2 - height), (x - gap - width, y + gap / 2),
        )  # fmt: skip
        far = (
            (x - width / 2, y - 2 * gap - height), (x - width / 2, y + 2 * gap), (x + 2 * gap, y + 2 * gap),
            (x - 2 * gap - width, y - 2 * gap - height),
        )  # fmt: skip
        for left, top in (*near, *(far if point.words else ())):
            box = QRectF(left, top, width, height)
            if bounds.contains(box) and not any(box.intersects(other) for other in taken):
                painter.setFont(ink.font)
                painter.setPen(theme.current().text if point.words else lane_color([*self.modes].index(point.mode)))
                ink.draw(painter, left, top + ink.ascent, words)
                taken.append(box)
                return True
        return False


class SizePlot(SweepPlot):
    """Throughput above, average latency below, over the same sizes; equal distances double the size."""

    title = "Throughput and latency by batch size"

    def formula(self) -> str:
        return f"output tokens ÷ wall time, and average latency = total time ÷ tokens, against {self.unit}"

    def draw(self, painter: QPainter, area: QRectF) -> None:
        if not self.points:
            return
        top = self.legend(painter, area)
        px = theme.px
        sides = (("throughput", "throughput, tok/s"), ("average_latency", "average latency a token"))
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
            painter.setFont(self.tiny.font)
            painter.setPen(theme.current().secondary)
            self.tiny.draw(painter, left, plot.top() - caption + self.tiny.ascent - px(2), said)
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
        spots: list[tuple[SweptPoint, QPointF]] = []
        for i, own in enumerate(self.modes.values()):
            places = [
                QPointF(
                    inner.left() + self._share(p.size) * inner.width(),
                    inner.bottom() - getattr(p, name) / top * inner.height(),
                )
                for p in own
            ]
            self.curve(painter, i, places)
            spots += zip(own, places)
        if marked:
            self.mark(painter, spots, plot, sizes=False)
        else:
            for point, place in spots:
                if point.words:
                    self.ring(painter, point, place)


class CostPlot(SweepPlot):
    """Throughput against latency: up is quicker in all, left is quicker for each."""

    title = "Throughput against latency"

    def formula(self) -> str:
        return f"output tokens ÷ wall time against {self.latency}; the numbers are {self.unit}s"

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
        painter.setFont(self.tiny.font)
        painter.setPen(theme.current().secondary)
        self.tiny.draw(painter, left, top + self.tiny.ascent - px(2), f"tok/s against {self.latency}")
        self.side(painter, plot, ticks)
        self.foot(
            painter, plot.left(), plot.right(), plot.bottom(),
            [(share, axis_words(longest * share)) for share in (0.0, 0.5, 1.0)],
        )  # fmt: skip
        spots: list[tuple[SweptPoint, QPointF]] = []
        for i, own in enumerate(self.modes.values()):
            places = [
                QPointF(
                    plot.left() + p.p99 / longest * plot.width(),
                    plot.bottom() - p.throughput / highest * plot.height(),
                )
                for p in own
            ]
            self.curve(painter, i, places)
            spots += zip(own, places)
        self.mark(painter, spots, plot, sizes=True)


class SweepChart(QWidget):
    """Both plots side by side, each in its panel."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("sweep_chart")
        self.sizes, self.cost = SizePlot("sweep_sizes"), CostPlot("sweep_cost")
        self.row = QHBoxLayout(self)
        self.row.setContentsMargins(0, 0, 0, 0)
        self._inner: list[QVBoxLayout] = []
        for plot in (self.sizes, self.cost):
            frame = QFrame()
            frame.setProperty("role", "panel")
            inner = QVBoxLayout(frame)
            inner.addWidget(plot)
            self._inner.append(inner)
            self.row.addWidget(frame, 1)
        theme.changes.theme_changed.connect(self.restyle)
        self.restyle()

    def show_points(
        self, points: Sequence[SweptPoint], *, unit: str = "batch size", latency: str = "p99 latency"
    ) -> None:  # fmt: skip
        """Draws these and no others. Modes have their colours in order of first appearance; `unit` is what was swept,
        `latency` what `p99` is a percentile of."""
        for plot in (self.sizes, self.cost):
            plot.unit, plot.latency = unit, latency
            plot.show_points(points)

    def restyle(self) -> None:
        """Takes the theme's colours, fonts and lengths anew."""
        self.row.setSpacing(theme.px(8))
        pad = theme.px(12)
        for inner, plot in zip(self._inner, (self.sizes, self.cost)):
            inner.setContentsMargins(pad, pad, pad, pad - theme.px(2))
            plot.restyle()


def _around(place: QPointF, radius: float) -> QRectF:
    return QRectF(place.x() - radius, place.y() - radius, 2 * radius, 2 * radius)
