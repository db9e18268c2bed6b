"""A text that grows at its end, the tokens of its answer on grounds of their classes, with a caret that goes by token.

Classes come as runs: a burst of tokens is one insertion a run, and a change of classes touches only what changed.
"""

from itertools import pairwise

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QRectF, Qt, Signal
from PySide6.QtGui import (
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
)
from PySide6.QtWidgets import QApplication, QPlainTextEdit

from app.language import tr
from app.play.transcript.styles import GHOST, PLAIN, THOUGHT, TokenMode, formats
from app.play.transcript.tokens import shown_units
from app.ui.look import theme
from engine.trace import Array, Column

NONE = np.zeros(0, np.int64)
UNKNOWN = 253  # a class that nothing has
END = 1 << 30  # a place behind all texts
Move, Keep = QTextCursor.MoveOperation, QTextCursor.MoveMode.KeepAnchor


class TokenText(QPlainTextEdit):
    """`token` is where the caret is, -1 for nowhere; `pointed` is the token under the pointer."""

    token_changed = Signal(int)  # the token whose card is wanted; -1: none
    token_chosen = Signal(int)  # clicked, or Enter

    def __init__(self) -> None:
        flags = Qt.TextInteractionFlag
        super().__init__(undoRedoEnabled=False, readOnly=True)
        self.setTextInteractionFlags(flags.TextSelectableByMouse | flags.TextSelectableByKeyboard)
        self.setObjectName("transcript_text")
        self.setAccessibleName(tr("Transcript"))
        self.viewport().setMouseTracking(True)
        self.mode = TokenMode.TEXT
        self.token = self.pointed = -1
        self._kinds: Array = np.zeros(0, np.uint8)  # [characters]: the class that each one is drawn in
        self._ends: Array = NONE  # [tokens]: where each one's text ends, in units from `_base`
        self._pressed: QPoint | None = None
        self._pinned = False  # to its end: what comes scrolls it on
        self.verticalScrollBar().valueChanged.connect(self._on_scrolled)
        self.verticalScrollBar().rangeChanged.connect(self._on_range)
        self.restyle()
        self.begin()

    # -- the text -------------------------------------------------------------------------------------------------

    def restyle(self) -> None:
        """Takes the theme's fonts and colours; write the text anew after it."""
        self.setFont(theme.mono(13))
        self._formats = formats(self.mode)

    def set_mode(self, mode: TokenMode) -> None:
        """How tokens are told apart from now on: show the answer again after it."""
        self.mode = mode
        self._formats = formats(mode)
        self._kinds = np.full_like(self._kinds, UNKNOWN)
        self.setCursorWidth(1 if mode is TokenMode.TEXT else 0)  # else the caret is the token's frame
        self.viewport().unsetCursor()
        self._mark(-1 if mode is TokenMode.TEXT else self.token, -1)

    def write(self, text: str, form: QTextCharFormat, apart: bool = False) -> None:
        """A new paragraph at the end, with an empty one before it if `apart`."""
        cursor = self._cursor(END)
        for _ in range(0 if self.document().isEmpty() else 2 if apart else 1):
            cursor.insertBlock(QTextBlockFormat(), form)
        cursor.insertText(text, form)

    def forget(self) -> None:
        """Empties itself: what was shown is another text."""
        self._text, self._ends, self.said = "", NONE, 0  # before anyone is told
        self._mark(-1, -1)
        self.clear()
        self._pinned = False
        self.begin()

    def begin(self) -> None:
        """The answer begins at the end of what is written."""
        self._base = self._cursor(END).position()
        self._starts = Column(np.int64)  # [characters + 1]: where in the document each one begins, from `_base`
        self._starts.append(0)
        self._kinds, self._ends, self._text, self.said = np.zeros(0, np.uint8), NONE, "", 0
        self._mark(-1, self.pointed)

    def show_answer(self, text: str, ends: Array, classes: Array, said: int, thought: int = 0) -> None:
        """Shows an answer that begins with the one before: `ends` [tokens] of the tokens' parts in characters, their
        `classes` [tokens], how many characters had been said, and how many of these were only thought. Costs what is
        new or changed."""
        assert len(text) >= len(self._text), "an answer only grows; begin anew"
        known = len(self._text)
        kinds = np.full(len(text), PLAIN, np.uint8)
        if len(ends) and self.mode is not TokenMode.TEXT:
            lengths = np.diff(ends, prepend=0)
            kinds[: int(ends[-1])] = np.repeat(classes, lengths)
        elif self.mode is TokenMode.TEXT:
            kinds[:thought] = THOUGHT
        kinds[said:] = GHOST
        bar, pinned = self.verticalScrollBar(), self._pinned
        value = bar.value()
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        self._recolor(cursor, kinds[:known])
        if len(text) > known:
            units = np.cumsum(shown_units(text[known:])) + self._units[-1]
            self._starts.extend(units, len(units))
            cursor.movePosition(Move.End)
            for begin, end in _runs(kinds[known:]):
                part = text[known + begin : known + end].replace("\r", "")
                cursor.insertText(part, self._formats[int(kinds[known + begin])])
        cursor.endEditBlock()
        self._text, self._kinds, self.said = text, kinds, said
        self._ends = self._units[ends] if len(ends) else NONE
        bar.setValue(bar.maximum() if pinned else value)
        self.viewport().update()

    def show_end(self) -> None:
        """The newest text is in sight, and what comes is followed until one scrolls up."""
        self._pinned = True
        self._on_range()

    def show_begin(self) -> None:
        """The answer's first line is in sight, and what was asked above it where there is room for all."""
        self._pinned = False
        bar, block = self.verticalScrollBar(), self.document().findBlock(self._base)
        bar.setValue(max(0, block.firstLineNumber()))  # its range ends where the last line is in sight

    def _on_scrolled(self, value: int) -> None:
        self._pinned = value >= self.verticalScrollBar().maximum()

    def _on_range(self) -> None:
        if self._pinned:
            self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())

    @property
    def _units(self) -> Array:
        return self._starts.values

    def _recolor(self, cursor: QTextCursor, kinds: Array) -> None:
        """Gives the characters that are there the classes that changed."""
        changed = np.flatnonzero(kinds != self._kinds)
        if not len(changed):
            return
        first, last = int(changed[0]), int(changed[-1]) + 1
        for begin, end in _runs(kinds[first:last]):
            begin, end = first + begin, first + end
            if (kinds[begin:end] != self._kinds[begin:end]).any():
                cursor.setPosition(self._base + int(self._units[begin]))
                cursor.setPosition(self._base + int(self._units[end]), Keep)
                cursor.setCharFormat(self._formats[int(kinds[begin])])

    # -- tokens ---------------------------------------------------------------------------------------------------

    @property
    def tokens(self) -> int:
        return len(self._ends)

    def units(self, token: int) -> tuple[int, int]:
        """The half-open range of a token's part in the document."""
        begin = int(self._ends[token - 1]) if token else 0
        return self._base + begin, self._base + int(self._ends[token])

    def token_at(self, position: int) -> int:
        """The token whose part holds the character at a place in the document; -1 outside the answer."""
        if position < self._base or not self.tokens or position >= self._base + int(self._ends[-1]):
            return -1
        return int(np.searchsorted(self._ends, position - self._base, "right"))

    def token_under(self, point: QPoint) -> int:
        """The token that is drawn at a point of the viewport; -1 where there is none."""
        cursor = self.cursorForPosition(point)
        if point.x() < self.cursorRect(cursor).left():
            cursor.movePosition(Move.Left)
        box = self.cursorRect(cursor)
        after = QTextCursor(cursor)
        after.movePosition(Move.Right)
        right = self.cursorRect(after).right()
        if not box.top() <= point.y() <= box.bottom() or point.x() < box.left() - 1:
            return -1
        if cursor.atBlockEnd() or (right > box.left() and point.x() > right + 1):
            return -1
        return self.token_at(cursor.position())

    def token_rects(self, token: int) -> list[QRectF]:
        """Where a token's part is drawn, in the viewport: a box a line, without those that hold only spaces."""
        begin, end = self.units(token)
        spaces: list[QRectF] = []
        boxes: list[QRectF] = []
        cursor = QTextCursor(self.document())
        block = self.document().findBlock(begin)
        while block.isValid() and block.position() < max(end, begin + 1):
            at, layout = block.position(), block.layout()
            corner = self.blockBoundingGeometry(block).translated(self.contentOffset()).topLeft()
            for i in range(layout.lineCount()):
                line = layout.lineAt(i)
                first = max(begin, at + line.textStart()) - at
                last = min(end, at + line.textStart() + line.textLength()) - at
                if first > last or (first == last and boxes):
                    continue
                left, right = (_x(line.cursorToX(each)) for each in (first, last))
                box = QRectF(min(left, right), line.y(), abs(right - left), line.height()).translated(corner)
                cursor.setPosition(at + first)
                cursor.setPosition(at + last, Keep)
                (boxes if cursor.selectedText().strip() else spaces).append(box)
            block = block.next()
        return boxes or spaces[:1]

    def go(self, token: int) -> None:
        """Puts the caret on a token and shows it; -1 takes it away."""
        token = min(token, self.tokens - 1)
        self._mark(token, self.pointed)
        if token >= 0:
            box = self.cursorRect(self._cursor(self.units(token)[0]))
            height, bar = self.viewport().height(), self.verticalScrollBar()
            if box.top() < 0 or box.bottom() > height:
                lines = (box.center().y() - height // 2) / max(1, box.height())
                bar.setValue(bar.value() + round(lines))

    def _cursor(self, position: int) -> QTextCursor:
        """At a place in the document; beyond it, at its end."""
        cursor = QTextCursor(self.document())
        cursor.setPosition(min(position, self.document().characterCount() - 1))
        return cursor

    def _mark(self, token: int, pointed: int) -> None:
        """Where the caret and the pointer are now."""
        if (token, pointed) != (self.token, self.pointed):
            self.token, self.pointed = token, pointed
            self.viewport().update()
            self.token_changed.emit(self.wanted)

    @property
    def wanted(self) -> int:
        """The token whose card is wanted: the pointer's, else the caret's."""
        return self.pointed if self.pointed >= 0 else self.token

    # -- events ---------------------------------------------------------------------------------------------------

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, plain = event.key(), not event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        if key == Qt.Key.Key_Space and plain:
            event.ignore()  # plays and pauses, and does not scroll
            return
        if not plain or self.mode is TokenMode.TEXT or not self.tokens:
            super().keyPressEvent(event)
            return
        at = self.token
        match key:
            case Qt.Key.Key_Left | Qt.Key.Key_Right | Qt.Key.Key_Up | Qt.Key.Key_Down if at < 0:
                self.go(max(0, self.token_at(self.cursorForPosition(QPoint(0, 0)).position())))
            case Qt.Key.Key_Left | Qt.Key.Key_Right:
                self.go(at + 1 if key == Qt.Key.Key_Right else max(0, at - 1))
            case Qt.Key.Key_Up | Qt.Key.Key_Down:
                self._go_line(Move.Up if key == Qt.Key.Key_Up else Move.Down)
            case Qt.Key.Key_Home:
                self.go(0)
            case Qt.Key.Key_End:
                self.go(self.tokens - 1)
            case Qt.Key.Key_Return | Qt.Key.Key_Enter if at >= 0:
                self.token_chosen.emit(at)
            case Qt.Key.Key_Escape if at >= 0:
                self.go(-1)
            case _:
                super().keyPressEvent(event)

    def _go_line(self, move: QTextCursor.MoveOperation) -> None:
        cursor = self._cursor(self.units(self.token)[0])
        if cursor.movePosition(move):
            token = self.token_at(cursor.position())
            if token >= 0 or cursor.position() >= self._base:
                self.go(token if token >= 0 else self.tokens - 1)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        super().mouseMoveEvent(event)
        over = self.mode is not TokenMode.TEXT and not event.buttons()
        token = self.token_under(event.position().toPoint()) if over else -1
        self._mark(self.token, token)
        shape = Qt.CursorShape.PointingHandCursor if token >= 0 else Qt.CursorShape.IBeamCursor
        self.viewport().setCursor(shape)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        super().mousePressEvent(event)
        self._pressed = event.position().toPoint() if event.button() is Qt.MouseButton.LeftButton else None

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        point, pressed = event.position().toPoint(), self._pressed
        self._pressed = None
        clicked = pressed is not None and (point - pressed).manhattanLength() < QApplication.startDragDistance()
        token = self.token_under(point) if clicked and self.mode is not TokenMode.TEXT else -1
        if token >= 0:
            self._mark(token, self.pointed)
            self.token_chosen.emit(token)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._mark(self.token, -1)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        if event.reason() not in (Qt.FocusReason.ActiveWindowFocusReason, Qt.FocusReason.PopupFocusReason):
            self._mark(-1, self.pointed)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self.viewport())
        t = theme.current()
        if self.said < len(self._text):
            # the shared cursor, where it stands in this text
            box = self.cursorRect(self._cursor(self._base + int(self._units[self.said])))
            painter.fillRect(box.left() - theme.px(1), box.top(), theme.px(2), box.height(), t.accent)
        if self.mode is TokenMode.TEXT or not 0 <= self.wanted < self.tokens:
            return
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(t.accent if self.wanted == self.token else t.secondary, 1.5))
        for part in self.token_rects(self.wanted):
            painter.drawRoundedRect(part.adjusted(-1, 0.5, 1, -0.5), theme.px(3), theme.px(3))
        painter.end()


def _x(place: object) -> float:
    """A place in a line: PySide gives it with the position that it is of."""
    assert isinstance(place, tuple)
    return float(place[0])


def _runs(kinds: Array) -> list[tuple[int, int]]:
    """The half-open ranges over which a class stays the same."""
    edges = np.flatnonzero(np.diff(kinds)) + 1
    return list(pairwise([0, *edges.tolist(), len(kinds)])) if len(kinds) else []
