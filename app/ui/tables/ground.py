"""What a painted row of a list stands on."""

from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter, QPainterPath, QPen
from PySide6.QtWidgets import QStyle

from app.ui.look import theme


def paint_row_ground(painter: QPainter, ground: QRectF, state: QStyle.StateFlag) -> None:
    """Says whether the row is chosen, pointed at, or has the focus."""
    t, round_by = theme.current(), theme.px(6)
    selected = bool(state & QStyle.StateFlag.State_Selected)
    if selected or state & QStyle.StateFlag.State_MouseOver:
        shape = QPainterPath()
        shape.addRoundedRect(ground, round_by, round_by)
        painter.fillPath(shape, t.hover if selected else theme.over(t.hairline, t.panel))
    if selected and state & QStyle.StateFlag.State_HasFocus:
        painter.setPen(QPen(t.accent, 1))
        painter.drawRoundedRect(ground.adjusted(0.5, 0.5, -0.5, -0.5), round_by, round_by)
