"""A model's thoughts, folded above its answer: a line that says how long it thought, and what it thought below."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.chat.markdown.body import MarkdownBody
from app.chat.store.tree import Facts
from app.chat.transcript.words import thought_words
from app.language import tr
from app.ui.controls import button
from app.ui.layout.boxes import column, held, named, row
from app.ui.look import theme
from engine.trace import Said

BAR, INDENT, BELOW = 2, 20, 6  # pixels: of a line at the left of what is unfolded, and of the room around that


class ThoughtsView(QWidget):
    """Costs nothing while it is folded, however much is thought."""

    def __init__(self) -> None:
        super().__init__()
        named(self, "turn_thoughts", said=tr("Thoughts"))
        tip = tr("What the model thought before it answered; it is not sent with what you say next (T)")
        self.fold = button("turn_thoughts_fold", "", self._on_fold, role="quiet", tip=tip, checkable=True)
        self.fold.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.body = MarkdownBody(tr("Thoughts"))
        self.unfolded = held(column(self.body, margins=(INDENT, 0, 0, BELOW)))
        self.unfolded.hide()
        self._said = Said("", "")
        self.setLayout(column(row(self.fold, None), self.unfolded, spacing=4))
        self.hide()

    def show_thoughts(self, said: Said, facts: Facts, *, writes: bool) -> None:
        self._said = said
        self.setVisible(bool(said.thoughts) or (said.thinking and writes))
        mark = "▾" if self.fold.isChecked() else "▸"
        words = f"{mark}  {thought_words(facts, thinking=said.thinking and writes)}"
        if self.fold.text() != words:
            self.fold.setText(words)
        if self.fold.isChecked():
            self.body.show_text(said.thoughts, whole=not said.thinking)

    def restyle(self) -> None:
        self.body.restyle()

    def _on_fold(self) -> None:
        unfolded = self.fold.isChecked()
        self.fold.setText(("▾" if unfolded else "▸") + self.fold.text()[1:])
        if unfolded:
            self.body.show_text(self._said.thoughts, whole=not self._said.thinking)
        self.unfolded.setVisible(unfolded)

    def paintEvent(self, event: QPaintEvent) -> None:
        """A bar beside what is unfolded, so that it is not taken for the answer."""
        if self.unfolded.isVisible():
            painter = QPainter(self)
            place = self.unfolded.geometry()
            bar = (INDENT // 2, place.y(), theme.px(BAR), place.height() - BELOW)
            painter.fillRect(*bar, theme.current().secondary)
            painter.end()
