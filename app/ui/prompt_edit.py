"""A plain-text editor that grows with its lines, remembers what was sent, and hands dropped files on."""

import math
from pathlib import Path

from PySide6.QtCore import QMimeData, QRect, Qt, Signal
from PySide6.QtGui import QFocusEvent, QFontMetricsF, QKeyEvent, QResizeEvent, QTextCursor
from PySide6.QtWidgets import QPlainTextEdit, QSizePolicy

from app.ui.look import theme

KEPT = 100
HISTORY_KEYS = ("Ctrl+Up", "Ctrl+Down")  # the one sent before, the one sent after


class PromptEdit(QPlainTextEdit):
    """Between `least` and `most` lines high. Ctrl+Up and Ctrl+Down walk through `history`; undo takes it back."""

    file_dropped = Signal(object)  # Path
    focus_changed = Signal(bool)
    entered = Signal()  # Enter was pressed, where it is to send

    def __init__(self, name: str, least: int = 1, most: int = 8) -> None:
        super().__init__()
        self.setObjectName(name)
        self.history: list[str] = []
        self.enter_sends = False  # Shift+Enter then begins a line
        self._least, self._most, self._at = least, most, 0
        self._draft = ""
        self._hints: tuple[str, ...] = ()
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.document().setDocumentMargin(2)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        theme.changes.theme_changed.connect(self._fit)
        self._fit()

    def replace_text(self, text: str) -> None:
        """The whole text anew, as one step that undo takes back."""
        cursor = QTextCursor(self.document())
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.insertText(text)
        self.setTextCursor(cursor)

    def hint(self, *wordings: str) -> None:
        """What is to be written here, told while nothing is: the first of the wordings, from long to short, that the
        lines there are hold."""
        self._hints = wordings
        self.setAccessibleDescription(wordings[0])
        self._fit()

    def remember(self, text: str) -> None:
        """Adds what was sent to the history, newest last, without repeating itself."""
        if text.strip() and (not self.history or self.history[-1] != text):
            self.history.append(text)
            del self.history[:-KEPT]
        self._at = len(self.history)

    def recall(self, history: list[str]) -> None:
        self.history = history[-KEPT:]
        self._at = len(self.history)

    def _fit(self) -> None:
        lines = max(self._least, min(self._most, int(self.document().size().height())))
        extra = round(2 * self.document().documentMargin()) + 2 * self.frameWidth() + 2
        self.setFixedHeight(lines * self._line() + extra)
        shown = self.document().size().height() > self._most
        policy = Qt.ScrollBarPolicy.ScrollBarAsNeeded if shown else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        self.setVerticalScrollBarPolicy(policy)
        if self._hints:
            self._tell_hint(lines)

    def _line(self) -> int:
        """Pixels from one line to the next, as they are laid out: metrics round each part of it on its own."""
        laid = self.document().firstBlock().layout()
        high = laid.lineAt(0).height() if laid.lineCount() else QFontMetricsF(self.font()).lineSpacing()
        return math.ceil(high)

    def _tell_hint(self, lines: int) -> None:
        metrics, margin = self.fontMetrics(), round(2 * self.document().documentMargin())
        high = lines * metrics.lineSpacing() + metrics.descent()  # a text measures a pixel more than it takes
        room = QRect(0, 0, max(1, self.viewport().width() - margin), high)
        flags = int(Qt.TextFlag.TextWordWrap.value)
        fits = (hint for hint in self._hints if room.contains(metrics.boundingRect(room, flags, hint)))
        self.setPlaceholderText(next(fits, self._hints[-1]))

    def _walk(self, by: int) -> None:
        at = min(max(self._at + by, 0), len(self.history))
        if at == self._at:
            return
        if self._at == len(self.history):
            self._draft = self.toPlainText()
        self._at = at
        self.replace_text(self.history[at] if at < len(self.history) else self._draft)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        control = event.modifiers() == Qt.KeyboardModifier.ControlModifier
        if control and event.key() == Qt.Key.Key_Up:
            self._walk(-1)
        elif control and event.key() == Qt.Key.Key_Down:
            self._walk(1)
        elif self.enter_sends and _is_enter(event):
            self.entered.emit()
        else:
            super().keyPressEvent(event)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return source.hasUrls() or super().canInsertFromMimeData(source)

    def insertFromMimeData(self, source: QMimeData) -> None:
        files = [Path(url.toLocalFile()) for url in source.urls() if url.isLocalFile()]
        if files:
            self.file_dropped.emit(files[0])
        else:
            super().insertFromMimeData(source)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()  # its lines are others

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focus_changed.emit(False)


def _is_enter(event: QKeyEvent) -> bool:
    enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
    return enter and not event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
