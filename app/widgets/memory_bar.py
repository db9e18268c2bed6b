"""What a model takes of a memory: weights, KV pool, what others use, what is free."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app import theme
from app.words import bytes_words


class MemoryBar(QWidget):
    """Segments over the whole memory, in bytes. The KV pool is hatched, so that colour is not its only sign."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("memory_bar")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self._weights = self._pool = self._others = self._total = 0

    def set_bytes(self, weights: int, pool: int, others: int, total: int) -> None:
        self._weights, self._pool, self._others, self._total = weights, pool, others, total
        words = (
            f"weights {bytes_words(weights)}, KV pool {bytes_words(pool)}, in use by others {bytes_words(others)}, "
            f"of {bytes_words(total)}"
        )
        self.setToolTip(words)
        self.setAccessibleName(f"Memory: {words}")
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(80, theme.px(6))

    def paintEvent(self, event: QPaintEvent) -> None:
        tokens = theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        area = QRectF(self.rect())
        shape = QPainterPath()
        shape.addRoundedRect(area, 2, 2)
        painter.setClipPath(shape)
        painter.fillRect(area, theme.over(tokens.edge, tokens.panel))
        x = 0.0
        if self._total > 0:
            for count, color, hatched in (
                (self._others, tokens.secondary, False),
                (self._weights, tokens.accent, False),
                (self._pool, tokens.good, True),
            ):
                width = area.width() * count / self._total
                if 0 < width < 2:
                    width = 2.0
                part = QRectF(x, 0, width, area.height())
                painter.fillRect(part, color)
                if hatched:
                    painter.fillRect(part, QBrush(tokens.panel, Qt.BrushStyle.BDiagPattern))
                x += width
        painter.end()
