"""The live charts: a minute, or the whole run, of throughput, latency, queue, KV blocks and the machine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from PySide6.QtCore import QEvent, QRectF, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QColor,
    QHelpEvent,
    QHideEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
    QResizeEvent,
    QShowEvent,
    QTransform,
)
from PySide6.QtWidgets import QGraphicsPathItem, QSizePolicy, QToolButton, QToolTip, QVBoxLayout, QWidget

from app import theme
from app.bridge import Bridge
from app.panels.chart_metrics import Drawing, Latency, Line, Metric, all_metrics, nice_top
from app.panels.chart_series import BIN, ChartSeries, decimate, drawn_order
from app.panels.ink import Ink
from app.panels.live_rate import live_rate
from app.panels.request_words import duration
from app.widgets.labels import Heading
from engine import Record

WINDOW = 60.0
TICK_MS = 33
CHARTS_A_TICK = 2  # each of six is drawn ten times a second
GUTTER = 44


class _Plot:
    """The drawn part of one chart: pyqtgraph's view with a band and two lines. Ranges are set, never sought."""

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

            def paint(self, painter: QPainter, option: Any, widget: QWidget) -> None:
                super().paint(painter, option, widget)
                if painter.device().devicePixelRatioF() > 1:
                    painter.save()
                    painter.setTransform(painter.transform() * QTransform.fromTranslate(0.3, 0.45))
                    super().paint(painter, option, widget)
                    painter.restore()

        self._lines = [Curve(connect="finite", antialias=True) for _ in range(2)]
        self._hair = pg.InfiniteLine(angle=90, movable=False)
        self._hair.hide()
        for item in (*self._lines, self._hair):
            self._box.addItem(item, ignoreBounds=True)

    def colors(self, color: QColor, other: QColor, ground: QColor) -> None:
        self.view.setBackground(ground)  # opaque: what lies under it need not be painted
        fill = QColor(color)
        fill.setAlphaF(0.22)
        self._band.setPen(QPen(Qt.PenStyle.NoPen))
        self._band.setBrush(fill)
        for line, each in zip(self._lines, (color, other), strict=True):
            line.setPen(self._pg.mkPen(each, width=1))
        self._hair.setPen(self._pg.mkPen(other, width=1))

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

    def point(self, time: float | None) -> None:
        """Puts the hairline at a time, or takes it away."""
        self._hair.setVisible(time is not None)
        if time is not None:
            self._hair.setValue(time)

    @staticmethod
    def _columns(line: Line, first: int, last: int, columns: int, now: float) -> tuple[Any, Any, Any]:
        low, high = line[0][first:last], line[1][first:last]
        count = len(low)
        low, high, starts = decimate(low, high, columns)
        ends = np.append(starts[1:], count)[: len(starts)]
        return np.minimum((first + ends) * BIN, now), low, high

    def _area(self, x: Any, low: Any, high: Any) -> QPainterPath:
        path = QPainterPath()
        known = np.flatnonzero(np.isfinite(low) & np.isfinite(high))
        for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
            if len(run) > 1:
                xs = np.concatenate((x[run], x[run][::-1]))
                ys = np.concatenate((high[run], low[run][::-1]))
                path.addPath(self._pg.functions.arrayToQPath(xs, ys))
        return path


class Chart(QWidget):
    """One metric: title and figure on a line, the plot under it, three ticks at the right."""

    hovered = Signal(float)  # share of the plot's width; -1: left

    def __init__(self, measure: Metric, series: ChartSeries) -> None:
        super().__init__()
        self.measure, self.series = measure, series
        self.setObjectName(f"chart_{measure.name}")
        self.setAccessibleName(measure.title)
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.plot: _Plot | None = None
        self.top = 1.0
        self.span = (0.0, WINDOW)
        self.hair = -1.0
        self._figure = ("", "")
        self._said: tuple[object, ...] = ()
        self._drawn: tuple[object, ...] = ()
        self.restyle()

    def build(self) -> None:
        """Makes the plot: once, after the first paint."""
        if self.plot is None:
            self.plot = _Plot(self)
            self.restyle()
            self._place()
            self.plot.view.show()
            self._drawn = ()

    def restyle(self) -> None:
        t = theme.current()
        self._big, self._small, self._tiny = Ink(theme.ui(20, 300)), Ink(theme.ui(12)), Ink(theme.ui(11))
        if self.plot is not None:
            self.plot.colors(self.measure.color(t), t.secondary, t.panel)
        self._place()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(256), theme.px(84))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(180), theme.px(62))

    def area(self) -> QRectF:
        """Where the plot is."""
        px = theme.px
        return QRectF(0, px(27), self.width() - px(GUTTER), max(px(20), self.height() - px(27) - px(7)))

    def refresh(self, span: tuple[float, float]) -> None:
        """Draws what is new."""
        series = self.series
        key = (series.now, series.live_rate, span, self.width(), self.height(), self.hair)
        if self.plot is None or key == self._drawn:
            return
        self._drawn, self.span = key, span
        drawing = self.measure.drawing(series)
        first = max(0, int(span[0] / BIN) - 1)
        last = int(series.now / BIN) + 1
        seen = [part[1][first:last] for part in (*drawing.lines, *([drawing.band] if drawing.band else []))]
        highest = max((float(np.nanmax(s)) for s in seen if len(s) and not np.isnan(s).all()), default=0.0)
        self.top = drawing.top if not math.isnan(drawing.top) else nice_top(highest * 1.02)
        self.plot.draw(drawing, first, last, span, self.top, series.now)
        self.plot.point(span[0] + self.hair * (span[1] - span[0]) if self.hair >= 0 else None)
        said = (self.measure.figure(series, self.place()), self.top, self.hair)
        if said != self._said:
            self._said, self._figure = said, said[0]
            self.setAccessibleDescription(" ".join(self._figure))
            self.update()

    def place(self) -> int:
        """The bin under the cursor; the latest without one."""
        if self.hair < 0:
            return int(self.series.now / BIN)
        return int(min(self.series.now, self.span[0] + self.hair * (self.span[1] - self.span[0])) / BIN)

    # -- painting -------------------------------------------------------------------------------------------------

    def _place(self) -> None:
        if self.plot is not None:
            self.plot.view.setGeometry(self.area().toRect())

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def paintEvent(self, event: QPaintEvent) -> None:
        t, px = theme.current(), theme.px
        painter = QPainter(self)
        area = self.area()
        baseline = px(19)
        number, unit = self._figure
        x = float(self.width())
        if unit:
            x -= self._small.width(unit)
            painter.setFont(self._small.font)
            painter.setPen(t.secondary)
            self._small.draw(painter, x, baseline, unit)
            x -= px(4)
        x -= self._big.width(number)
        painter.setFont(self._big.font)
        painter.setPen(t.text)
        self._big.draw(painter, x, baseline, number)
        painter.setFont(self._small.font)
        painter.setPen(t.secondary)
        self._small.draw(painter, 0, baseline, self._small.cut(self.measure.title, x - px(8)))
        painter.fillRect(QRectF(0, area.bottom(), area.width(), 1), t.hairline)
        if number:
            self._ticks(painter, area)

    def _ticks(self, painter: QPainter, area: QRectF) -> None:
        ink = self._tiny
        painter.setFont(ink.font)
        painter.setPen(theme.current().faint)
        cap = ink.metrics.capHeight()
        shares = (0.0, 0.5, 1.0) if area.height() > 3 * cap + theme.px(12) else (0.0, 1.0)
        for share in shares:
            text = self.measure.tick(self.top * share)
            y = area.bottom() - share * (area.height() - cap)
            ink.draw(painter, self.width() - ink.width(text), y, text)

    # -- the pointer ----------------------------------------------------------------------------------------------

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        area = self.area()
        inside = area.left() <= event.position().x() <= area.right()
        self.hovered.emit((event.position().x() - area.left()) / area.width() if inside else -1.0)

    def leaveEvent(self, event: QEvent) -> None:
        self.hovered.emit(-1.0)

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            QToolTip.showText(event.globalPos(), self.tooltip(), self)
            return True
        return super().event(event)

    def tooltip(self) -> str:
        """The formula, and the percentiles at the cursor."""
        more = self.measure.percentiles(self.series, self.place()) if isinstance(self.measure, Latency) else ""
        return "\n".join(part for part in (self.measure.formula, more) if part)


class LiveCharts(QWidget):
    """The charts of the bridge's trace, all over the same seconds."""

    def __init__(self, bridge: Bridge, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("live_charts")
        self.bridge = bridge
        self.series = ChartSeries()
        self.whole = False
        self.span_button = QToolButton()
        self.span_button.setObjectName("chart_span")
        self.span_button.setToolTip("The last minute, or the whole run")
        self.span_button.clicked.connect(self._on_span)
        self.charts = [Chart(metric, self.series) for metric in all_metrics()]
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(Heading("Live", self.span_button))
        for chart in self.charts:
            column.addWidget(chart, 1)
            chart.hovered.connect(self._on_hovered)
            chart.setVisible(chart.measure.shown(self.series))
        self._turn = 0
        self._hair = -1.0
        self._timer = QTimer(self)
        self._timer.setInterval(TICK_MS)
        self._timer.timeout.connect(self._on_tick)
        bridge.records_arrived.connect(self._on_records)
        bridge.trace_reset.connect(self._on_reset)
        theme.changes.theme_changed.connect(self._on_theme)
        self._tell_span()

    def span(self) -> tuple[float, float]:
        """The seconds in sight: the last minute, or everything."""
        now = self.series.now
        if self.whole:
            return 0.0, max(now, 10.0)
        return max(0.0, now - WINDOW), max(now, 10.0)

    def refresh(self) -> None:
        """Draws every chart now."""
        self.series.live_rate = live_rate(self.bridge)
        for chart in self.charts:
            chart.build()
            chart.refresh(self.span())

    def _on_records(self, records: list[Record]) -> None:
        self.series.feed(records)

    def _on_reset(self, trace: object) -> None:
        self.series.reset()
        for chart in self.charts:
            chart.setVisible(chart.measure.shown(self.series))

    def _on_tick(self) -> None:
        self.series.live_rate = live_rate(self.bridge)
        shown = [chart for chart in self.charts if chart.measure.shown(self.series)]
        for _ in range(CHARTS_A_TICK):
            self._turn = (self._turn + 1) % len(shown)
            chart = shown[self._turn]
            chart.setVisible(True)
            chart.build()
            chart.refresh(self.span())
        if self._turn < CHARTS_A_TICK:
            self._tell_span()

    def _on_hovered(self, share: float) -> None:
        self._hair = share
        for chart in self.charts:
            chart.hair = share
            chart.refresh(self.span())
        self._tell_span()

    def _on_span(self) -> None:
        self.whole = not self.whole
        self._tell_span()

    def _tell_span(self) -> None:
        begin, end = self.span()
        if self._hair >= 0:
            text = f"{duration(max(0.0, end - begin) * (1 - self._hair))} ago"
        elif self.whole:
            text = f"all {duration(end)}"
        else:
            text = "last 60 s"
        if text != self.span_button.text():
            self.span_button.setText(text)

    def _on_theme(self) -> None:
        for chart in self.charts:
            chart.restyle()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        self._timer.stop()
        super().hideEvent(event)
