"""The patterns that tell kinds of work apart in a step, beside their colours: solid, hatched, grey, crossed."""

from __future__ import annotations

from enum import Enum

from PySide6.QtCore import QLineF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen

from app import theme
from app.panels.step_story import StepRow, Waste
from engine import Kind

DIMMED = 0.55
BETWEEN, LINE = 0.34, 0.92  # how strong a hatch's colour is between its lines and in them


class Mark(Enum):
    """SOLID: decode. HATCH: prefill. GREY: padding, and rows held until the longest ends. CROSS: thrown away."""

    SOLID = 0
    HATCH = 1
    GREY = 2
    CROSS = 3


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
    if selected in (-1, request):
        return color
    faded = QColor(color)
    faded.setAlphaF(DIMMED)
    return theme.over(faded, theme.current().panel)


def with_alpha(color: QColor, alpha: float) -> QColor:
    result = QColor(color)
    result.setAlphaF(alpha)
    return result


def paint_mark(painter: QPainter, box: QRectF, color: QColor, mark: Mark) -> None:
    """Fills a box with a colour in this pattern; lines run on through boxes side by side."""
    if box.width() <= 0 or box.height() <= 0:
        return
    match mark:
        case Mark.SOLID:
            painter.fillRect(box, color)
        case Mark.HATCH:
            painter.fillRect(box, with_alpha(color, BETWEEN))
            _hatch(painter, box, with_alpha(color, LINE), rising=True)
        case Mark.GREY:
            grey = theme.current().secondary
            painter.fillRect(box, with_alpha(grey, 0.08))
            _hatch(painter, box, with_alpha(grey, 0.5), rising=False)
        case Mark.CROSS:
            thin = max(1.0, theme.zoom())
            inner = box.adjusted(thin / 2, thin / 2, -thin / 2, -thin / 2)
            painter.save()
            painter.setPen(QPen(color, thin))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(inner)
            painter.drawLine(QLineF(inner.topLeft(), inner.bottomRight()))
            painter.drawLine(QLineF(inner.bottomLeft(), inner.topRight()))
            painter.restore()


def _hatch(painter: QPainter, box: QRectF, color: QColor, rising: bool) -> None:
    period, high = theme.px(5), box.height()
    painter.save()
    painter.setClipRect(box, Qt.ClipOperation.IntersectClip)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(color, 1.3 * theme.zoom()))
    slope = box.top() if rising else -box.bottom()  # bound to the picture, not to the box
    x = box.left() - high - (box.left() - high + slope) % period
    lines = []
    while x < box.right() + period:
        one, other = (x + high, x) if rising else (x, x + high)
        lines.append(QLineF(one, box.top(), other, box.bottom()))
        x += period
    painter.drawLines(lines)
    painter.restore()
