"""What widgets that draw themselves have in common."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF
from PySide6.QtGui import QHelpEvent
from PySide6.QtWidgets import QToolTip, QWidget


class Painted(QWidget):
    """Says what lies under the pointer: a subclass answers `tip`."""

    def tip(self, at: QPointF) -> str:
        """In words, "" where there is nothing to say."""
        return ""

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            QToolTip.showText(event.globalPos(), self.tip(QPointF(event.pos())), self)
            return True
        return super().event(event)
