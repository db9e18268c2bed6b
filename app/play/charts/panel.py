"""The live charts: a minute, or the whole run, of throughput, latency, queue, KV blocks and the machine."""

import math

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QMouseEvent, QPainter, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QSizePolicy, QToolButton, QWidget

from app.language import tr
from app.play.charts.metrics import Latency, Metric, all_metrics
from app.play.charts.plot import ChartPlot
from app.play.charts.series import BIN, ChartSeries
from app.playback.bridge import Bridge
from app.plot.scales import nice_top
from app.ui.labels import Heading
from app.ui.layout.boxes import column
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.ui.painted import Painted
from app.words import duration
from engine import Trace
from engine.trace import Metrics

WINDOW = 60.0
TICK_MS = 33
CHARTS_A_TICK = 2  # each of six is drawn ten times a second
GUTTER = 44
MARGIN = 0.1  # of the seconds in sight, before a moment that was out of sight


class Chart(Painted):
    """One metric: title and figure on a line, the plot under it, three ticks at the right. `moment` is the one on
    show, infinite while that is the newest."""

    hovered = Signal(float)  # share of the plot's width; -1: left
    sought = Signal(float)  # a person goes to this share of the plot's width

    sharp = True
    hint, least = (256, 84), (180, 62)
    big, small, tiny = Face(20, 300), Face(12), Face(11)

    def __init__(self, measure: Metric, series: ChartSeries) -> None:
        super().__init__(f"chart_{measure.name}", measure.title)
        self.measure, self.series = measure, series
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.plot: ChartPlot | None = None
        self.top = 1.0
        self.span = (0.0, WINDOW)
        self.hair = -1.0
        self.moment = math.inf
        self.run: Metrics | None = None  # that is over, and whose figure is shown
        self._title = measure.title
        self._said = ("", ""), 1.0  # figure and unit, and the top of the axis
        self._drawn: tuple[object, ...] = ()

    def restyle(self) -> None:
        super().restyle()
        if self.plot is not None:
            t = theme.current()
            self.plot.colors(self.measure.color(t), t.secondary, t.accent, t.panel)
        self._place()

    def area(self) -> QRectF:
        """Where the plot is."""
        px = theme.px
        return QRectF(0, px(27), self.width() - px(GUTTER), max(px(20), self.height() - px(27) - px(7)))

    def refresh(self, span: tuple[float, float]) -> None:
        """Draws what is new; the first time, which is after the window's first paint, it makes the plot."""
        if self.plot is None:
            self.plot = ChartPlot(self)
            self.restyle()
            self.plot.view.show()
        series = self.series
        key = (series.now, series.live_rate, span, self.width(), self.height(), self.hair, self.moment, self.run)
        if key == self._drawn:
            return
        self._drawn, self.span = key, span
        drawing = self.measure.drawing(series)
        first = max(0, int(span[0] / BIN) - 1)
        last = int(series.now / BIN) + 1
        seen = [part[1][first:last] for part in (*drawing.lines, *([drawing.band] if drawing.band else []))]
        highest = max((float(np.nanmax(s)) for s in seen if len(s) and not np.isnan(s).all()), default=0.0)
        level = self.measure.level(series, self.time(), self.run)  # else the figure would be above its own axis
        highest = highest if math.isnan(level) else max(highest, level)
        self.top = drawing.top if not math.isnan(drawing.top) else nice_top(highest * 1.02)
        self.plot.draw(drawing, first, last, span, self.top, series.now)
        self.plot.point(span[0] + self.hair * (span[1] - span[0]) if self.hair >= 0 else None, self.moment)
        over = self.measure.last(self.run) if self.run is not None else None
        title, figure = over or (self.measure.title, self.measure.figure(series, self.time()))
        said = figure, self.top
        if (title, said) != (self._title, self._said):
            self._title, self._said = title, said
            self.setAccessibleDescription(
                " ".join((tr("{title}, last run:", title=title) if over else "", *figure)).strip()
            )
            self.update()

    def time(self) -> float:
        """The seconds under the pointer, else of the moment on show."""
        begin, end = self.span
        moment = self.moment if self.hair < 0 else begin + self.hair * (end - begin)
        return min(self.series.now, moment)

    # -- painting -------------------------------------------------------------------------------------------------

    def _place(self) -> None:
        if self.plot is not None:
            self.plot.view.setGeometry(self.area().toRect())

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._place()

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        t, px, area = theme.current(), theme.px, self.area()
        baseline, x = px(19), float(self.width())
        number, unit = self._said[0]
        if unit:
            self.small.say(painter, x, baseline, unit, t.secondary, before=1)
            x -= self.small.width(unit) + px(4)
        x -= self.big.width(number)
        self.big.say(painter, x, baseline, number, t.text)
        title = self._title if self.small.width(self._title) <= x - px(8) else self.measure.short(self._title)
        self.small.say(painter, 0, baseline, self.small.cut(title, x - px(8)), t.secondary)
        painter.fillRect(QRectF(0, area.bottom(), area.width(), 1), t.hairline)
        if number:
            self._ticks(painter, area)

    def _ticks(self, painter: QPainter, area: QRectF) -> None:
        face, cap = self.tiny, self.tiny.cap
        for share in (0.0, 0.5, 1.0) if area.height() > 3 * cap + theme.px(12) else (0.0, 1.0):
            text = self.measure.tick(self.top * share)
            y = area.bottom() - share * (area.height() - cap)
            face.say(painter, self.width(), y, text, theme.current().faint, before=1)

    # -- the pointer ----------------------------------------------------------------------------------------------

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        share = self._share(event)
        self.hovered.emit(share if 0 <= share <= 1 else -1.0)
        if event.buttons() & Qt.MouseButton.LeftButton:
            self.sought.emit(min(max(share, 0.0), 1.0))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        share = self._share(event)
        if event.button() is Qt.MouseButton.LeftButton and 0 <= share <= 1:
            self.sought.emit(share)

    def _share(self, event: QMouseEvent) -> float:
        area = self.area()
        return (event.position().x() - area.left()) / area.width()

    def leaveEvent(self, event: QEvent) -> None:
        self.hovered.emit(-1.0)

    def tip(self, at: QPointF) -> str:
        """The formula, and the percentiles at the cursor."""
        more = self.measure.percentiles(self.series, self.time()) if isinstance(self.measure, Latency) else ""
        return "\n".join(part for part in (self.measure.formula, more) if part)


class LiveCharts(QWidget):
    """The charts of the bridge's trace, all over the same seconds: the newest, or those around the scope's moment."""

    def __init__(self, bridge: Bridge, parent: QWidget | None = None, *, beside: QWidget | None = None) -> None:
        """`beside`: a control that stands by the title."""
        super().__init__(parent)
        self.setObjectName("live_charts")
        self.bridge = bridge
        self.series = ChartSeries()
        self.whole = False
        self.span_button = QToolButton()
        self.span_button.setObjectName("chart_span")
        self.span_button.setToolTip(tr("The last minute, or the whole run"))
        self.span_button.clicked.connect(self._on_span)
        self.charts = [Chart(metric, self.series) for metric in all_metrics()]
        charts = ((chart, 1) for chart in self.charts)
        self.heading = Heading(tr("Live"), *([beside] if beside is not None else []), self.span_button)
        self.setLayout(column(self.heading, *charts, spacing=0))
        for chart in self.charts:
            chart.hovered.connect(self._on_hovered)
            chart.sought.connect(self._on_sought)
            chart.setVisible(chart.measure.shown(self.series))
        self._turn = 0
        self._hair = -1.0
        self._end: float | None = None  # of the seconds in sight, while the moment on show is in the past
        self._moved = False
        self._timer = QTimer(self, interval=TICK_MS)
        self._timer.timeout.connect(self._on_tick)
        bridge.records_arrived.connect(lambda records: self.series.feed(records, bridge.tally))
        bridge.trace_reset.connect(self._on_reset)
        bridge.scope.moved.connect(self._on_moved)
        self._tell_span()

    def span(self) -> tuple[float, float]:
        """The seconds in sight: the last minute, or everything. In the past they stand still around the cursor, and
        where the last run ended until another begins."""
        now = self.series.now if self.bridge.busy else self.series.worked or self.series.now
        end = now if self._end is None else self._end
        if self.whole:
            return 0.0, max(end, 10.0)
        return max(0.0, end - WINDOW), max(end, 10.0)

    def _on_moved(self) -> None:
        """The moment on show is another one. Charts in sight are drawn with the next tick."""
        scope = self.bridge.scope
        moment, self._moved = scope.moment, True
        if scope.following:
            self._end = None
        else:
            end = self.series.now if self._end is None else self._end
            if not self.whole and moment < end - WINDOW:
                end = max(moment + (1 - MARGIN) * WINDOW, WINDOW)
            self._end = max(end, moment)
        for chart in self.charts:
            chart.moment = moment
        self._tell_span()

    def _on_sought(self, share: float) -> None:
        (begin, end), scope = self.span(), self.bridge.scope
        time = begin + share * (end - begin)
        if time >= self.series.now:
            scope.follow()
        else:
            scope.seek(max(time, scope.origin))

    def refresh(self) -> None:
        """Draws every chart now."""
        self._look()
        for chart in self.charts:
            chart.refresh(self.span())

    def _on_reset(self, trace: object) -> None:
        self.series.reset()
        if isinstance(trace, Trace) and trace.known:
            vars(self.series).update(vars(trace.known["charts"]))
        self._end = None
        for chart in self.charts:
            chart.setVisible(chart.measure.shown(self.series))

    def _look(self) -> None:
        """What the records do not tell: the rate by the window's clock, or the figures of a run that is over."""
        self.series.live_rate = self.bridge.live_rate
        run = self.bridge.over if self._hair < 0 else None
        for chart in self.charts:
            chart.run = run
        self.heading.say(tr("Last run") if run is not None else tr("Live"))
        self.heading.setToolTip(_over_words(run) if run is not None else "")

    def _on_tick(self) -> None:
        self._look()
        shown = [chart for chart in self.charts if chart.measure.shown(self.series)]
        count = len(shown) if self._moved and not self.bridge.scope.playing else CHARTS_A_TICK
        self._moved = False
        for _ in range(count):
            self._turn = (self._turn + 1) % len(shown)
            shown[self._turn].setVisible(True)
            shown[self._turn].refresh(self.span())
        if self._turn < CHARTS_A_TICK:
            self._tell_span()

    def _on_hovered(self, share: float) -> None:
        self._hair = share
        self._look()
        for chart in self.charts:
            chart.hair = share
            chart.refresh(self.span())
        self._tell_span()

    def _on_span(self) -> None:
        self.whole = not self.whole
        self._tell_span()

    def _tell_span(self) -> None:
        begin, end = self.span()
        scope, text = self.bridge.scope, tr("all {time}", time=duration(end)) if self.whole else tr("last 60 s")
        pointed = begin + self._hair * (end - begin) if self._hair >= 0 else scope.moment
        if not scope.following:
            text = tr("at {time}", time=duration(max(0.0, pointed - scope.origin)))
        elif self._hair >= 0:
            text = tr("{time} ago", time=duration(end - pointed))
        if text != self.span_button.text():
            self.span_button.setText(text)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        self._timer.stop()
        super().hideEvent(event)


def _over_words(run: Metrics) -> str:
    done, time = run.completed, duration(run.duration)
    return tr("{done:,} of {all:,} requests in {time}", done=done, all=run.requests, time=time)
