"""The drawing of the machine's readings: a small line chart each, all over the same seconds."""

import math
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QPointF, QRect, QRectF
from PySide6.QtGui import QPainter, QPolygonF

from app.inside.chart import Chart
from app.inside.machine.readings import MachineReadings, Reading
from app.language import tr
from app.plot import axes
from app.plot.decimate import decimate, drawn_order
from app.plot.inked import inked
from app.plot.plot import draw_line
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.words import duration

WIDE, WIDE_ENOUGH = 560, 400  # pixels of the design from which on charts stand in two columns, or must to be seen
SHORT = 64
TALLEST = 150
EMPTY = tr("Load, memory, power and temperature over the run: nothing was read yet.")


@dataclass(frozen=True, slots=True)
class Cell:
    """A reading, where it is, and where its line is drawn."""

    reading: Reading
    room: QRectF
    plot: QRectF


class MachinePicture(Chart):
    """Shows what `show_readings` was given last."""

    hint, least = (320, 300), (200, 120)
    focus_ring = 4
    big, small, tiny = Face(20, 300), Face(12), Face(11)

    def __init__(self) -> None:
        super().__init__("machine_picture", tr("Machine: load, memory, power and temperature"))
        self.readings = MachineReadings()
        self.begin, self.end, self.until, self.moment, self.following = 0.0, 1.0, 1.0, math.inf, True

    def show_readings(self, readings: MachineReadings, begin: float, end: float, until: float, moment: float) -> None:
        """The readings over [begin, end], of which the last holds `until` then, with the cursor at a moment (infinite:
        at the newest)."""
        self.readings, self.begin, self.end, self.until = readings, begin, max(end, begin + 1e-3), until
        self.moment, self.following = moment, moment == math.inf
        said = [f"{r.title} {r.words(readings.value_at(r, moment))}" for r in readings.known()]
        self.setAccessibleDescription(", ".join(said) or EMPTY)
        self.update()

    def cells(self) -> list[Cell]:
        """Where each reading is, in one column or two, a GPU's in the second."""
        px, known = theme.px, self.readings.known()
        if not known:
            return []
        gap, foot = px(24), self.tiny.height + px(4)
        wide = px(WIDE if (self.height() - foot) / len(known) >= px(SHORT) else WIDE_ENOUGH)
        parts = [known]
        if self.width() >= wide and len(known) > 1:
            half = sum(not reading.of_gpu for reading in known) if known[-1].of_gpu else -(-len(known) // 2)
            parts = [known[:half], known[half:]]
        width = (self.width() - (len(parts) - 1) * gap) / len(parts)
        height = min(px(TALLEST), (self.height() - foot) / max(map(len, parts)))
        gutter = self._gutter(known)
        head = self.big.height + px(2)
        result = []
        for column, readings in enumerate(parts):
            for row, reading in enumerate(readings):
                room = QRectF(column * (width + gap), row * height, width, height)
                plot = QRectF(room.left(), room.top() + head, width - gutter, max(1.0, height - head - px(6)))
                result.append(Cell(reading, room, plot))
        return result

    def _gutter(self, known: list[Reading]) -> float:
        return max(self.tiny.width(reading.words(self.readings.top(reading))) for reading in known) + theme.px(8)

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        cells = self.cells()
        if not cells:
            self.say_empty(painter, EMPTY)
        for cell in cells:
            self._chart(painter, cell)
        last = {cell.room.left(): cell.plot for cell in cells}  # of each column
        for plot in last.values():
            ticks = ((plot.left(), "0 s"), (plot.right(), duration(self.end - self.begin)))
            baseline = plot.bottom() + theme.px(4) + self.tiny.ascent
            axes.foot(painter, self.tiny, ticks, baseline, plot.left(), plot.right())

    def _chart(self, painter: QPainter, cell: Cell) -> None:
        t, reading, room, plot = theme.current(), cell.reading, cell.room, cell.plot
        number, unit = reading.figure(self.readings.value_at(reading, self.moment))
        scale = self.readings.scale(reading)
        baseline = room.top() + self.big.ascent
        beside = " ".join(part for part in (unit, scale) if part)
        if self.small.width(beside) + self.big.width(number) + self.small.width(reading.title) > room.width():
            beside = unit
        x = room.right() - self.small.width(beside)
        self.small.say(painter, x, baseline, beside, t.secondary)
        x -= theme.px(4) + self.big.width(number)
        title = self.small.cut(reading.title, x - room.left() - 4)
        self.small.say(painter, room.left(), baseline, title, t.secondary)
        self.big.say(painter, x, baseline, number, t.text)
        painter.fillRect(QRectF(plot.left(), plot.bottom(), plot.width(), 1), t.hairline)
        top = self.readings.top(reading)
        self._line(painter, cell, top)
        lines = plot.height() / self.tiny.height
        for share in (0.0, 0.5, 1.0) if lines > 3.5 else (0.0, 1.0) if lines > 1.7 else (1.0,) if lines > 0.8 else ():
            y = plot.bottom() - share * (plot.height() - self.tiny.cap)
            self.tiny.say(painter, room.right(), y, reading.words(share * top) if share else "0", t.faint, before=1)
        if not self.following and self.begin <= self.moment <= self.end:
            x = plot.left() + (self.moment - self.begin) / (self.end - self.begin) * plot.width()
            painter.fillRect(QRectF(x, plot.top(), 1, plot.height()), t.secondary)

    def _line(self, painter: QPainter, cell: Cell, top: float) -> None:
        """The lowest and highest of each pixel column, so that a long run loses no peak."""
        t, plot = theme.current(), cell.plot
        first, last = np.searchsorted(self.readings.time, (self.begin, self.end))
        first, last = max(0, int(first) - 1), min(len(self.readings), int(last) + 1)
        values = self.readings.values(cell.reading)[first:last]
        if not len(values):
            return
        low, high, starts = decimate(values, values, max(32, int(plot.width())))
        share = (self.readings.time[first:last][starts] - self.begin) / (self.end - self.begin)
        share = np.append(np.repeat(share, 2), (self.until - self.begin) / (self.end - self.begin))
        x = plot.left() + np.clip(share, 0, 1) * plot.width()
        y = np.column_stack(drawn_order(low, high)).ravel()
        y = plot.bottom() - np.append(y, y[-1]) / top * plot.height()
        color = theme.oklch(t.lightness, t.chroma, cell.reading.hue)
        outline = [QPointF(float(x[0]), plot.bottom()), *(QPointF(*p) for p in zip(x.tolist(), y.tolist()))]
        with inked(painter, theme.faded(color, 0.12)):
            painter.drawPolygon(QPolygonF([*outline, QPointF(float(x[-1]), plot.bottom())]))
        draw_line(painter, color, x, y)

    def moment_at(self, at: QPointF) -> float | None:
        cell = self._cell_at(at)
        if cell is None or not cell.plot.left() <= at.x() <= cell.plot.right():
            return None
        return self.begin + (at.x() - cell.plot.left()) / cell.plot.width() * (self.end - self.begin)

    def _cell_at(self, at: QPointF) -> Cell | None:
        return next((cell for cell in self.cells() if cell.room.contains(at)), None)

    def tip(self, at: QPointF) -> str:
        """What the chart there shows, and its value at that time."""
        cell, time = self._cell_at(at), self.moment_at(at)
        if cell is None:
            return ""
        about = f"{cell.reading.title}: {cell.reading.about}"
        value = math.nan if time is None else self.readings.value_at(cell.reading, time)
        if time is None or math.isnan(value):
            return about
        now = tr("{value} at {time}", value=cell.reading.words(value), time=duration(time - self.begin))
        return f"{now}\n{about}"
