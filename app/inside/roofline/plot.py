"""The drawing of the roofline: both axes logarithmic, the roof, a point a step, the one at the cursor large."""

import numpy as np
from PySide6.QtCore import QEvent, QLineF, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QImage, QMouseEvent, QPainter, QPen, QPixmap, QPolygonF

from app.inside.chart import Chart
from app.inside.roofline.elsewhere import Elsewhere, draw_elsewhere, elsewhere_words
from app.inside.roofline.exchange import draw_exchange, exchange_words
from app.inside.roofline.frame import CROWDED, SIDE, Frame, frame_of
from app.inside.roofline.parts import draw_parts, part_words
from app.inside.roofline.points import (
    DECODE,
    FINENESS,
    KINDS,
    MIXED,
    PREFILL,
    X_DECADES,
    Y_DECADES,
    Part,
    Point,
    RooflinePoints,
)
from app.inside.roofline.roof import draw_roof
from app.inside.roofline.words import FORMULAS, KIND_TITLES, amount, detail, headline, percent, point_words
from app.language import tr
from app.plot import axes
from app.plot.inked import inked, mixed
from app.plot.scales import decade_ticks
from app.ui.look import theme
from app.ui.look.font_face import Face, FontFace
from engine.trace import Array

RECENT = 2000  # points that are drawn one by one
AGES = ((100, 0.95), (500, 0.5), (RECENT, 0.28))  # how many of the latest, and how strong
HUES = {PREFILL: 300.0, DECODE: 195.0, MIXED: 80.0}
FRESH = 1.02
COARSE = 2.0  # pixels within which several points are drawn as one
NEAR = 14  # pixels of the design
EMPTY = tr("Which limit of the machine binds each step: nothing has run yet.")
LOW = 200  # pixels of the design: a lower one says its verdict in a line, and draws more
WRAPPED = int(Qt.TextFlag.TextWordWrap)
Lines = list[tuple[FontFace, QColor, str]]


class RooflinePlot(Chart):
    """Shows what `show_points` was given last. A click goes to a point's step."""

    hint, least = (420, 320), (220, 150)
    head, low, small, tiny = Face(14, 600), Face(12, 600), Face(12), Face(11)

    def __init__(self) -> None:
        super().__init__("roofline_plot", tr("Bottleneck: operations a second over operations per byte of each step"))
        self.setMouseTracking(True)
        self.points = RooflinePoints()
        self.place, self.origin, self.hovered = -1, 0.0, -1
        self.empty_text = EMPTY
        self.elsewhere: Elsewhere | None = None
        self._drawn = (0, np.zeros(0), np.zeros(0))  # the first place, and pixels of the points from there on
        self._raster: tuple[tuple[object, ...], QPixmap] | None = None
        self._rastered = 0  # how many steps are in it
        self._exchange = QRectF()  # where the limit of the ranks' exchange is
        self._parts: list[tuple[QRectF, Part]] = []

    def show_points(
        self, points: RooflinePoints, place: int, origin: float, empty: str = EMPTY, elsewhere: Elsewhere | None = None
    ) -> None:
        """These points, with the one of this place at the cursor (-1: none); `origin` is the time shown as zero.
        `empty` is said where there is none at all; the roof of a device `elsewhere` is drawn too."""
        self.empty_text = empty
        if points is not self.points:
            self._raster, self.hovered, self._parts = None, -1, []
            self._drawn = (0, np.zeros(0), np.zeros(0))  # what is still on the screen is another trace's
        self.points, self.place, self.origin, self.elsewhere = points, place, origin, elsewhere
        point = self.point
        self.setAccessibleDescription(f"{headline(point)}. {detail(point)}." if point is not None else empty)
        self.update()

    @property
    def point(self) -> Point | None:
        return self.points.point(self.place) if self.place >= 0 else None

    # -- painting -------------------------------------------------------------------------------------------------

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        px = theme.px
        if not len(self.points):
            self.say_empty(painter, self.empty_text)
            return
        over = self.tiny.height + px(4)
        gutter = max(self.tiny.width("100 G"), self.tiny.width("10 T")) + px(8)
        foot = self.height() - 2 * self.tiny.height - px(6)
        top = self._say(painter, self._verdict(foot - over - px(CROWDED))) + over
        area = QRectF(gutter, top, max(1.0, self.width() - gutter - px(8)), max(1.0, foot - top))
        roomy = area.height() >= px(CROWDED)
        there = self.elsewhere if self.point is not None and roomy else None
        frame = frame_of(self.points, self.point, area, (there.bandwidth, there.rate) if there is not None else None)
        self._axes(painter, frame)
        painter.save()
        painter.setClipRect(frame.area.adjusted(-px(6), -px(6), px(6), px(6)))
        self._density(painter, frame)
        self._recent(painter, frame)
        painter.restore()
        point = self.point
        taken = draw_roof(painter, frame, self.points, point, self.tiny, lambda box: self._meets(frame, box))
        exchanging = point is not None and point.ceiling and roomy
        self._exchange = draw_exchange(painter, frame, point, self.tiny) if point and exchanging else QRectF()
        if point is not None and there is not None:
            taken += draw_elsewhere(painter, frame, point, there, self.tiny)
        taken += [QPolygonF(self._exchange), QPolygonF(self._around(frame, point))] if point is not None else []
        self._parts = draw_parts(painter, frame, point, self.tiny, taken) if point is not None and roomy else []
        self._cursor(painter, frame)
        self.paint_focus(painter, 4)

    def _verdict(self, room: float) -> Lines:
        """As much of the verdict as leaves the drawing its height; the panel's head has it in short."""
        t, point = theme.current(), self.point
        said = headline(point) if point is not None else tr("Before the first step")
        ways: list[Lines] = [[(self.head, t.text, said)], [(self.low, t.text, said)], []]
        if point is not None and self.height() >= theme.px(LOW):
            ways.insert(0, [*ways[0], (self.small, t.secondary, detail(point))])
            if self.elsewhere is not None:
                told = elsewhere_words(self.points, point, self.place, self.elsewhere)
                ways.insert(0, [*ways[0], (self.small, t.secondary, told)])
        return next((lines for lines in ways if self._height(lines) <= room), [])

    def _height(self, lines: Lines) -> float:
        """Of these lines, wrapped."""
        px, room = theme.px, QRectF(0, 0, self.width(), 10_000)
        return px(8) + sum(face.metrics.boundingRect(room, WRAPPED, text).height() + px(2) for face, _, text in lines)

    def _say(self, painter: QPainter, lines: Lines) -> float:
        """Draws them; returns where they end."""
        y = float(theme.px(2))
        for i, (face, color, text) in enumerate(lines):
            painter.setFont(face.font)
            painter.setPen(color)
            painter.drawText(QRectF(0, y, self.width(), 10_000), WRAPPED, text)
            y = self._height(lines[: i + 1]) - theme.px(6)
        return y + theme.px(6)

    def _axes(self, painter: QPainter, frame: Frame) -> None:
        t, px, tiny, area = theme.current(), theme.px, self.tiny, frame.area
        painter.fillRect(QRectF(area.left(), area.bottom(), area.width(), 1), t.hairline)
        painter.fillRect(QRectF(area.left(), area.top(), 1, area.height()), t.hairline)
        across = [(float(frame.x(value)), amount(value)) for value in decade_ticks(frame.left, frame.right)]
        up = [(float(frame.y(value)), amount(value)) for value in decade_ticks(frame.low, frame.high)]
        for x, _ in across:
            painter.fillRect(QRectF(x, area.bottom(), 1, px(3)), t.secondary)
        for y, _ in up:
            painter.fillRect(QRectF(area.left() - px(3), y, px(3), 1), t.secondary)
        below = area.bottom() + px(5) + tiny.ascent
        axes.foot(painter, tiny, across, below, area.left(), area.right(), apart=px(8))
        axes.side(painter, tiny, up, area.left() - px(6), apart=tiny.height)
        title = tiny.cut(SIDE, area.right())
        tiny.say(painter, 0, area.top() - px(4) - tiny.descent, title, t.secondary)
        self._foot(painter, area, area.bottom() + px(5) + tiny.height + tiny.ascent)

    def _foot(self, painter: QPainter, area: QRectF, baseline: float) -> None:
        """What the marks mean, and the title of the axis."""
        px, tiny, ink = theme.px, self.tiny, theme.current().secondary
        there = [kind for kind in (PREFILL, DECODE, MIXED) if np.any(self.points.kind == kind)]
        signs = sum(px(24) + tiny.width(KIND_TITLES[KINDS[kind]]) for kind in there)
        titles = tr("operations per byte"), tr("op. per byte")
        title = next((title for title in titles if tiny.width(title) <= area.right() - signs), titles[1])
        title = tiny.cut(title, max(area.width() / 2, area.right() - signs))
        tiny.say(painter, area.right(), baseline, title, ink, before=1)
        x, room = 0.0, area.right() - tiny.width(title) - px(8)
        for kind in there:
            wide = px(12) + tiny.width(KIND_TITLES[KINDS[kind]])
            if x + wide > room:
                break
            self._marks(painter, kind, np.array([x + px(5)]), np.array([baseline - tiny.cap / 2]), 1.0, px(7))
            tiny.say(painter, x + px(12), baseline, KIND_TITLES[KINDS[kind]], ink)
            x += wide + px(12)

    def _density(self, painter: QPainter, frame: Frame) -> None:
        """The whole run, the darker the more steps."""
        counts = self.points.density
        area, ratio = frame.area.toAlignedRect(), self.devicePixelRatioF()
        # Made anew when there are a fiftieth more steps, since scaling it costs as much as all the rest.
        grown = len(self.points) > FRESH * self._rastered
        if self._raster is None or grown or self._raster[0] != (frame, theme.current().name, ratio):
            color = theme.current().secondary
            alpha = np.log1p(counts) / max(1.0, np.log1p(counts.max())) * 0.4
            channels = (color.blue(), color.green(), color.red(), 255)
            pixels = np.ascontiguousarray((alpha.T[::-1, :, None] * channels).astype(np.uint8))
            height, width = pixels.shape[:2]
            image = QImage(pixels.data, width, height, 4 * width, QImage.Format.Format_ARGB32_Premultiplied)
            left, right = ((v - X_DECADES[0]) * FINENESS for v in (frame.left, frame.right))
            top, bottom = ((Y_DECADES[1] - v) * FINENESS for v in (frame.high, frame.low))
            scaled = QPixmap(area.size() * ratio)
            scaled.setDevicePixelRatio(ratio)
            scaled.fill(Qt.GlobalColor.transparent)
            brush = QPainter(scaled)
            brush.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
            brush.drawImage(QRectF(QPointF(), area.size()), image, QRectF(left, top, right - left, bottom - top))
            brush.end()
            self._raster, self._rastered = ((frame, theme.current().name, ratio), scaled), len(self.points)
        painter.drawPixmap(area.topLeft(), self._raster[1])

    def _recent(self, painter: QPainter, frame: Frame) -> None:
        """The latest points up to the cursor, the older the fainter; of those on one pixel, one."""
        last = self.place + 1
        first = max(0, last - RECENT)
        across, up = self.points.places(first, last)
        xs, ys = frame.x(across), frame.y(up)
        self._drawn = first, xs, ys
        kinds = self.points.kind[first:last]
        size = theme.px(10 if theme.presenting() else 6)
        borders = [len(xs), *(max(0, len(xs) - count) for count, _ in AGES)]
        for end, begin, (_, strength) in reversed(list(zip(borders, borders[1:], AGES))):
            for kind in (DECODE, MIXED, PREFILL):
                at = begin + np.flatnonzero(kinds[begin:end] == kind)
                if len(at):
                    cells = np.unique(np.round(np.stack([xs[at], ys[at]]) / COARSE), axis=1) * COARSE
                    self._marks(painter, kind, cells[0], cells[1], strength, size)

    def _marks(self, painter: QPainter, kind: int, xs: Array, ys: Array, strength: float, size: float) -> None:
        """Decode: a disc. Prefill: an open square. Mixed: a ring."""
        t = theme.current()
        color = mixed(theme.oklch(t.lightness, t.chroma, HUES[kind]), strength)
        cap = Qt.PenCapStyle.SquareCap if kind == PREFILL else Qt.PenCapStyle.RoundCap
        dots = QPolygonF([QPointF(x, y) for x, y in zip(xs.tolist(), ys.tolist())])
        full = size if kind == PREFILL else size + 1
        painter.setPen(QPen(color, full, Qt.PenStyle.SolidLine, cap))
        painter.drawPoints(dots)
        if kind != DECODE:
            painter.setPen(QPen(t.panel, full - 2 * max(1.2, size / 5), Qt.PenStyle.SolidLine, cap))
            painter.drawPoints(dots)

    def _meets(self, frame: Frame, box: QRectF) -> bool:
        """Whether a point is drawn there."""
        _, xs, ys = self._drawn
        reach = theme.px(6)
        near = (np.abs(xs - box.center().x()) < box.width() / 2 + reach) & (
            np.abs(ys - box.center().y()) < box.height() / 2 + reach
        )
        return bool(near.any()) or (self.point is not None and self._around(frame, self.point).intersects(box))

    def _around(self, frame: Frame, point: Point) -> QRectF:
        """The circle of the point at the cursor."""
        reach = theme.px(9)
        x, y = float(frame.x(point.intensity)), float(frame.y(point.achieved))
        return QRectF(x - reach, y - reach, 2 * reach, 2 * reach)

    def _cursor(self, painter: QPainter, frame: Frame) -> None:
        t, px, tiny, point = theme.current(), theme.px, self.tiny, self.point
        if point is None:
            return
        x, y = float(frame.x(point.intensity)), float(frame.y(point.achieved))
        if point.limit:
            above = float(frame.y(point.limit))
            painter.setPen(QPen(t.accent, theme.stroke(2 / 3)))
            painter.drawLine(QLineF(x, y, x, above))
            word = percent(point.share)
            if abs(y - above) > tiny.height + px(8) and not self._parts:
                left = x + px(6) + tiny.width(word) > frame.area.right()
                baseline = (y + above) / 2 + tiny.middle
                tiny.say(painter, x - px(6) if left else x + px(6), baseline, word, t.text, before=float(left))
        kind = KINDS.index(point.kind)
        painter.setPen(QPen(t.panel, px(17), Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
        painter.drawPoint(QPointF(x, y))
        with inked(painter, line=QPen(t.accent, theme.stroke(1.5))):
            painter.drawEllipse(QPointF(x, y), px(8), px(8))
        self._marks(painter, kind, np.array([x]), np.array([y]), 1.0, px(8))
        first, xs, ys = self._drawn
        if self.hovered >= 0 and 0 <= self.hovered - first < len(xs):
            with inked(painter, line=t.text):
                painter.drawEllipse(QPointF(xs[self.hovered - first], ys[self.hovered - first]), px(6), px(6))

    # -- the pointer and the keys ---------------------------------------------------------------------------------

    def nearest(self, x: float, y: float) -> int:
        """The place of the point that is drawn nearest to there, -1 where none is near."""
        first, xs, ys = self._drawn
        if not len(xs):
            return -1
        distance = (xs - x) ** 2 + (ys - y) ** 2
        best = len(xs) - 1 - int(np.argmin(distance[::-1]))  # of several on one spot, the latest
        return first + best if distance[best] <= theme.px(NEAR) ** 2 else -1

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        hovered = self.nearest(event.position().x(), event.position().y())
        self.setCursor(Qt.CursorShape.PointingHandCursor if hovered >= 0 else Qt.CursorShape.ArrowCursor)
        if hovered != self.hovered:
            self.hovered = hovered
            self.update()

    def leaveEvent(self, event: QEvent) -> None:
        self.hovered = -1
        self.update()

    def moment_at(self, at: QPointF) -> float | None:
        place = self.nearest(at.x(), at.y())
        return float(self.points.ended[place]) if place >= 0 else None

    def tip(self, at: QPointF) -> str:
        """The step of a point that is near, else what the picture means."""
        pointed = next((part for box, part in self._parts if box.contains(at)), None)
        if pointed is not None:
            return part_words(pointed)
        place, point, header = self.nearest(at.x(), at.y()), self.point, self.points.header
        if place >= 0:
            return point_words(self.points.point(place), self.origin)
        if point is not None and self._exchange.contains(at) and header is not None and header.interconnect is not None:
            return exchange_words(point, header.interconnect.way)
        return FORMULAS
