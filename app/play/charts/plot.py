"""The drawn part of a live chart: a band, two lines, and the hairlines of the pointer and of the shared cursor."""

import math

import numpy as np
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPen, QTransform
from PySide6.QtWidgets import QGraphicsPathItem, QStyleOptionGraphicsItem, QWidget

from app.play.charts.metrics import Drawing, Line
from app.play.charts.series import BIN
from app.plot.decimate import decimate, drawn_order
from app.ui.look import theme
from engine.trace import Array


class ChartPlot:
    """pyqtgraph's view of one chart. Ranges are set, never sought."""

    def __init__(self, parent: QWidget) -> None:
        import pyqtgraph as pg  # 0.3 s: paid after the window's first paint

        self._pg = pg
        self.view = pg.GraphicsView(parent, useOpenGL=False, background=None)
        self.view.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.view.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._box = pg.ViewBox(enableMouse=False, enableMenu=False, defaultPadding=0)
        self.view.setCentralItem(self._box)
        self._band = QGraphicsPathItem()
        self._box.addItem(self._band, ignoreBounds=True)

        class Curve(pg.PlotCurveItem):
            """One device pixel wide, which is fast, and as dark as one pixel of the design on a finer screen."""

            def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget) -> None:
                super().paint(painter, option, widget)
                if painter.device().devicePixelRatioF() > 1:
                    painter.save()
                    painter.setTransform(painter.transform() * QTransform.fromTranslate(0.3, 0.45))
                    super().paint(painter, option, widget)
                    painter.restore()

        self._lines = [Curve(connect="finite", antialias=True) for _ in range(2)]
        self._hair = pg.InfiniteLine(angle=90, movable=False)
        self._cursor = pg.InfiniteLine(angle=90, movable=False)
        for line in (self._hair, self._cursor):
            line.hide()
        for item in (*self._lines, self._cursor, self._hair):
            self._box.addItem(item, ignoreBounds=True)

    def colors(self, color: QColor, other: QColor, cursor: QColor, ground: QColor) -> None:
        self.view.setBackground(ground)  # opaque: what lies under it need not be painted
        self._band.setPen(QPen(Qt.PenStyle.NoPen))
        self._band.setBrush(theme.faded(color, 0.22))
        for line, each in zip(self._lines, (color, other), strict=True):
            line.setPen(self._pg.mkPen(each, width=1))
        self._hair.setPen(self._pg.mkPen(other, width=1))
        self._cursor.setPen(self._pg.mkPen(cursor, width=1))

    def draw(self, drawing: Drawing, first: int, last: int, span: tuple[float, float], top: float, now: float) -> None:
        """Draws the bins `[first, last)` over `span` seconds and 0 to `top`."""
        columns = max(32, self.view.width())
        for i, item in enumerate(self._lines):
            if i < len(drawing.lines):
                x, low, high = self._columns(drawing.lines[i], first, last, columns, now)
                item.setData(np.repeat(x, 2), np.column_stack(drawn_order(low, high)).ravel())
        if drawing.band is not None:
            self._band.setPath(self._area(*self._columns(drawing.band, first, last, columns, now)))
        self._box.setRange(xRange=span, yRange=(-0.02 * top, 1.03 * top), padding=0, update=True)

    def point(self, time: float | None, cursor: float) -> None:
        """Puts the pointer's hairline at a time, or takes it away, and the shared cursor's where it is finite."""
        for line, at in ((self._hair, time), (self._cursor, cursor if math.isfinite(cursor) else None)):
            line.setVisible(at is not None)
            if at is not None:
                line.setValue(at)

    @staticmethod
    def _columns(line: Line, first: int, last: int, columns: int, now: float) -> tuple[Array, Array, Array]:
        low, high = line[0][first:last], line[1][first:last]
        count = len(low)
        low, high, starts = decimate(low, high, columns)
        ends = np.append(starts[1:], count)[: len(starts)]
        return np.minimum((first + ends) * BIN, now), low, high

    def _area(self, x: Array, low: Array, high: Array) -> QPainterPath:
        path = QPainterPath()
        known = np.flatnonzero(np.isfinite(low) & np.isfinite(high))
        for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
            if len(run) > 1:
                xs = np.concatenate((x[run], x[run][::-1]))
                ys = np.concatenate((high[run], low[run][::-1]))
                path.addPath(self._pg.functions.arrayToQPath(xs, ys))
        return path
