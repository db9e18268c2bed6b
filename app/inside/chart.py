"""A picture of a run in which a person goes to a moment."""

from PySide6.QtCore import QPointF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QSizePolicy

from app.ui.painted import Painted


class Chart(Painted):
    """A press or a drag goes to the moment there, the arrow keys from step to step."""

    sought = Signal(float)  # seconds of the trace
    stepped = Signal(int)  # so many steps on

    def __init__(self, name: str, said: str) -> None:
        super().__init__(name, said, focus=True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def moment_at(self, at: QPointF) -> float | None:
        """What a press there goes to."""
        return None

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            self._seek(event.position())

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._seek(event.position())

    def _seek(self, at: QPointF) -> None:
        moment = self.moment_at(at)
        if moment is not None:
            self.sought.emit(moment)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            self.stepped.emit(-1 if event.key() == Qt.Key.Key_Left else 1)
        else:
            super().keyPressEvent(event)
