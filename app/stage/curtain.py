"""What covers the stage: black, or the list of keys."""

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QObject, QRect, Qt
from PySide6.QtGui import QMouseEvent, QPainter
from PySide6.QtWidgets import QFrame, QGridLayout, QWidget

from app.language import tr
from app.ui.labels import label
from app.ui.layout.boxes import column, named
from app.ui.layout.zoomed import zoomed
from app.ui.painted import Painted

HEADING = tr("Keys while presenting")


class Curtain(Painted):
    """All of the window is black; a click lifts it."""

    def __init__(self, over: QWidget) -> None:
        super().__init__("curtain", tr("The screen is black"), parent=over)
        self._over = over
        over.installEventFilter(self)
        self.hide()

    def toggle(self) -> None:
        self.setGeometry(self._over.rect())
        self.setVisible(self.isHidden())
        self.raise_()

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        painter.fillRect(dirty, Qt.GlobalColor.black)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.hide()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize:
            self.setGeometry(self._over.rect())
        return super().eventFilter(watched, event)


class KeyCard(QFrame):
    """Keys and what they do, in the middle of the stage; a click, or the key that showed it, puts it away."""

    def __init__(self, over: QWidget, keys: Sequence[tuple[str, str]]) -> None:
        super().__init__(over)
        self._over = over
        named(self, "stage_keys", "popup", said=HEADING)
        grid = zoomed(QGridLayout(), spacing=8)
        for line, (key, words) in enumerate(keys):
            grid.addWidget(label(key, "key"), line, 0, Qt.AlignmentFlag.AlignRight)
            grid.addWidget(label(words, "caption"), line, 1)
        self.setLayout(zoomed(column(label(HEADING, "scene"), grid, spacing=12), (24, 16, 24, 20)))
        self.setAccessibleDescription(", ".join(f"{key}: {words}" for key, words in keys))
        self.hide()

    def toggle(self) -> None:
        if self.isHidden():
            self.adjustSize()
            self.move(self._over.rect().center() - self.rect().center())
        self.setVisible(self.isHidden())
        self.raise_()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self.hide()
