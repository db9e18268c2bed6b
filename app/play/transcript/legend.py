"""What the grounds and underlines of tokens mean, in one line or as many as it needs."""

from __future__ import annotations

import math

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QSizePolicy

from app.play.transcript.styles import TOGETHER, Line, TokenMode, grounds, legend, underlines
from app.ui import theme
from app.ui.font_face import Face
from app.ui.painted import Painted

GAP, INSIDE = 4, 6
STYLES = {Line.DotLine: Qt.PenStyle.DotLine, Line.SingleUnderline: Qt.PenStyle.SolidLine}


class TokenLegend(Painted):
    """Samples of each class, with the class's words on its ground."""

    face = Face(11.5)

    def __init__(self) -> None:
        super().__init__("token_legend")
        policy = QSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self.mode = TokenMode.TEXT
        self.parts: list[tuple[int, str]] = []

    def say(self, mode: TokenMode, median: str = "", ttft: str = "", together: bool = False) -> None:
        """Another mode, or other times; it takes no room where there is nothing to tell."""
        parts = legend(mode, median, ttft, together)
        if (mode, parts) != (self.mode, self.parts):
            self.mode, self.parts = mode, parts
            self.setAccessibleName(", ".join(words for _, words in parts))
            self.setVisible(bool(parts))
            self.restyle()

    def _boxes(self, width: float) -> list[QRectF]:
        px, high = theme.px, self._line
        boxes, x, y = [], 0.0, 0.0
        for _, words in self.parts:
            wide = self.face.width(words) + 2 * px(INSIDE)
            if x > 0 and x + wide > width:
                x, y = 0.0, y + high + px(GAP)
            boxes.append(QRectF(x, y, min(wide, width), high))
            x += wide + px(GAP)
        return boxes

    @property
    def _line(self) -> float:
        return math.ceil(self.face.height) + theme.px(3)

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        boxes = self._boxes(width)
        return math.ceil(boxes[-1].bottom()) if boxes else 0

    def sizeHint(self) -> QSize:
        wide = sum(self.face.width(words) + theme.px(2 * INSIDE + GAP) for _, words in self.parts)
        return QSize(math.ceil(wide), self.heightForWidth(math.ceil(wide)))

    def minimumSizeHint(self) -> QSize:
        return QSize(theme.px(120), math.ceil(self._line))

    def paint(self, painter: QPainter, dirty: QRect) -> None:
        t, px, face = theme.current(), theme.px, self.face
        colors, lines = grounds(self.mode), underlines(self.mode)
        painter.translate(0, max(0, self.height() - self.heightForWidth(self.width())) // 2)
        for (kind, words), box in zip(self.parts, self._boxes(self.width())):
            painter.setPen(Qt.PenStyle.NoPen if kind in colors else QPen(t.hairline, 1))
            painter.setBrush(colors.get(kind, Qt.BrushStyle.NoBrush))
            painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), px(3), px(3))
            baseline = face.baseline(box.top(), box.height())
            text = face.cut(words, box.width() - 2 * px(INSIDE) + 1)
            face.say(painter, box.left() + px(INSIDE), baseline, text, t.text)
            if kind in lines or kind == TOGETHER:
                style, color = lines.get(kind, (Line.DashUnderline, t.faint))
                painter.setPen(QPen(color, max(1.0, theme.zoom()), STYLES.get(style, Qt.PenStyle.DashLine)))
                y = baseline + px(2)
                painter.drawLine(QPointF(box.left() + px(INSIDE), y), QPointF(box.right() - px(INSIDE), y))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.updateGeometry()
