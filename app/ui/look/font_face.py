"""Texts in one font, and how wide they are: asked many times a frame, measured once."""

from functools import lru_cache

from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter

from app.ui.look import theme

KEPT = 4096
ZEROS = str.maketrans("123456789", "000000000")


class FontFace:
    """Set the painter's font to `font` before `draw`."""

    def __init__(self, font: QFont) -> None:
        self.font, self.metrics = font, QFontMetricsF(font)
        self.ascent, self.descent, self.height = self.metrics.ascent(), self.metrics.descent(), self.metrics.height()
        self.cap, self.middle = self.metrics.capHeight(), self.metrics.xHeight() / 2
        self._widths: dict[str, float] = {}

    def width(self, text: str) -> float:
        """Its advance, in pixels; all digits are as wide as a zero."""
        key = text.translate(ZEROS)
        width = self._widths.get(key)
        if width is None:
            if len(self._widths) >= KEPT:
                self._widths.clear()
            width = self._widths[key] = self.metrics.horizontalAdvance(key)
        return width

    def draw(self, painter: QPainter, x: float, baseline: float, text: str) -> None:
        """Draws the text with its baseline's left end at (x, baseline)."""
        painter.drawText(QPointF(x, baseline), text)

    def say(
        self, painter: QPainter, x: float, baseline: float, text: str, color: QColor, *, before: float = 0.0
    ) -> None:
        """Draws in this font and a colour; `before` is the share of the text that lies left of x: 1 ends it there."""
        painter.setFont(self.font)
        painter.setPen(color)
        painter.drawText(QPointF(x - before * self.width(text) if before else x, baseline), text)

    def baseline(self, top: float, height: float) -> float:
        """Of a line in the middle of so much room."""
        return top + (height + self.ascent - self.descent) / 2

    def cut(self, text: str, width: float, mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight) -> str:
        """The text, with an ellipsis where it is wider than `width`."""
        return text if self.width(text) <= width else self.metrics.elidedText(text, mode, width)

    def longest(self, width: float, *said: str) -> str:
        """The first of these, from the longest on, that has room; else a part of the last."""
        return next((text for text in said if self.width(text) <= width), self.cut(said[-1], width))

    def last_words(self, text: str, width: float) -> str:
        """As many of its last words as `width` has room for, or a part of the very last."""
        cut = self.cut(text, width, Qt.TextElideMode.ElideLeft)
        _, _, whole = cut.partition(" ")
        return f"… {whole}" if whole and cut != text else cut


def wrapped(text: str, face: FontFace, width: float, lines: int = 99) -> list[str]:
    """The first `lines` lines of a short text, the last one elided."""
    result: list[str] = []
    words = text.split()
    while words and len(result) < lines:
        line = words.pop(0)
        if len(result) == lines - 1:
            line = " ".join((line, *words))
        else:
            while words and face.metrics.horizontalAdvance(f"{line} {words[0]}") <= width:
                line = f"{line} {words.pop(0)}"
        result.append(face.cut(line, width))
    return result


class Face:
    """A font that a class declares, at the zoom in force: `tiny = Face(11)`, then `self.tiny.width(...)`.

    `size` in pixels of the design; `mono` for the streams' font, `spaced` for titles in capitals.
    """

    def __init__(self, size: float, weight: int = 400, *, mono: bool = False, spaced: bool = False) -> None:
        self._asked = size, weight, mono, spaced

    def __get__(self, instance: object, owner: type | None = None) -> FontFace:
        return _face(*self._asked, theme.zoom(), theme.smallest(), theme.stream_font())


@lru_cache(maxsize=256)
def _face(
    size: float, weight: int, mono: bool, spaced: bool, zoom: float, smallest: float, stream_font: str
) -> FontFace:
    font = (theme.mono if mono else theme.ui)(size, weight)
    if spaced:
        font.setLetterSpacing(QFont.SpacingType.AbsoluteSpacing, 0.4 * zoom)
    return FontFace(font)
