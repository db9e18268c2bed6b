"""The field a prompt is written in: Enter sends, Shift+Enter begins a line; any number of files can be dropped."""

from pathlib import Path

from PySide6.QtCore import QMimeData, Qt, Signal
from PySide6.QtGui import QKeyEvent

from app.ui.prompt_edit import PromptEdit

ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)


class ChatEdit(PromptEdit):
    """Where nothing is written, Up asks for the last prompt."""

    sent = Signal()
    last_asked = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key, modifiers = event.key(), event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        shift = Qt.KeyboardModifier.ShiftModifier
        if key in ENTER and modifiers != shift:
            self.sent.emit()
        elif key in ENTER:
            self.insertPlainText("\n")
        elif key == Qt.Key.Key_Up and not modifiers and not self.toPlainText():
            self.last_asked.emit()
        else:
            super().keyPressEvent(event)

    def insertFromMimeData(self, source: QMimeData) -> None:
        files = [Path(url.toLocalFile()) for url in source.urls() if url.isLocalFile()]
        for path in files:
            self.file_dropped.emit(path)
        if not files:
            super().insertFromMimeData(source)
