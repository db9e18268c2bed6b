"""The two parts of a step's forward under the roof, each a point by itself: matrix products, and attention."""

from itertools import product

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen, QPolygonF

from app.inside.roofline.frame import Frame
from app.inside.roofline.points import Part, Point
from app.inside.roofline.words import amount, percent, rate_words
from app.language import tr
from app.plot.inked import inked, plate_of, say_on_plate
from app.ui.look import theme
from app.ui.look.font_face import FontFace
from app.words import bytes_words, duration

HALF = 5  # pixels of the design, from a mark's middle to its corners
TITLES = {"products": tr("matrix products"), "attention": tr("attention")}


def draw_parts(
    painter: QPainter, frame: Frame, point: Point, face: FontFace, taken: list[QPolygonF]
) -> list[tuple[QRectF, Part]]:
    """Returns where each can be pointed at. A mark whose name finds no room beside it, with other words at `taken`,
    stands alone."""
    t, half, found = theme.current(), float(theme.px(HALF)), []
    places = [(frame.x(part.intensity), frame.y(part.achieved), frame.y(part.limit)) for part in point.parts]
    marks = [QRectF(float(x) - half, float(y) - half, 2 * half, 2 * half) for x, y, _ in places]
    taken = [*taken, *map(QPolygonF, marks)]
    for part, mark, place in zip(point.parts, marks, places, strict=True):
        x, y, roof = map(float, place)
        painter.setPen(QPen(t.text, theme.stroke(2 / 3), Qt.PenStyle.DotLine))
        painter.drawLine(QLineF(x, y, x, roof))
        corners = [QPointF(x - half, y), QPointF(x, y - half), QPointF(x + half, y), QPointF(x, y + half)]
        words = f"{TITLES[part.name]} {percent(part.share)}"
        wide = face.width(words)
        gap, level = half + theme.px(4), max(y + face.middle, roof + face.ascent + theme.px(2))
        for left, baseline in product(
            (x + gap, x - gap - wide), (level, level + face.height, level - face.height, level + 2 * face.height)
        ):
            plate = plate_of(face, left, baseline, words)
            if frame.area.contains(plate) and not any(other.intersects(QPolygonF(plate)) for other in taken):
                if baseline != level:  # not beside its mark: a line leads there
                    painter.setPen(QPen(t.secondary, theme.stroke(2 / 3)))
                    painter.drawLine(QLineF(x, y, plate.left() if left > x else plate.right(), plate.center().y()))
                say_on_plate(painter, face, left, baseline, words)
                taken.append(QPolygonF(plate))
                break
        with inked(painter, t.panel, QPen(t.text, theme.stroke(1.25)), smooth=True):
            painter.drawPolygon(QPolygonF(corners))
        found.append((mark, part))
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
