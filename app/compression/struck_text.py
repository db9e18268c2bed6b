"""The original prompt as text: each word shaded by what it says, struck through where it goes."""

from bisect import bisect_right
from collections.abc import Sequence

from PySide6.QtCore import QEvent
from PySide6.QtGui import QFont, QHelpEvent, QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QTextEdit

from app.language import tr, trn
from app.ui.layout.boxes import named
from app.ui.look import theme
from app.ui.tips import show_tip
from engine.compression import Piece

SHADE = 0.5  # of the pieces that say the most


class StruckText(QTextEdit):
    """Read-only. `roles` name the messages where there are several."""

    def __init__(self, name: str, said: str) -> None:
        super().__init__()
        named(self, name, said=said)
        self.setReadOnly(True)
        self.setUndoRedoEnabled(False)
        self.setTabChangesFocus(True)
        self._pieces: Sequence[Piece] = ()
        self._roles: Sequence[str] = ()
        self._spans: list[tuple[int, int]] = []  # of each piece, without the space around it
        self._kept: tuple[bool, ...] = ()
        self._most = 1.0  # bits a token, from which on the shade is full
        theme.changes.theme_changed.connect(self._write)

    @property
    def struck(self) -> list[str]:
        """The words that are struck through."""
        return [p.text.strip() for p, kept in zip(self._pieces, self._kept) if not kept and p.text.strip()]

    def show_pieces(self, pieces: Sequence[Piece], kept: Sequence[bool], roles: Sequence[str] = ()) -> None:
        """Where the pieces are those that are shown, only what changes is written."""
        before, self._kept = self._kept, tuple(kept)
        if pieces is self._pieces and len(before) == len(self._kept):
            self._mark([i for i, (was, stays) in enumerate(zip(before, self._kept)) if was is not stays])
        else:
            self._pieces, self._roles = pieces, roles
            ranked = sorted(piece.density for piece in pieces if piece.tokens and not piece.fixed)
            self._most = max(1.0, ranked[len(ranked) * 9 // 10]) if ranked else 1.0
            self._write()

    def _write(self) -> None:
        tokens = theme.current()
        quiet = QTextCharFormat()
        quiet.setForeground(tokens.secondary)
        plain = QTextCharFormat()
        plain.setForeground(tokens.text)
        self.setFont(theme.ui(13))
        self.clear()
        self._spans = []
        cursor, message = QTextCursor(self.document()), -1
        cursor.beginEditBlock()
        for piece in self._pieces:
            if piece.message != message:
                gap = "" if message < 0 else "\n\n"
                role = self._roles[piece.message] if len(self._roles) > 1 else ""
                cursor.insertText(gap + (f"{role}\n" if role else ""), quiet)
                message = piece.message
            start, text = cursor.position(), piece.text
            lead = len(text) - len(text.lstrip())
            cursor.insertText(text, plain)
            self._spans.append((start + lead, start + max(lead, len(text.rstrip()))))
        cursor.endEditBlock()
        self._mark(range(len(self._pieces)))
        self.moveCursor(QTextCursor.MoveOperation.Start)

    def _mark(self, places: Sequence[int]) -> None:
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        for i in places:
            start, end = self._spans[i]
            cursor.setPosition(start)
            cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
            cursor.setCharFormat(self._format(self._pieces[i], self._kept[i]))
        cursor.endEditBlock()

    def _format(self, piece: Piece, kept: bool) -> QTextCharFormat:
        tokens, form = theme.current(), QTextCharFormat()
        form.setForeground(tokens.text if kept else tokens.secondary)
        if piece.tokens and not piece.fixed:
            form.setBackground(theme.faded(tokens.accent, SHADE * min(1.0, piece.density / self._most)))
        form.setFontStrikeOut(not kept)
        form.setFontWeight(QFont.Weight.Medium if kept else QFont.Weight.Normal)
        return form

    def tip(self, position: int) -> str:
        """What the piece at this place of the text says, in words."""
        at = bisect_right(self._spans, (position, 1 << 30)) - 1
        if at < 0 or not self._spans[at][0] <= position <= self._spans[at][1]:
            return ""
        piece = self._pieces[at]
        if piece.fixed:
            return tr("Kept whole")
        if not piece.tokens:
            return ""
        return trn(
            "“{text}”: {bits:.1f} bits in {count} token",
            "“{text}”: {bits:.1f} bits in {count} tokens, {density:.1f} each",
            piece.tokens,
            text=piece.text.strip(),
            bits=piece.bits,
            density=piece.density,
        )

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            show_tip(event.globalPos(), self.tip(self.cursorForPosition(event.pos()).position()), self.viewport())
            return True
        return super().viewportEvent(event)
