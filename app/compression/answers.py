"""Both answers side by side, the first difference marked."""

from PySide6.QtGui import QTextCharFormat, QTextCursor
from PySide6.QtWidgets import QTextEdit, QWidget

from app.language import tr
from app.ui.labels import label
from app.ui.layout.boxes import column, named, row
from app.ui.look import theme
from engine.compression import Effect


class Answers(QWidget):
    """What is said alike is quiet; what follows the first difference stands out, and begins with a mark."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setObjectName(name)
        self.before = self._text(f"{name}_original", tr("Answer to the original prompt"))
        self.after = self._text(f"{name}_compressed", tr("Answer to the compressed prompt"))
        sides = ((tr("Answer to the original"), self.before), (tr("Answer to the compressed"), self.after))
        columns = (column(label(title, "note"), (text, 1), spacing=4) for title, text in sides)
        self.setLayout(row(*((each, 1) for each in columns), spacing=12))
        self._effect: Effect | None = None
        theme.changes.theme_changed.connect(self._write)

    def _text(self, name: str, said: str) -> QTextEdit:
        text = named(QTextEdit(), name, said=said)
        text.setReadOnly(True)
        text.setTabChangesFocus(True)
        return text

    def show_effect(self, effect: Effect | None) -> None:
        self._effect = effect
        self._write()

    def _write(self) -> None:
        tokens, effect = theme.current(), self._effect
        texts = (effect.before.text, effect.after.text) if effect is not None else ("", "")
        pairs = enumerate(zip(*texts))
        alike = next((i for i, (one, other) in pairs if one != other), min(map(len, texts)))
        quiet, strong, mark = QTextCharFormat(), QTextCharFormat(), QTextCharFormat()
        quiet.setForeground(tokens.secondary)
        strong.setForeground(tokens.text)
        mark.setForeground(tokens.warn)
        for text, edit in zip(texts, (self.before, self.after)):
            edit.setFont(theme.mono(12.5))
            edit.clear()
            cursor = QTextCursor(edit.document())
            cursor.insertText(text[:alike], quiet)
            if text[alike:]:
                cursor.insertText("▸", mark)
                cursor.insertText(text[alike:], strong)
            edit.moveCursor(QTextCursor.MoveOperation.Start)
