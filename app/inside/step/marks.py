"""How a step's rows are told apart: each by its request's colour, and by a pattern for what was done with it."""

from PySide6.QtCore import QPointF
from PySide6.QtGui import QColor, QPainter

from app.inside.step.story import StepRow, Waste
from app.plot.inked import inked, mixed
from app.plot.patterns import Mark
from app.ui.look import theme
from engine.trace import Kind

DIMMED = 0.55


def mark_of(row: StepRow) -> Mark:
    """How a row is drawn."""
    if row.kind is Kind.HELD:
        return Mark.GREY
    if row.waste is Waste.PAST:
        return Mark.CROSS
    return Mark.HATCH if row.kind is Kind.PREFILL else Mark.SOLID


def request_color(request: int, selected: int) -> QColor:
    """A request's colour on a panel; weaker when another one is selected."""
    color = theme.request_color(request)
    return color if selected in (-1, request) else mixed(color, DIMMED)


def draw_dot(painter: QPainter, request: int, selected: int, left: float, middle: float) -> None:
    """The disc before a request's name."""
    radius = theme.px(4)
    with inked(painter, request_color(request, selected), smooth=True):
        painter.drawEllipse(QPointF(left + radius, middle), radius, radius)
