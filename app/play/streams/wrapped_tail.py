"""The last wrapped lines of a text that grows: only what is new is wrapped, and lines above stay where they are."""

from PySide6.QtGui import QFont, QFontMetricsF, QTextLayout, QTextOption

KEPT = 24
LONGEST = 4_000
Span = tuple[int, int]


def wrap_columns(text: str, start: int, columns: int) -> list[Span]:
    """Half-open ranges `[begin, end)` of the lines from `start` on, at most `columns` characters, cut at spaces."""
    spans, n = [], len(text)
    while start < n:
        newline = text.find("\n", start, start + columns + 1)
        if newline >= 0:
            spans.append((start, newline))
            start = newline + 1
            continue
        if n - start <= columns:
            spans.append((start, n))
            break
        cut = text.rfind(" ", start + 1, start + columns + 1)
        if cut < 0:
            spans.append((start, start + columns))
            start += columns
        else:
            spans.append((start, cut))
            start = cut + 1
    return spans


def wrap_shaped(text: str, start: int, font: QFont, width: float) -> list[Span]:
    """As `wrap_columns`, for any script: Qt shapes the text and measures it. `width` in pixels."""
    spans = []
    option = QTextOption()
    option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    while start < len(text):
        end = text.find("\n", start)
        paragraph = text[start : end if end >= 0 else len(text)]
        units = paragraph.encode("utf-16-le", "replace")
        layout = QTextLayout(units.decode("utf-16-le"), font)
        layout.setTextOption(option)
        layout.beginLayout()
        at = start
        while (line := layout.createLine()).isValid():
            line.setLineWidth(width)
            first, count = line.textStart(), line.textLength()
            # Qt counts UTF-16 units, Python code points
            length = len(units[2 * first : 2 * (first + count)].decode("utf-16-le", "replace"))
            spans.append((at, at + length))
            at += length
        layout.endLayout()
        if not paragraph:
            spans.append((start, start))
        start += len(paragraph) + 1
    return spans


def columns_of(font: QFont, width: float) -> int:
    """How many characters of a fixed-width font fit in `width` pixels."""
    return max(8, int(width / QFontMetricsF(font).horizontalAdvance("0") + 0.01))


class WrappedTail:
    """The lines of one text at one width. `update` costs what is new; a text met late is begun near its end."""

    def __init__(self, font: QFont, width: float, columns: int | None = None) -> None:
        self._font, self._width = font, width
        self._columns = columns if columns is not None else columns_of(font, width)
        self._closed: list[tuple[str, int]] = []
        self.lines: list[str] = []
        self.starts: list[int] = []  # where each of the lines begins in the text
        self._open = self._seen = 0

    def update(self, text: str) -> list[str]:
        """The last wrapped lines, at most `KEPT`, blank ones left out.

        `text` is a beginning of the same text every time: what it says more costs what it is long, less all of it.
        """
        if len(text) == self._seen:
            return self.lines
        if len(text) < self._seen:  # a moment before
            self._closed, self._open = [], 0
        if not text:
            self._seen, self.lines, self.starts = 0, [], []
            return self.lines
        if len(text) - self._open > LONGEST:
            begin = len(text) - LONGEST // 2
            space = text.find(" ", begin, begin + 200)
            self._closed, self._open = [], space + 1 if space >= 0 else begin
        self._seen = len(text)
        if text[self._open :].isascii():
            spans = wrap_columns(text, self._open, self._columns)
        else:
            spans = wrap_shaped(text, self._open, self._font, self._width)
        lines = [(text[begin:end].rstrip().expandtabs(4), begin) for begin, end in spans]
        whole = len(lines) if text.endswith("\n") else len(lines) - 1
        self._open = len(text) if text.endswith("\n") else spans[-1][0]
        self._closed += [each for each in lines[:whole] if each[0]]
        del self._closed[:-KEPT]
        kept = [*self._closed, *(each for each in lines[whole:] if each[0])]
        self.lines, self.starts = [line for line, _ in kept], [start for _, start in kept]
        return self.lines
