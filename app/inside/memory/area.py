"""The KV pool over time: its four kinds stacked, the pool's size above them, and a computed line to compare with."""

import math
from collections.abc import Sequence

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, Qt, Signal
from PySide6.QtGui import QColor, QKeyEvent, QMouseEvent, QPaintEngine, QPainter, QPainterPath, QPen, QPolygonF

from app.inside.chart import Chart
from app.inside.memory.series import KINDS, MemorySeries, Moment
from app.language import tr
from app.plot import axes, patterns
from app.plot.breaks import Break, breaks_in, draw_breaks, with_breaks
from app.plot.folds import NONE, Folds
from app.plot.image import PixelImage
from app.plot.inked import plate_of, say_on_plate
from app.plot.pixels import draw_dashes, textured
from app.plot.scales import nice_pool
from app.ui.look import theme
from app.ui.look.font_face import Face
from app.words import bytes_words
from engine.trace import Array

LOW = 0.25  # a pool of which less is held is not drawn to its whole height
HIGHEST = 1.6  # pools: what is computed beyond leaves the picture


def axis_top(pool: float, held: float, compared: float) -> float:
    """Where the axis ends: at the pool, unless little of it is held; `compared` is in sight as far as it can be."""
    if not pool:
        return 1.0
    if held < LOW * pool and compared < LOW * pool:
        return nice_pool(max(1.15 * held, 1.08 * compared))
    return max(pool, min(1.05 * compared, HIGHEST * pool))


class MemoryArea(Chart):
    """Draws `series` over the seconds it is shown, one mean over time a pixel column; long idle time is folded.

    `span` is in values of the axis: seconds since `origin`, less what `folds` takes. Moments are seconds of the trace.
    """

    hovered = Signal(object)  # seconds of the trace under the pointer; None: it left
    sharp, focus_ring = True, 0
    hint = 480, 140
    tiny = Face(11)

    def __init__(self) -> None:
        super().__init__("memory_area", tr("KV pool over time"))
        self.setMouseTracking(True)
        self.series = MemorySeries()
        self.span, self.origin, self.folds = (0.0, 10.0), 0.0, NONE
        self.top = 1.0  # bytes
        self.compared = ""  # the series of the line
        self.message = ""
        self._cursor: float | None = None
        self._pointed: float | None = None
        self._until = 0.0
        self._told: tuple[object, ...] = ()
        self._means: dict[str, Array] = {}
        self._edges = np.zeros(1)
        self._picture: PixelImage | None = None
        self._pictured: tuple[object, ...] = ()
        self._textures: list[Array] = []
        self._textured: tuple[object, ...] = ()

    # -- what is told ---------------------------------------------------------------------------------------------

    def show_series(
        self,
        series: MemorySeries,
        span: tuple[float, float],
        origin: float,
        folds: Folds,
        until: float,
        compared: str,
        message: str,
    ) -> None:
        """`span` in values of the axis; `until`, where the trace ends so far, in seconds of it; `compared` names the
        line; a `message` stands in the picture's place."""
        self.series, self.span, self.origin, self.compared, self.message = series, span, origin, compared, message
        self.folds = folds
        shown = (id(series), series.count, span, until, origin, len(folds), compared, message)
        told = (*shown, self.width(), self.height(), theme.zoom())
        if told != self._told:
            self._told, self._until = told, until
            self._measure()
            self.update()

    def point_at(self, cursor: float | None, pointed: float | None) -> None:
        """Where the lines of the cursor and of the pointer are, in seconds of the trace."""
        if (cursor, pointed) != (self._cursor, self._pointed):
            self._cursor, self._pointed = cursor, pointed
            self.update()

    def _measure(self) -> None:
        """What each pixel column shows, in bytes, and how high the axis is."""
        area, series, size = self.area(), self.series, self.series.token_bytes
        columns = max(1, int(area.width()))
        begin, end = self.span
        edges = begin + (end - begin) * np.arange(columns + 1) / columns
        last = min(end, self.value_of(self._until))
        edges = np.append(edges[edges < last - 1e-9], last) if last > begin else edges[:1]
        self._edges = edges
        names = (*KINDS, self.compared) if self.compared else KINDS
        means = series.means(names, self.origin + self.folds.times(edges))
        self._means = {name: mean * size for name, mean in means.items()}
        held = sum(self._means[kind] for kind in KINDS)
        highest = float(np.max(held, initial=0.0))
        compared = float(np.max(self._means[self.compared], initial=0.0)) if self.compared else 0.0
        self.top = axis_top(series.pool * size, highest, compared)

    # -- geometry -------------------------------------------------------------------------------------------------

    def area(self) -> QRectF:
        """Where the kinds are drawn."""
        px = theme.px
        gutter = self.tiny.width("00.0 MB") + px(6)
        line = math.ceil(self.tiny.height)
        top, foot = (px(5) if self._short and not self._beyond else line + px(1)), line + px(3)
        width, height = self.width() - gutter - px(1), self.height() - top - foot
        return QRectF(gutter, top, max(1.0, width), max(1.0, height))

    @property
    def _short(self) -> bool:
        """Too low for a line of words above the picture."""
        return self.height() < theme.px(96)

    @property
    def _beyond(self) -> bool:
        """The pool ends above the picture, which words above it say."""
        return self.series.pool * self.series.token_bytes > self.top

    def value_of(self, time: float) -> float:
        """Where a moment is on the axis."""
        return float(self.folds.values(time - self.origin))

    def time_at(self, x: float) -> float:
        area, (begin, end) = self.area(), self.span
        return self.origin + float(self.folds.times(begin + (x - area.left()) / area.width() * (end - begin)))

    def x_at(self, time: float) -> float:
        return self._x_of(self.value_of(time))

    def _x_of(self, value: float) -> float:
        area, (begin, end) = self.area(), self.span
        return area.left() + (value - begin) / (end - begin) * area.width()

    def breaks(self) -> list[Break]:
        """Where the axis is folded."""
        return breaks_in(self.folds, *self.span, self.area())

    # -- painting -------------------------------------------------------------------------------------------------

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        t, area, over = theme.current(), self.area(), theme.px(3)
        painter.fillRect(self.rect(), t.panel)
        if self.message:
            self.say_empty(painter, self.message, margin=8)
            return
        if len(self._edges) > 1:
            self._draw(painter, area)
        breaks = self.breaks()
        draw_breaks(painter, breaks, area, round(area.bottom()), round(area.top()))
        self._axes(painter, area, breaks)
        for time, color in ((self._pointed, t.secondary), (self._cursor, t.accent)):
            if time is not None and self.span[0] <= self.value_of(time) <= self.span[1]:
                painter.fillRect(QRectF(round(self.x_at(time)), area.top() - over, 1, area.height() + 2 * over), color)

    def _draw(self, painter: QPainter, area: QRectF) -> None:
        if painter.paintEngine().type() != QPaintEngine.Type.SVG:
            painter.drawImage(area.topLeft(), self._image(area, painter.device().devicePixelRatioF()))
            return
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._stack(painter, area)
        if self.compared:
            self._line(painter, area)
        painter.restore()

    def _image(self, area: QRectF, ratio: float) -> PixelImage:
        """The kinds and the line, in whole device pixels; drawn anew only where something changed."""
        t = theme.current()
        height, width = max(1, round(area.height() * ratio)), max(1, round(area.width() * ratio))
        look = (height, width, ratio, t.name, theme.zoom())
        pictured = (self._told, self.top, look)
        if pictured == self._pictured and self._picture is not None:
            return self._picture
        if look != self._textured:
            self._textured = look
            self._textures = [patterns.texture(kind, height, width, ratio) for kind in KINDS]
        edges = self._edges
        at = self.span[0] + (np.arange(width) + 0.5) / width * (self.span[1] - self.span[0])
        places = np.searchsorted(edges, at, "right") - 1
        seen = np.flatnonzero((places >= 0) & (places < len(edges) - 1))
        places = places[seen]
        scale = height / self.top
        heights = np.zeros((len(KINDS), width))
        heights[:, seen] = np.stack([self._means[kind] for kind in KINDS])[:, places] * scale
        outlines = {KINDS.index("external"): patterns.color("external", t).rgb()}
        pixels = textured(heights, self._textures, outlines, t.panel.rgb())
        if self.compared and len(seen):
            part, zoom = pixels[:, seen[0] : seen[-1] + 1], ratio * theme.zoom()
            draw_dashes(part, self._means[self.compared][places] * scale, t.text.rgb(), max(1, round(1.2 * zoom)), zoom)
        self._picture, self._pictured = PixelImage(pixels, ratio), pictured
        return self._picture

    def _stack(self, painter: QPainter, area: QRectF) -> None:
        """From the highest sum down, so that each kind covers what is below it but for its own band."""
        sums = np.cumsum([np.zeros(len(self._edges) - 1), *(self._means[kind] for kind in KINDS)], axis=0)
        for kind, low, high in reversed(list(zip(KINDS, sums, sums[1:]))):
            path = QPainterPath()
            for run in _runs(self._means[kind] > 0):
                path.addPolygon(QPolygonF(self._steps(area, run, high) + self._steps(area, run, low)[::-1]))
                path.closeSubpath()
            patterns.fill(painter, path, kind)

    def _line(self, painter: QPainter, area: QRectF) -> None:
        values = self._means[self.compared]
        painter.setPen(dash(theme.current().text))
        for run in _runs(values <= self.top):  # a drawing is not clipped
            painter.drawPolyline(QPolygonF(self._steps(area, run, values)))

    def _steps(self, area: QRectF, run: slice, values: Array) -> list[QPointF]:
        """From left to right over a run of columns, level in each."""
        begin, end = self.span
        edges = area.left() + (self._edges[run.start : run.stop + 1] - begin) / (end - begin) * area.width()
        heights = area.bottom() - np.clip(values[run] / self.top, 0, 2) * area.height()
        return [QPointF(x, y) for x, y in zip(np.repeat(edges, 2)[1:-1].tolist(), np.repeat(heights, 2).tolist())]

    def _axes(self, painter: QPainter, area: QRectF, breaks: list[Break]) -> None:
        t, face, px = theme.current(), self.tiny, theme.px
        painter.fillRect(QRectF(area.left(), area.bottom(), area.width(), 1), t.hairline)
        pool = self.series.pool * self.series.token_bytes
        if not self._beyond:
            y = float(round(area.bottom() - pool / self.top * area.height()))
            painter.fillRect(QRectF(area.left(), y, area.width(), 1), t.secondary)
        if (named := self.pool_words()) is not None:  # a low picture's highest tick says it
            words, x, baseline = named
            say_on_plate(painter, face, x, baseline, words)
        high = min(pool, self.top)
        roomy = high / self.top * area.height() > 2 * face.height + face.cap
        values = (0.0, high / 2, high) if roomy else (0.0, high)
        up = [(area.bottom() - v / self.top * area.height(), bytes_words(v) if v else "0") for v in values]
        axes.side(painter, face, up, area.left() - px(6), area.bottom())
        ticks = self.folds.ticks(*self.span, area.width() / px(88))
        across = with_breaks([(self._x_of(at), word) for at, word in ticks], breaks, area, face, px(10))
        below = area.bottom() + px(3) + face.ascent
        axes.foot(painter, face, across, below, area.left(), self.width(), apart=px(10), moved=False)

    def pool_words(self) -> tuple[str, float, float] | None:
        """The pool's name, and where it stands: above the picture if the pool is beyond it, else beside the pool's
        line where nothing that is drawn runs under it. None where there is no room."""
        area, face, px = self.area(), self.tiny, theme.px
        pool = self.series.pool * self.series.token_bytes
        words = tr("pool {bytes}", bytes=bytes_words(pool))
        if self._beyond:
            return f"{words} ↑", area.right() - face.width(f"{words} ↑"), area.top() - px(3)
        if self._short:
            return None
        line, wide = area.bottom() - pool / self.top * area.height(), face.width(words)
        above, below = line - px(3), line + px(2) + face.ascent
        places = [(x, y) for y in (above, below) for x in (area.right() - wide - px(4), area.left() + px(4))]
        at = next((place for place in places if self._free(plate_of(face, *place, words))), places[0])
        return words, *at

    def _free(self, plate: QRectF) -> bool:
        """Whether neither a kind nor the line is drawn there."""
        if not self._means:
            return True
        area, (begin, end) = self.area(), self.span
        x = area.left() + (self._edges - begin) / (end - begin) * area.width()
        seen = (x[1:] >= plate.left()) & (x[:-1] <= plate.right())
        foot, top = ((area.bottom() - y) / area.height() * self.top for y in (plate.bottom(), plate.top()))
        held = sum(self._means[kind][seen].max(initial=0.0) for kind in KINDS)
        line = self._means[self.compared][seen] if self.compared else np.zeros(0)
        return bool(held <= foot and (line.max(initial=0.0) < foot or line.min(initial=math.inf) > top))

    # -- the person -----------------------------------------------------------------------------------------------

    def moment_at(self, at: QPointF) -> float | None:
        return self.time_at(at.x())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        area, x = self.area(), event.position().x()
        self.hovered.emit(self.time_at(x) if area.left() <= x <= area.right() else None)

    def leaveEvent(self, event: QEvent) -> None:
        self.hovered.emit(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Home, Qt.Key.Key_End):
            first = self.origin + float(self.folds.times(self.span[0]))
            self.sought.emit(first if event.key() == Qt.Key.Key_Home else math.inf)
        else:
            super().keyPressEvent(event)


def dash(color: QColor) -> QPen:
    """The pen of what is computed."""
    pen = QPen(color, theme.stroke(1.25))
    pen.setDashPattern([4, 3])
    return pen


def fill_kinds(
    painter: QPainter, box: QRectF, moment: Moment, kinds: Sequence[str], whole: int, least: float = 0.0
) -> None:
    """Kinds one after another, each as wide as its share of the `whole`, and at least so many pixels."""
    x = box.left()
    for kind in kinds:
        width = getattr(moment, kind) / whole * box.width()
        if width > 0:
            patterns.fill(painter, QRectF(x, box.top(), max(least, width), box.height()), kind)
        x += width


def _runs(there: Array) -> list[slice]:
    """The runs of neighbours that are True."""
    borders = np.flatnonzero(np.diff(there.astype(np.int8), prepend=0, append=0)).tolist()
    return [slice(begin, end) for begin, end in zip(borders[::2], borders[1::2])]
