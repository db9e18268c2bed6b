"""The two parts of a step's forward under the roof, each a point by itself: matrix products, and attention."""

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen, QPolygonF

from app.inside.roofline.frame import Frame
from app.inside.roofline.points import Part, Point
from app.inside.roofline.words import amount, percent, rate_words
from app.language import tr
from app.plot.inked import inked, say_on_plate
from app.ui import theme
from app.ui.font_face import FontFace
from app.words import bytes_words, duration

HALF = 5  # pixels of the design, from a mark's middle to its corners
TITLES = {"products": tr("matrix products"), "attention": tr("attention")}


def draw_parts(painter: QPainter, frame: Frame, point: Point, face: FontFace) -> list[tuple[QRectF, Part]]:
    """Returns where each can be pointed at. Where there is no room for both names, the marks stand alone."""
    t, half, found = theme.current(), float(theme.px(HALF)), []
    for part in point.parts:
        x, y, roof = (float(at) for at in (frame.x(part.intensity), frame.y(part.achieved), frame.y(part.limit)))
        painter.setPen(QPen(t.text, theme.stroke(2 / 3), Qt.PenStyle.DotLine))
        painter.drawLine(QLineF(x, y, x, roof))
        corners = [QPointF(x - half, y), QPointF(x, y - half), QPointF(x + half, y), QPointF(x, y + half)]
        with inked(painter, t.panel, QPen(t.text, theme.stroke(1.25)), smooth=True):
            painter.drawPolygon(QPolygonF(corners))
        words = f"{TITLES[part.name]} {percent(part.share)}"
        wide = face.width(words)
        if wide <= frame.area.width() / 3:
            left = x + half + theme.px(4)
            if left + wide > frame.area.right():
                left = x - half - theme.px(4) - wide
            say_on_plate(painter, face, left, max(y + face.middle, roof + face.ascent + theme.px(2)), words)
        found.append((QRectF(x - half, y - half, 2 * half, 2 * half), part))
    return found


def part_words(part: Part) -> str:
    """The part in its tooltip."""
    rate = rate_words(part.achieved)
    lines = (
        tr("{part}: {rate} in {time}", part=TITLES[part.name], rate=rate, time=duration(part.seconds)),
        tr(
            "{operations} operations ÷ {bytes} = {intensity} per byte",
            operations=amount(part.operations),
            bytes=bytes_words(part.bytes),
            intensity=amount(part.intensity),
        ),
        tr("{share} of {rate}, the roof", share=percent(part.share), rate=rate_words(part.limit)),
    )
    return "\n".join(lines)
