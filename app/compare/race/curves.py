"""A race's lines over time: tokens so far, and who runs and waits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QRectF
from PySide6.QtGui import (
    QPainter,
)

from app.compare.race.chart import RaceChart, RaceLane
from app.compare.race.series import stairs
from app.plot.colors import lane_color
from app.plot.plot import apart, draw_line, draw_mark
from app.plot.scales import nice_top, tick_words
from app.ui import theme
from app.words import number
from engine.trace import Column

MARKS_A_LINE = 4


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
        self.foot(
            painter, left, right, plot.bottom(), [(share, f"{self.span * share:,.3g} s") for share in (0.0, 0.5, 1.0)]
        )
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
