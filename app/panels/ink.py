"""Texts in one font, shaped once and drawn many times: half the cost of drawing them anew."""

from __future__ import annotations

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QFont, QFontMetricsF, QPainter, QStaticText, QTransform

KEPT = 4096


class Ink:
    """Set the painter's font to `font` before `draw`. Forgets everything now and then, so that it stays small."""

    def __init__(self, font: QFont) -> None:
        self.font, self.metrics = font, QFontMetricsF(font)
        self.ascent, self.descent, self.height = self.metrics.ascent(), self.metrics.descent(), self.metrics.height()
        self.middle = self.metrics.xHeight() / 2
        self._texts: dict[str, tuple[QStaticText, float]] = {}

    def _shaped(self, text: str) -> tuple[QStaticText, float]:
        known = self._texts.get(text)
        if known is None:
            if len(self._texts) >= KEPT:
                self._texts.clear()
            shaped = QStaticText(text)
            shaped.setTextFormat(Qt.TextFormat.PlainText)
            shaped.prepare(QTransform(), self.font)
            known = self._texts[text] = shaped, self.metrics.horizontalAdvance(text)
        return known

    def width(self, text: str) -> float:
        """Its advance, in pixels."""
        return self._shaped(text)[1]

    def draw(self, painter: QPainter, x: float, baseline: float, text: str) -> None:
        """Draws the text with its baseline's left end at (x, baseline)."""
        painter.drawStaticText(QPointF(x, baseline - self.ascent), self._shaped(text)[0])

    def cut(self, text: str, width: float, mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight) -> str:
        """The text, with an ellipsis where it is wider than `width`."""
        return text if self.width(text) <= width else self.metrics.elidedText(text, mode, width)
