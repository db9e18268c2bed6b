"""Where a panel that looks inside will stand: it is built when it is first seen."""

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.inside.insights import Insight
from app.inside.panel import InsightPanel
from app.playback.scope import Scope


class InsightPlace(QWidget):
    """Empty and free until it is shown."""

    built = Signal(object)  # InsightPanel

    def __init__(self, insight: Insight, scope: Scope) -> None:
        super().__init__()
        self.setObjectName(f"{insight.name}_place")
        self.insight, self._scope = insight, scope
        self.panel: InsightPanel | None = None
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)

    def build(self) -> InsightPanel:
        """The panel, now."""
        if self.panel is None:
            self.panel = self.insight.build(self._scope)
            self._column.addWidget(self.panel)
            self.built.emit(self.panel)
        return self.panel

    def close_down(self) -> None:
        """The view is going, the scope may stay."""
        if self.panel is not None:
            self.panel.close_down()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self.panel is None:
            QTimer.singleShot(0, self, self._on_shown)  # docks are shown for a moment while they are being arranged

    def _on_shown(self) -> None:
        if self.isVisible():
            self.build()
