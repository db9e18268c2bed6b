"""What widgets that draw themselves have in common."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPen
from PySide6.QtWidgets import QToolTip, QWidget

from app.ui import theme


class Painted(QWidget):
    """Says what lies under the pointer, and shows that it has the focus; Qt itself has it painted when that changes."""

    def tip(self, at: QPointF) -> str:
        """In words; "" leaves it to what the widget lies in."""
        return ""

    def paint_focus(self, painter: QPainter, radius: float = 0) -> None:
        """A ring along its rim, its corners rounded by so many pixels of the design."""
        if self.hasFocus():
            painter.setPen(QPen(theme.current().accent, 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            ring, round_by = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), theme.px(radius)
            painter.drawRoundedRect(ring, round_by, round_by)

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            words = self.tip(QPointF(event.pos()))
            QToolTip.showText(event.globalPos(), words, self)
            if words:
                return True
        return super().event(event)
