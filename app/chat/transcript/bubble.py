"""What a person has said, in a bubble as wide as its words, with its files; it can be edited in its place."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFontMetricsF, QResizeEvent
from PySide6.QtWidgets import QFrame, QStackedLayout, QWidget

from app.chat.composer.chips import FileChips
from app.chat.composer.edit import ChatEdit
from app.chat.markdown import styles
from app.chat.markdown.prose_view import ProseView
from app.chat.store.tree import Turn
from app.language import tr
from app.ui.controls import button
from app.ui.layout.boxes import column, held, named, panel, row
from app.ui.look import theme

WIDEST = 0.86  # of the column
PAD = 12
MEASURED = 200  # lines, and characters of each: what is longer is as wide as there is room
CHIPS = 240  # pixels of the design that files want


class Bubble(QWidget):
    edited = Signal(str)
    editing_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        named(self, "bubble")
        self.text = ProseView("bubble_text", tr("You"))
        self.files = FileChips(fixed=True)
        room = (PAD, 12, PAD, 4)  # a line's height is more below its words than above
        self.frame = panel(column(self.files, self.text, margins=room, spacing=6), "bubble")
        self.edit: ChatEdit | None = None
        self._shown, self._wide = "", 0.0
        self.setMinimumWidth(1)  # it gives way to the column
        self._pages = QStackedLayout(self)
        self._pages.addWidget(held(row(None, self.frame)))

    def show_turn(self, turn: Turn) -> None:
        self._shown = turn.text
        self.text.show_plain(turn.text, mono=False)
        self.text.setVisible(bool(turn.text))
        self.files.show_files(list(turn.files))
        self._measure()

    @property
    def editing(self) -> bool:
        return self.edit is not None

    def begin(self) -> None:
        """The text in a field, where it is."""
        if self.edit is not None:
            return
        edit = self.edit = ChatEdit("turn_edit", 1, 16)
        edit.setAccessibleName(tr("Edit what was said"))
        edit.setPlainText(self._shown)
        edit.sent.connect(self._on_sent)
        stays = tr("As a variant: what was said stays (Enter)")
        send = button("turn_send", tr("Send"), self._on_sent, role="primary", tip=stays)
        cancel = button("turn_cancel", tr("Cancel"), self.end, tip=tr("Esc"))
        field: QFrame = panel(column(edit, margins=(12, 8, 8, 8)), "field")
        field.setProperty("focused", True)
        self._pages.addWidget(held(column(field, row(None, cancel, send, spacing=8), spacing=8)))
        self._pages.setCurrentIndex(1)
        edit.moveCursor(edit.textCursor().MoveOperation.End)
        edit.setFocus(Qt.FocusReason.OtherFocusReason)
        self.editing_changed.emit()

    def end(self) -> None:
        """As it was."""
        page, turn = self._pages.widget(1), self.parentWidget()
        if page is not None:
            self.edit = None
            focused = self.window().focusWidget()
            if turn is not None and focused is not None and page.isAncestorOf(focused):
                turn.setFocus()  # before Qt gives it to whatever comes next in the window
            self._pages.setCurrentIndex(0)
            self._pages.removeWidget(page)
            page.deleteLater()
            self.editing_changed.emit()

    def restyle(self) -> None:
        self.text.clear()
        self.text.show_plain(self._shown, mono=False)
        self._measure()

    def _on_sent(self) -> None:
        text = self.edit.toPlainText().strip() if self.edit is not None else ""
        if text:
            self.end()
            self.edited.emit(text)

    def _measure(self) -> None:
        """How wide its words are on lines of their own."""
        metrics = QFontMetricsF(theme.ui(styles.TEXT))
        lines = self._shown.splitlines()[:MEASURED]
        wide = max((metrics.horizontalAdvance(line[:MEASURED]) for line in lines), default=0) + 4
        self._wide = max(wide, theme.px(CHIPS) if self.files.files else 0) + 2 * PAD + 2
        self._fit()

    def _fit(self) -> None:
        self.frame.setFixedWidth(round(min(self.width() * WIDEST, self._wide)))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()
