"""The roof that was measured at load: its slope, its flat part and the ridge between them, each with its figure."""

from collections.abc import Callable

from PySide6.QtCore import QLineF, QPointF, QRectF
from PySide6.QtGui import QPainter, QPen, QPolygonF, QTransform

from app.inside.roofline.frame import CROWDED, SIDE, Frame
from app.inside.roofline.points import Point, RooflinePoints
from app.inside.roofline.words import amount, rate_words
from app.language import tr
from app.plot.inked import inked
from app.ui.look import theme
from app.ui.look.font_face import FontFace
from app.words import bytes_words


def draw_roof(
    painter: QPainter,
    frame: Frame,
    points: RooflinePoints,
    point: Point | None,
    face: FontFace,
    meets: Callable[[QRectF], bool],
) -> list[QPolygonF]:
    """As it is for a step of that point's bytes. Returns where its slope and its words are; `meets` tells whether
    a step is drawn there."""
    roof, t, px, area = points.roof, theme.current(), theme.px, frame.area
    if roof is None:
        return []
    size = point.bytes if point is not None else roof.working_sets[-1]
    bandwidth = roof.bandwidth_at(size)
    ridge = roof.operations / bandwidth
    corner = QPointF(float(frame.x(ridge)), float(frame.y(roof.operations)))
    start = max(10**frame.left, 10**frame.low / bandwidth)
    foot = QPointF(float(frame.x(start)), float(frame.y(start * bandwidth)))
    slope = QLineF(foot, corner)
    with inked(painter, t.panel, QPen(t.text, theme.stroke(1.25))):
        painter.drawLine(slope)
        painter.drawLine(QLineF(corner, QPointF(area.right(), corner.y())))
        painter.drawEllipse(corner, px(3), px(3))
    rate = rate_words(roof.operations)
    named = tr("{rate} matrix products, measured at load", rate=rate)
    wordings = (named, tr("{rate} measured at load", rate=rate), rate)
    crowded = corner.y() - area.top() < face.height  # beside the title of the axis
    left = max(area.left(), face.width(SIDE) + px(8)) if crowded else area.left()
    word = next((word for word in wordings if face.width(word) <= area.right() - left), rate)
    x = max(area.left(), area.right() - face.width(word))
    baseline = -px(5) - face.descent
    face.say(painter, x, corner.y() + baseline, word, t.secondary)
    box = QPolygonF(QRectF(x, corner.y() + baseline - face.cap, face.width(word), face.cap))
    said = [box, QPolygonF([foot, corner])]
    if area.height() < px(CROWDED):
        return said
    speed = f"{bytes_words(bandwidth)}/s"
    copied = tr("{speed} copied at {bytes}, measured at load", speed=speed, bytes=bytes_words(size))
    for word in (copied, tr("{speed}, measured at load", speed=speed), speed):
        long, middle = face.width(word), slope.pointAt(0.5)
        along = QTransform.fromTranslate(middle.x(), middle.y()).rotate(-slope.angle())
        box = along.map(QPolygonF(QRectF(-long / 2, baseline - face.cap, long, face.cap)))
        if long <= slope.length() - px(16) and not box.intersects(said[0]):
            painter.save()
            painter.setTransform(along, True)
            face.say(painter, 0, baseline, word, t.secondary, before=0.5)
            painter.restore()
            said.append(box)
            break
    word = tr("ridge {n} per byte", n=amount(ridge))
    x, y = corner.x() + px(8), corner.y() + px(5) + face.ascent
    room = QRectF(x, y - face.cap, face.width(word), face.cap)
    if room.right() <= area.right() and not meets(room):
        face.say(painter, x, y, word, t.secondary)
        said.append(QPolygonF(room))
    return said
