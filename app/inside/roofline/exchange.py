"""The third limit of a split model, drawn: what the exchange between its ranks allows, as a dashed line."""

from PySide6.QtCore import QLineF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen

from app.inside.roofline.frame import Frame
from app.inside.roofline.points import Point
from app.inside.roofline.words import rate_words
from app.language import tr
from app.plot.inked import say_on_plate
from app.ui.look import theme
from app.ui.look.font_face import FontFace
from app.words import bytes_words, way_words

REACH = 4  # pixels of the design beside the line that are the line


def draw_exchange(painter: QPainter, frame: Frame, point: Point, face: FontFace) -> QRectF:
    """Returns where it can be pointed at. One that is far above the roof is told at the upper rim, without a line."""
    t, px, area = theme.current(), theme.px, frame.area
    y, beyond = float(frame.y(point.ceiling)), point.ceiling > 10**frame.high
    if not beyond:
        painter.setPen(QPen(t.text, theme.stroke(1.25), Qt.PenStyle.DashLine))
        painter.drawLine(QLineF(area.left(), y, area.right(), y))
    speed, size = f"{bytes_words(point.exchange)}/s", bytes_words(point.message)
    arrow = " ↑" if beyond else ""
    wordings = (
        tr("ranks exchange {speed} at {size}, measured at load", speed=speed, size=size),
        tr("ranks exchange {speed}", speed=speed),
        rate_words(point.ceiling),
    )
    x = area.left() + px(5)
    words = next((w for w in wordings if face.width(w + arrow) <= area.width() - px(8)), wordings[-1]) + arrow
    baseline = y - px(4) - face.descent
    if baseline - face.cap < area.top():
        baseline = y + px(4) + face.ascent
    say_on_plate(painter, face, x, baseline, words)
    return QRectF(area.left(), y - px(REACH), area.width(), 2 * px(REACH)).united(
        QRectF(x, baseline - face.ascent, face.width(words), face.height)
    )


def exchange_words(point: Point, way: str) -> str:
    """The line in the tooltip."""
    return "\n".join(
        (
            tr("What the exchange between ranks allows: {rate}", rate=rate_words(point.ceiling)),
            tr(
                "each rank sends {sent} in this step, in messages of {size}: at {speed}/s they take {time:.3g} ms",
                sent=bytes_words(point.sent),
                size=bytes_words(point.message),
                speed=bytes_words(point.exchange),
                time=1e3 * point.sent / point.exchange,
            ),
            tr(
                "limit = operations × bytes a second ÷ bytes that a rank sends; measured at load over {way}",
                way=way_words(way),
            ),
        )
    )
