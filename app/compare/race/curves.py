"""A race's lines over time: tokens so far, and who runs and waits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QPainter

from app.compare.race.chart import RaceChart, RaceLane
from app.compare.race.series import LaneSeries, stairs
from app.language import digits, tr
from app.plot.marks import draw_mark, lane_color
from app.plot.plot import apart, draw_line
from app.plot.scales import nice_top, tick_words, time_ticks
from app.ui.look import theme
from app.words import number
from engine.trace import Array, Column

MARKS_A_LINE = 4


@dataclass(frozen=True, slots=True)
class Lines:
    """What is drawn of each lane: `columns`, a value a step, the first of them the strong one, and their latest values
    in words. `smooth`: stairs are sharper without."""

    title: str
    formula: str
    columns: Callable[[LaneSeries], list[Column]]
    words: Callable[[list[float]], str]
    smooth: bool = True


TOKENS = Lines(
    tr("Tokens over time"),
    tr("output tokens so far; a level stretch is a wait"),
    lambda series: [series.tokens],
    lambda latest: number(latest[0]),
)
QUEUE = Lines(
    tr("Running · waiting"),
    tr("requests that hold a slot · requests that wait for one (fainter), after each step"),
    lambda series: [series.running, series.waiting],
    lambda latest: " · ".join(digits(f"{value:,.0f}") for value in latest),
    smooth=False,
)


class CurveChart(RaceChart):
    """Lines over time, each with its latest value at the right edge."""

    def __init__(self, name: str, lines: Lines, lanes: Sequence[RaceLane]) -> None:
        super().__init__(name, lines.title, lines.formula, lanes)
        self._lines = lines

    def figure(self, lane: RaceLane) -> str:
        seen = [self._seen(lane, column) for column in self._lines.columns(lane.series)]
        return self._lines.words([float(values[-1]) for values in seen]) if len(seen[0]) else "–"

    def _seen(self, lane: RaceLane, column: Column | None = None) -> Array:
        """Of one of the lane's columns, or of the strong one."""
        return lane.seen(lane.series.step_time, column or self._lines.columns(lane.series)[0])

    def draw(self, painter: QPainter, area: QRectF) -> None:
        if not self.lanes:
            return
        px, ink = theme.px, self.tiny
        top = self._top()
        ticks = [tick_words(top * share) for share in (0.0, 0.5, 1.0)]
        labels = [self.figure(lane) for lane in self.lanes]
        left = area.left() + max(ink.width(word) for word in ticks) + px(6)
        right = area.right() - max(ink.width(word) for word in labels) - px(6)
        plot = QRectF(left, area.top() + px(4), max(1.0, right - left), area.height() - px(4))
        self.side(painter, plot, ticks)
        seconds = [(at / self.span, words) for at, words in time_ticks(0.0, self.span, plot.width() / px(72))]
        self.foot(painter, left, right, plot.bottom(), seconds)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, self._lines.smooth)
        for lane in self.lanes:
            strong, *faint = self._lines.columns(lane.series)
            for column in reversed(faint):
                self._line(painter, plot, lane, column, top, theme.faded(lane_color(lane.index), 0.45))
            self._line(painter, plot, lane, strong, top, lane_color(lane.index))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for i, lane in enumerate(self.lanes):
            self._marks(painter, plot, lane, i, top)
        self._labels(painter, plot, labels, top)

    def _top(self) -> float:
        """The end of the vertical axis: high enough for whatever the cursors still hide."""
        columns = [column for lane in self.lanes for column in self._lines.columns(lane.series)]
        return nice_top(1.02 * max((float(column.values.max()) for column in columns if column.count), default=0.0))

    def _line(self, painter: QPainter, plot: QRectF, lane: RaceLane, column: Column, top: float, color: QColor) -> None:
        end, line = lane.end(self.span), self._seen(lane, column)
        times = lane.series.step_time.values[: len(line)]
        x, y = stairs(times, line, max(1, int(plot.width() * end / self.span)), end)
        if len(x):
            x, y = plot.left() + x * (plot.width() / self.span), plot.bottom() - y * (plot.height() / top)
            draw_line(painter, theme.over(color, theme.current().panel), x, y)

    def _marks(self, painter: QPainter, plot: QRectF, lane: RaceLane, place: int, top: float) -> None:
        """A few of the lane's marks along its line, beside those of the other lanes."""
        end = lane.end(self.span)
        line = self._seen(lane)
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
        ink, cap = self.tiny, self.tiny.cap
        latest = [self._seen(lane)[-1:] for lane in self.lanes]
        wanted = [plot.bottom() - float(v.sum()) / top * plot.height() + cap / 2 for v in latest]
        places = apart(wanted, cap + theme.px(5), plot.top() + cap, plot.bottom())
        for lane, y, words in zip(self.lanes, places, labels):
            ink.say(painter, plot.right() + theme.px(6), y, words, lane_color(lane.index))
