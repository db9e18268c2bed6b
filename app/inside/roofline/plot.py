"""The drawing of the roofline: both axes logarithmic, the roof, a point a step, the one at the cursor large."""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtCore import QEvent, QLineF, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QFontMetricsF,
    QImage,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPixmap,
    QPolygonF,
)
from PySide6.QtWidgets import QSizePolicy

from app.inside.roofline.frame import Frame, frame_of
from app.inside.roofline.points import (
    DECODE,
    FINENESS,
    KINDS,
    MIXED,
    PREFILL,
    X_DECADES,
    Y_DECADES,
    Point,
    RooflinePoints,
)
from app.inside.roofline.words import FORMULAS, amount, detail, headline, percent, point_words, rate_words
from app.plot.scales import decade_ticks
from app.ui import theme
from app.ui.font_face import FontFace
from app.ui.painted import Painted
from app.words import bytes_words
from engine.trace import Array

RECENT = 2000  # points that are drawn one by one
AGES = ((100, 0.95), (500, 0.5), (RECENT, 0.28))  # how many of the latest, and how strong
HUES = {PREFILL: 300.0, DECODE: 195.0, MIXED: 80.0}
FRESH = 1.02
COARSE = 2.0  # pixels within which several points are drawn as one
NEAR = 14  # pixels of the design
EMPTY = "Which limit of the machine binds each step: nothing has run yet."


class RooflinePlot(Painted):
    """Shows what `show_points` was given last. The arrow keys go from step to step, a click goes to a point's step."""

    chosen = Signal(int)  # place of a point
    stepped = Signal(int)  # so many steps on

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("roofline_plot")
        self.setAccessibleName("Bottleneck: operations a second over operations per byte of each step")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.points = RooflinePoints()
        self.place, self.origin, self.hovered = -1, 0.0, -1
        self._drawn = (0, np.zeros(0), np.zeros(0))  # the first place, and pixels of the points from there on
        self._raster: tuple[tuple[object, ...], QPixmap] | None = None
        self._rastered = 0  # how many steps are in it
        self.restyle()

    def restyle(self) -> None:
        self._head, self._small, self._tiny = map(FontFace, (theme.ui(14, 600), theme.ui(12), theme.ui(11)))
        self._raster = None
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(theme.px(420), theme.px(320))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(220), theme.px(150))

    def show_points(self, points: RooflinePoints, place: int, origin: float) -> None:
        """These points, with the one of this place at the cursor (-1: none); `origin` is the time shown as zero."""
        if points is not self.points:
            self._raster, self.hovered = None, -1
            self._drawn = (0, np.zeros(0), np.zeros(0))  # what is still on the screen is another trace's
        self.points, self.place, self.origin = points, place, origin
        point = self.point
        self.setAccessibleDescription(f"{headline(point)}. {detail(point)}." if point is not None else EMPTY)
        self.update()

    @property
    def point(self) -> Point | None:
        return self.points.point(self.place) if self.place >= 0 else None

    # -- painting -------------------------------------------------------------------------------------------------

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        t, px = theme.current(), theme.px
        if not self.points.count:
            painter.setFont(self._small.font)
            painter.setPen(t.secondary)
            flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.drawText(QRectF(self.rect()).adjusted(px(12), 0, -px(12), 0), flags, EMPTY)
            painter.end()
            return
        top = self._words(painter)
        gutter = max(self._tiny.width("100 G"), self._tiny.width("10 T")) + px(8)
        foot, top = self.height() - 2 * self._tiny.height - px(6), top + self._tiny.height + px(4)
        area = QRectF(gutter, top, max(1.0, self.width() - gutter - px(8)), max(1.0, foot - top))
        frame = frame_of(self.points, self.point, area)
        self._axes(painter, frame)
        painter.save()
        painter.setClipRect(frame.area.adjusted(-px(6), -px(6), px(6), px(6)))
        self._density(painter, frame)
        self._recent(painter, frame)
        painter.restore()
        self._roof(painter, frame)
        self._cursor(painter, frame)
        self.paint_focus(painter, 4)
        painter.end()

    def _words(self, painter: QPainter) -> float:
        """The verdict, wrapped; returns where it ends."""
        t, y = theme.current(), float(theme.px(2))
        point = self.point
        title = headline(point) if point is not None else "Before the first step"
        for face, color, text in (
            (self._head, t.text, title),
            (self._small, t.secondary, detail(point) if point is not None else ""),
        ):
            if not text:
                continue
            room = QRectF(0, y, self.width(), 10_000)
            flags = int(Qt.TextFlag.TextWordWrap)
            painter.setFont(face.font)
            painter.setPen(color)
            painter.drawText(room, flags, text)
            y += QFontMetricsF(face.font).boundingRect(room, flags, text).height() + theme.px(2)
        return y + theme.px(6)

    def _axes(self, painter: QPainter, frame: Frame) -> None:
        t, px, tiny, area = theme.current(), theme.px, self._tiny, frame.area
        painter.fillRect(QRectF(area.left(), area.bottom(), area.width(), 1), t.hairline)
        painter.fillRect(QRectF(area.left(), area.top(), 1, area.height()), t.hairline)
        painter.setFont(tiny.font)
        painter.setPen(t.secondary)
        cap, last = tiny.metrics.capHeight(), -math.inf
        for value in decade_ticks(frame.left, frame.right):
            word, x = amount(value), float(frame.x(value))
            x0 = min(max(x - tiny.width(word) / 2, area.left()), area.right() - tiny.width(word))
            painter.fillRect(QRectF(x, area.bottom(), 1, px(3)), t.secondary)
            if x0 > last + px(8):
                tiny.draw(painter, x0, area.bottom() + px(5) + tiny.ascent, word)
                last = x0 + tiny.width(word)
        last = math.inf
        for value in decade_ticks(frame.low, frame.high):
            word, y = amount(value), float(frame.y(value))
            painter.fillRect(QRectF(area.left() - px(3), y, px(3), 1), t.secondary)
            if y < last - tiny.height:
                tiny.draw(painter, area.left() - px(6) - tiny.width(word), y + cap / 2, word)
                last = y
        y = area.top() - px(4) - tiny.descent
        tiny.draw(painter, 0, y, tiny.cut("operations a second", area.right()))
        y = area.bottom() + px(5) + tiny.height + tiny.ascent
        word = tiny.cut("operations per byte", area.width() / 2)
        tiny.draw(painter, area.right() - tiny.width(word), y, word)
        x, room = 0.0, area.right() - tiny.width(word) - px(16)
        shown = [kind for kind in (PREFILL, DECODE, MIXED) if np.any(self.points.kinds == kind)]
        for kind in shown:
            if x + px(12) + tiny.width(KINDS[kind]) > room:
                break
            self._marks(painter, kind, np.array([x + px(5)]), np.array([y - cap / 2]), 1.0, px(7))
            painter.setPen(t.secondary)
            tiny.draw(painter, x + px(12), y, KINDS[kind])
            x += px(12) + tiny.width(KINDS[kind]) + px(12)

    def _density(self, painter: QPainter, frame: Frame) -> None:
        """The whole run, the darker the more steps."""
        counts = self.points.density
        area, ratio = frame.area.toAlignedRect(), self.devicePixelRatioF()
        # Made anew when there are a fiftieth more steps, since scaling it costs as much as all the rest.
        grown = self.points.count > FRESH * self._rastered
        if self._raster is None or grown or self._raster[0] != (frame, theme.current().name, ratio):
            color = theme.current().secondary
            alpha = np.log1p(counts) / max(1.0, np.log1p(counts.max())) * 0.4
            pixels = np.zeros((*counts.T.shape, 4), np.uint8)
            for channel, value in enumerate((color.blue(), color.green(), color.red(), 255)):
                pixels[..., channel] = (alpha * value).T[::-1]
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
            self._raster, self._rastered = ((frame, theme.current().name, ratio), scaled), self.points.count
        painter.drawPixmap(area.topLeft(), self._raster[1])

    def _recent(self, painter: QPainter, frame: Frame) -> None:
        """The latest points up to the cursor, the older the fainter; of those on one pixel, one."""
        last = self.place + 1
        first = max(0, last - RECENT)
        across, up = self.points.places(first, last)
        xs, ys = frame.x(across), frame.y(up)
        self._drawn = first, xs, ys
        kinds = self.points.kinds[first:last]
        end = len(xs)
        strengths = []
        for count, strength in AGES:
            begin = max(0, len(xs) - count)
            strengths.append((begin, end, strength))
            end = begin
        for begin, end, strength in reversed(strengths):
            for kind in (DECODE, MIXED, PREFILL):
                at = begin + np.flatnonzero(kinds[begin:end] == kind)
                if len(at):
                    cells = np.unique(np.round(np.stack([xs[at], ys[at]]) / COARSE), axis=1) * COARSE
                    self._marks(painter, kind, cells[0], cells[1], strength, theme.px(6))

    def _marks(self, painter: QPainter, kind: int, xs: Array, ys: Array, strength: float, size: float) -> None:
        """Decode: a disc. Prefill: an open square. Mixed: a ring."""
        t = theme.current()
        color = theme.over(theme.faded(theme.oklch(t.lightness, t.chroma, HUES[kind]), strength), t.panel)
        cap = Qt.PenCapStyle.SquareCap if kind == PREFILL else Qt.PenCapStyle.RoundCap
        dots = QPolygonF([QPointF(x, y) for x, y in zip(xs.tolist(), ys.tolist())])
        full = size if kind == PREFILL else size + 1
        painter.setPen(QPen(color, full, Qt.PenStyle.SolidLine, cap))
        painter.drawPoints(dots)
        if kind != DECODE:
            painter.setPen(QPen(t.panel, full - 2 * max(1.2, size / 5), Qt.PenStyle.SolidLine, cap))
            painter.drawPoints(dots)

    def _roof(self, painter: QPainter, frame: Frame) -> None:
        roof, t, px, tiny, area = self.points.roof, theme.current(), theme.px, self._tiny, frame.area
        if roof is None:
            return
        point = self.point
        size = point.bytes if point is not None else roof.working_sets[-1]
        bandwidth = roof.bandwidth_at(size)
        ridge = roof.operations / bandwidth
        corner = QPointF(float(frame.x(ridge)), float(frame.y(roof.operations)))
        start = max(10**frame.left, 10**frame.low / bandwidth)
        foot = QPointF(float(frame.x(start)), float(frame.y(start * bandwidth)))
        pen = QPen(t.text, max(1.0, theme.zoom() * 1.25))
        painter.setPen(pen)
        painter.drawLine(QLineF(foot, corner))
        painter.drawLine(QLineF(corner, QPointF(area.right(), corner.y())))
        painter.setBrush(t.panel)
        painter.drawEllipse(corner, px(3), px(3))
        painter.setFont(tiny.font)
        painter.setPen(t.secondary)
        flat = ("matrix products, measured at load", "measured at load", "")
        room = area.right() - area.left()
        for more in flat:
            word = f"{rate_words(roof.operations)} {more}".strip()
            if tiny.width(word) <= room:
                break
        x = max(area.left(), area.right() - tiny.width(word))
        tiny.draw(painter, x, corner.y() - px(5) - tiny.descent, word)
        slope = QLineF(foot, corner)
        for more in (f" copied at {bytes_words(size)}, measured at load", ", measured at load", ""):
            word = f"{bytes_words(bandwidth)}/s{more}"
            if tiny.width(word) <= slope.length() - px(16):
                painter.save()
                painter.translate(slope.pointAt(0.5))
                painter.rotate(-slope.angle())
                tiny.draw(painter, -tiny.width(word) / 2, -px(5) - tiny.descent, word)
                painter.restore()
                break
        word = f"ridge {amount(ridge)} per byte"
        if corner.x() + px(8) + tiny.width(word) <= area.right():
            tiny.draw(painter, corner.x() + px(8), corner.y() + px(5) + tiny.ascent, word)

    def _cursor(self, painter: QPainter, frame: Frame) -> None:
        t, px, tiny = theme.current(), theme.px, self._tiny
        point = self.point
        if point is None:
            return
        x, y = float(frame.x(point.intensity)), float(frame.y(point.achieved))
        if point.limit:
            above = float(frame.y(point.limit))
            painter.setPen(QPen(t.accent, 1))
            painter.drawLine(QLineF(x, y, x, above))
            word = percent(point.share)
            painter.setFont(tiny.font)
            painter.setPen(t.text)
            left = x + px(6) + tiny.width(word) > frame.area.right()
            middle = (y + above) / 2
            if abs(y - above) > tiny.height + px(8):
                tiny.draw(painter, x - px(6) - tiny.width(word) if left else x + px(6), middle + tiny.middle, word)
        kind = KINDS.index(point.kind)
        painter.setPen(QPen(t.panel, px(17), Qt.PenStyle.SolidLine, Qt.PenCapStyle.RoundCap))
        painter.drawPoint(QPointF(x, y))
        painter.setPen(QPen(t.accent, max(1.5, 1.5 * theme.zoom())))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawEllipse(QPointF(x, y), px(8), px(8))
        self._marks(painter, kind, np.array([x]), np.array([y]), 1.0, px(8))
        if self.hovered >= 0:
            first, xs, ys = self._drawn
            at = self.hovered - first
            if 0 <= at < len(xs):
                painter.setPen(QPen(t.text, 1))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.drawEllipse(QPointF(xs[at], ys[at]), px(6), px(6))

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

    def mousePressEvent(self, event: QMouseEvent) -> None:
        place = self.nearest(event.position().x(), event.position().y())
        if event.button() is Qt.MouseButton.LeftButton and place >= 0:
            self.chosen.emit(place)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        match event.key():
            case Qt.Key.Key_Left:
                self.stepped.emit(-1)
            case Qt.Key.Key_Right:
                self.stepped.emit(1)
            case _:
                super().keyPressEvent(event)

    def tip(self, at: QPointF) -> str:
        """The step of a point that is near, else what the picture means."""
        place = self.nearest(at.x(), at.y())
        return point_words(self.points.point(place), self.origin) if place >= 0 else FORMULAS
