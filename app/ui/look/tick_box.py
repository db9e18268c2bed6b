"""A tick box that looks alike in every theme and zoom: the tick is drawn, not only coloured."""

from PySide6.QtCore import QPoint, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QCheckBox

from app.ui.look import theme

TICK = ((0.22, 0.52), (0.43, 0.73), (0.8, 0.3))  # its corners, as shares of the box
SIDE, GAP = 14, 7  # of the box, and between it and the words; pixels of the design


class TickBox(QCheckBox):
    """`name` is the object name."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.setObjectName(name)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        theme.changes.theme_changed.connect(self.updateGeometry)

    def sizeHint(self) -> QSize:
        words = self.fontMetrics().horizontalAdvance(self.text())
        high = max(self.fontMetrics().height(), theme.px(SIDE)) + theme.px(6)
        return QSize(theme.px(SIDE + GAP + 6) + words, high)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def hitButton(self, pos: QPoint) -> bool:
        return self.rect().contains(pos)

    def paintEvent(self, event: QPaintEvent) -> None:
        t, px = theme.current(), theme.px
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        side, on, able = px(SIDE), self.isChecked(), self.isEnabled()
        box = QRectF(px(2) + 0.5, round((self.height() - side) / 2) + 0.5, side - 1, side - 1)
        if self.hasFocus():
            painter.setPen(QPen(t.accent, 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), px(4), px(4))
        painter.setPen(QPen(t.accent if on and able else t.faint if able else t.edge, 1))
        painter.setBrush(t.accent if on and able else t.field)
        painter.drawRoundedRect(box, px(3), px(3))
        if on:
            painter.setPen(QPen(t.on_accent if able else t.faint, max(1.6, 1.8 * theme.zoom())))
            x, y, w = box.left(), box.top(), box.width()
            painter.drawPolyline([QPointF(x + across * w, y + down * w) for across, down in TICK])
        painter.setFont(self.font())
        painter.setPen(t.text if able else t.faint)
        words = QRectF(self.rect()).adjusted(px(2) + side + px(GAP), 0, 0, 0)
        painter.drawText(words, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, self.text())
        painter.end()
