"""A fence's code: its language, a button that copies it, its lines as they stand."""

import math

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QResizeEvent, QTextBlockFormat, QTextCursor, QWheelEvent
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QSizePolicy

from app.chat.markdown import styles
from app.chat.markdown.code import pieces
from app.language import tr
from app.ui.controls import button
from app.ui.labels import label
from app.ui.layout.boxes import column, named, row
from app.ui.look import theme

NEAR = 1_500  # characters at the end that are told apart anew while code grows, where no empty line is nearer


class CodeText(QPlainTextEdit):
    """As high as its lines; long ones scroll sideways."""

    def __init__(self) -> None:
        super().__init__(undoRedoEnabled=False, readOnly=True)
        named(self, "code_text", said=tr("Code"))
        flags = Qt.TextInteractionFlag
        self.setTextInteractionFlags(flags.TextSelectableByMouse | flags.TextSelectableByKeyboard)
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.document().setDocumentMargin(0)
        self.setFont(theme.mono(styles.CODE))
        self.horizontalScrollBar().rangeChanged.connect(self.fit)

    def fit(self) -> None:
        bar = self.horizontalScrollBar()
        room = bar.sizeHint().height() if bar.maximum() else 0
        line = self.blockBoundingRect(self.document().firstBlock()).height()
        self.setFixedHeight(math.ceil(self.blockCount() * line) + room + 2 * self.frameWidth() + 2)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit()

    def wheelEvent(self, event: QWheelEvent) -> None:
        if event.angleDelta().x() or event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            super().wheelEvent(event)
        else:
            event.ignore()  # the conversation scrolls


class CodeView(QFrame):
    def __init__(self) -> None:
        super().__init__()
        named(self, "code_view", "code")
        self.language = label("", "note", "code_language")
        self.copy = button("code_copy", tr("Copy"), self._on_copy, role="quiet", said=tr("Copy this code"))
        self.text = CodeText()
        head = row(self.language, None, self.copy, spacing=8)
        self.setLayout(column(head, self.text, margins=(12, 4, 6, 8), spacing=2))
        self._code, self._kind = "", ""
        self._begin = 0  # what is before it keeps its colours while the code grows

    def show_code(self, code: str, language: str, *, whole: bool) -> None:
        """`whole`: no more comes, and all of it is told apart once."""
        if language != self._kind or not code.startswith(self._code[: self._begin]):
            self._begin = 0
        self._kind = language
        if self.language.text() != (language or "text"):
            self.language.setText(language or "text")
        begin = 0 if whole else self._begin
        self._write(begin, code[begin:])
        self._code = code
        near = max(code.rfind("\n\n") + 2, code.rfind("\n", 0, max(0, len(code) - NEAR)) + 1, self._begin)
        self._begin = near if near > 1 else 0
        self.text.fit()

    def _write(self, begin: int, code: str) -> None:
        cursor = QTextCursor(self.text.document())
        cursor.beginEditBlock()
        cursor.setPosition(min(begin, self.text.document().characterCount() - 1))
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        cursor.setBlockFormat(QTextBlockFormat())
        for text, ink in pieces(code, self._kind):
            cursor.insertText(text, styles.code_format(ink))
        cursor.endEditBlock()

    def _on_copy(self) -> None:
        QGuiApplication.clipboard().setText(self._code)
