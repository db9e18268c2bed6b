"""The roof of a device that is not here, as its maker publishes it, beside the one that was measured."""

from dataclasses import dataclass

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPen, QPolygonF

from app.inside.roofline.frame import Frame
from app.inside.roofline.points import Point, RooflinePoints
from app.language import tr
from app.plot.inked import inked
from app.preferences import Preference
from app.ui.look import theme
from app.ui.look.font_face import FontFace
from app.words import duration
from engine.memory import Datasheet, datasheets

BESIDE = Preference("roofline/beside", "")


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """`rate`: operations a second in the dtype that the model computes in here."""

    name: str
    bandwidth: float
    rate: float

    def limit(self, intensity: float) -> float:
        """Operations a second that its roof allows."""
        return min(self.rate, intensity * self.bandwidth)

    def seconds(self, point: Point) -> float:
        """That the step takes there at the least."""
        return point.operations / self.limit(point.intensity)


def chosen_elsewhere(points: RooflinePoints) -> Elsewhere | None:
    """The device that a person has chosen, for this run's dtype."""
    sheet: Datasheet | None = next((each for each in datasheets() if each.name == BESIDE.value), None)
    if sheet is None or points.header is None:
        return None
    rate = sheet.rate(points.header.model.dtype)
    return Elsewhere(sheet.name, sheet.bandwidth, rate) if rate else None


def draw_elsewhere(painter: QPainter, frame: Frame, point: Point, there: Elsewhere, face: FontFace) -> list[QPolygonF]:
    """Its roof, dashed, and how far under it the step stands here. Returns where its slope and its name are."""
    t, area = theme.current(), frame.area
    ridge = there.rate / there.bandwidth
    corner = QPointF(float(frame.x(ridge)), float(frame.y(there.rate)))
    start = max(10**frame.left, 10**frame.low / there.bandwidth)
    foot = QPointF(float(frame.x(start)), float(frame.y(start * there.bandwidth)))
    with inked(painter, line=QPen(t.secondary, theme.stroke(1.25), Qt.PenStyle.DashLine), smooth=True):
        painter.drawPolyline([foot, corner, QPointF(area.right(), corner.y())])
    x, y = float(frame.x(point.intensity)), float(frame.y(there.limit(point.intensity)))
    with inked(painter, line=QPen(t.accent, theme.stroke(2 / 3), Qt.PenStyle.DotLine)):
        painter.drawLine(QLineF(x, float(frame.y(point.achieved)), x, y))
    with inked(painter, t.panel, QPen(t.accent, theme.stroke(1.25)), smooth=True):
        painter.drawEllipse(QPointF(x, y), theme.px(3), theme.px(3))
    words = tr("{device}, as published", device=there.name)
    wide = face.width(words)
    left, baseline = area.right() - wide, corner.y() + theme.px(5) + face.ascent
    if left < corner.x():  # no room under what is flat
        left, baseline = corner.x() - wide - theme.px(8), corner.y() - theme.px(2)
    box = QRectF(left, baseline - face.cap, wide, face.cap)
    if left < area.left() or box.top() < area.top():
        return [QPolygonF([foot, corner])]
    face.say(painter, left, baseline, words, t.secondary)
    return [QPolygonF([foot, corner]), QPolygonF(box)]


def elsewhere_words(points: RooflinePoints, point: Point, place: int, there: Elsewhere) -> str:
    """What the step, and all until it, take there at the least."""
    flat = there.limit(point.intensity) == there.rate
    here, least = points.seconds_until(place), points.least_until(place, there.bandwidth, there.rate)
    words = {
        "device": there.name,
        "step": duration(there.seconds(point)),
        "bound": tr("compute-bound") if flat else tr("memory-bound"),
        "here": duration(point.seconds),
        "run": duration(least),
        "run_here": duration(here),
    }
    return tr(
        "{device}, as published: this forward would take at least {step} ({bound}), not {here}; all so far at least "
        "{run}, not {run_here}",
        **words,
    )
