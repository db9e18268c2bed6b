"""The drawing of the machine's readings: a small line chart each, all over the same seconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPolygonF
from PySide6.QtWidgets import QSizePolicy

from app.inside.machine.readings import MachineReadings, Reading
from app.plot.decimate import decimate, drawn_order
from app.plot.plot import draw_line
from app.ui import theme
from app.ui.font_face import FontFace
from app.ui.painted import Painted
from app.words import duration

WIDE, WIDE_ENOUGH = 560, 400  # pixels of the design from which on charts stand in two columns, or must to be seen
SHORT = 64
TALLEST = 150
EMPTY = "Load, memory, power and temperature over the run: nothing was read yet."


@dataclass(frozen=True, slots=True)
class Cell:
    """A reading, where it is, and where its line is drawn."""

    reading: Reading
    room: QRectF
    plot: QRectF


class MachinePicture(Painted):
    """Shows what `show_readings` was given last. A press or a drag goes to a time, the arrow keys from step to step."""

    sought = Signal(float)  # trace seconds
    stepped = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("machine_picture")
        self.setAccessibleName("Machine: load, memory, power and temperature")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.readings = MachineReadings()
        self.begin, self.end, self.moment, self.following = 0.0, 1.0, math.inf, True
        self.restyle()

    def restyle(self) -> None:
        self._big, self._small, self._tiny = map(FontFace, (theme.ui(20, 300), theme.ui(12), theme.ui(11)))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(320), theme.px(300))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(200), theme.px(120))

    def show_readings(self, readings: MachineReadings, begin: float, end: float, moment: float) -> None:
        """The readings over [begin, end], with the cursor at a moment (infinite: at the newest)."""
        self.readings, self.begin, self.end = readings, begin, max(end, begin + 1e-3)
        self.moment, self.following = moment, moment == math.inf
        said = [f"{r.title} {' '.join(r.figure(readings.value_at(r, moment)))}".strip() for r in readings.known()]
        self.setAccessibleDescription(", ".join(said) or EMPTY)
        self.update()

    def cells(self) -> list[Cell]:
        """Where each reading is, in one column or two, a GPU's in the second."""
        px, known = theme.px, self.readings.known()
        if not known:
            return []
        gap, foot = px(24), self._tiny.height + px(4)
        wide = px(WIDE if (self.height() - foot) / len(known) >= px(SHORT) else WIDE_ENOUGH)
        parts = [known]
        if self.width() >= wide and len(known) > 1:
            half = sum(not reading.of_gpu for reading in known) if known[-1].of_gpu else -(-len(known) // 2)
            parts = [known[:half], known[half:]]
        width = (self.width() - (len(parts) - 1) * gap) / len(parts)
        height = min(px(TALLEST), (self.height() - foot) / max(map(len, parts)))
        gutter = self._gutter(known)
        head = self._big.height + px(2)
        result = []
        for column, readings in enumerate(parts):
            for row, reading in enumerate(readings):
                room = QRectF(column * (width + gap), row * height, width, height)
                plot = QRectF(room.left(), room.top() + head, width - gutter, max(1.0, height - head - px(6)))
                result.append(Cell(reading, room, plot))
        return result

    def _gutter(self, known: list[Reading]) -> float:
        words = [self._tick(reading, self.readings.top(reading)) for reading in known]
        return max(self._tiny.width(word) for word in words) + theme.px(8)

    @staticmethod
    def _tick(reading: Reading, value: float) -> str:
        return " ".join(reading.figure(value)).strip() if value else "0"

    # -- painting -------------------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        cells = self.cells()
        if not cells:
            inset = theme.px(12)
            painter.setFont(self._small.font)
            painter.setPen(theme.current().secondary)
            flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.drawText(QRectF(self.rect()).adjusted(inset, 0, -inset, 0), flags, EMPTY)
        for cell in cells:
            self._chart(painter, cell)
        if cells:
            self._foot(painter, cells)
        self.paint_focus(painter, 4)
        painter.end()

    def _chart(self, painter: QPainter, cell: Cell) -> None:
        t, px, reading, plot = theme.current(), theme.px, cell.reading, cell.plot
        number, unit = reading.figure(self.readings.value_at(reading, self.moment))
        scale = self.readings.scale(reading)
        baseline = cell.room.top() + self._big.ascent
        x = cell.room.right()
        painter.setFont(self._small.font)
        painter.setPen(t.secondary)
        beside = " ".join(part for part in (unit, scale) if part)
        if self._small.width(beside) + self._big.width(number) + self._small.width(reading.title) > cell.room.width():
            beside = unit
        x -= self._small.width(beside)
        self._small.draw(painter, x, baseline, beside)
        x -= px(4) + self._big.width(number)
        self._small.draw(painter, cell.room.left(), baseline, self._small.cut(reading.title, x - cell.room.left() - 4))
        painter.setFont(self._big.font)
        painter.setPen(t.text)
        self._big.draw(painter, x, baseline, number)
        painter.fillRect(QRectF(plot.left(), plot.bottom(), plot.width(), 1), t.hairline)
        top = self.readings.top(reading)
        self._line(painter, cell, top)
        painter.setFont(self._tiny.font)
        painter.setPen(t.faint)
        cap = self._tiny.metrics.capHeight()
        lines = plot.height() / self._tiny.height
        for share in (0.0, 0.5, 1.0) if lines > 3.5 else (0.0, 1.0) if lines > 1.7 else (1.0,):
            word = self._tick(reading, share * top)
            y = plot.bottom() - share * (plot.height() - cap)
            self._tiny.draw(painter, cell.room.right() - self._tiny.width(word), y, word)
        if not self.following and self.begin <= self.moment <= self.end:
            painter.fillRect(QRectF(self._x(plot, self.moment), plot.top(), 1, plot.height()), t.secondary)

    def _line(self, painter: QPainter, cell: Cell, top: float) -> None:
        """The lowest and highest of each pixel column, so that a long run loses no peak."""
        t, plot = theme.current(), cell.plot
        first, last = np.searchsorted(self.readings.times, (self.begin, self.end))
        first, last = max(0, int(first) - 1), min(self.readings.count, int(last) + 1)
        values = self.readings.values(cell.reading)[first:last]
        if not len(values):
            return
        low, high, starts = decimate(values, values, max(32, int(plot.width())))
        share = (self.readings.times[first:last][starts] - self.begin) / (self.end - self.begin)
        x = np.append(np.repeat(plot.left() + np.clip(share, 0, 1) * plot.width(), 2), plot.right())
        y = np.column_stack(drawn_order(low, high)).ravel()
        y = plot.bottom() - np.append(y, y[-1]) / top * plot.height()
        color = theme.oklch(t.lightness, t.chroma, cell.reading.hue)
        outline = [QPointF(float(x[0]), plot.bottom()), *(QPointF(*p) for p in zip(x.tolist(), y.tolist()))]
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.faded(color, 0.12))
        painter.drawPolygon(QPolygonF([*outline, QPointF(float(x[-1]), plot.bottom())]))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        draw_line(painter, color, x, y)

    def _foot(self, painter: QPainter, cells: list[Cell]) -> None:
        """The seconds, below the last chart of each column."""
        tiny, px = self._tiny, theme.px
        painter.setFont(tiny.font)
        painter.setPen(theme.current().secondary)
        columns = {cell.room.left(): cell for cell in cells}
        for cell in columns.values():
            y = cell.plot.bottom() + px(4) + tiny.ascent
            word = duration(self.end - self.begin)
            tiny.draw(painter, cell.plot.left(), y, "0 s")
            tiny.draw(painter, cell.plot.right() - tiny.width(word), y, word)

    def _x(self, plot: QRectF, time: float) -> float:
        return plot.left() + (time - self.begin) / (self.end - self.begin) * plot.width()

    # -- the pointer and the keys ---------------------------------------------------------------------------------

    def time_at(self, x: float, y: float) -> float:
        """The trace's time at a place; NaN beside the charts."""
        for cell in self.cells():
            if cell.room.contains(x, y) and cell.plot.left() <= x <= cell.plot.right():
                return self.begin + (x - cell.plot.left()) / cell.plot.width() * (self.end - self.begin)
        return math.nan

    def _seek(self, event: QMouseEvent) -> None:
        time = self.time_at(event.position().x(), event.position().y())
        if not math.isnan(time):
            self.sought.emit(time)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            self._seek(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._seek(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Left:
                self.stepped.emit(-1)
            case Qt.Key.Key_Right:
                self.stepped.emit(1)
            case _:
                super().keyPressEvent(event)

    def tip(self, at: QPointF) -> str:
        """What the chart there shows, and its value at that time."""
        for cell in self.cells():
            if cell.room.contains(at):
                time, about = self.time_at(at.x(), at.y()), cell.reading.about
                value = math.nan if math.isnan(time) else self.readings.value_at(cell.reading, time)
                if math.isnan(value):
                    return f"{cell.reading.title}: {about}"
                figure = " ".join(cell.reading.figure(value)).strip()
                return f"{figure} at {duration(time - self.begin)}\n{cell.reading.title}: {about}"
        return ""
