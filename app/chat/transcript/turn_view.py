"""One turn: what was said, and below it its figures and what can be done with it."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QEnterEvent, QGuiApplication, QKeyEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QBoxLayout, QPushButton, QWidget

from app.chat.markdown.body import MarkdownBody
from app.chat.store.tree import Role, Turn
from app.chat.transcript.bubble import Bubble
from app.chat.transcript.deeds import Deeds
from app.chat.transcript.thoughts_view import ThoughtsView
from app.chat.transcript.variants import VariantSwitch
from app.chat.transcript.words import FORMULAS, figures, made_by
from app.language import tr
from app.ui.controls import button
from app.ui.labels import Note, label
from app.ui.layout.boxes import column, fill, named, row
from app.ui.line import Parts
from app.ui.look import theme
from engine.trace import Said, split_thoughts

SIDE = 10  # pixels left and right, the bar of the focus among them
WIDE, NARROW = 620, 390  # from here on, figures and what can be done are on one line; on three below it
KEYS = tr(
    "E edits, R asks again, C copies, I looks inside, M shows Markdown or text, T shows thoughts, Delete takes out, "
    "← → show variants"
)


class TurnView(QWidget):
    """What can be done is shown where the pointer or the focus is, and below the last turn."""

    edited = Signal(object, str)  # Turn, its new text
    variant_asked = Signal(object, int)  # Turn, by how many places
    again_asked = Signal(object)
    inside_asked = Signal(object)
    delete_asked = Signal(object)

    def __init__(self, turn: Turn) -> None:
        super().__init__()
        self.turn = turn
        mine = turn.role is Role.USER
        named(self, f"turn_{turn.id}")
        self.setAccessibleDescription(KEYS)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.variants = VariantSwitch()
        self.variants.asked.connect(lambda by: self.variant_asked.emit(turn, by))
        self.bubble = Bubble() if mine else None
        self.body = None if mine else MarkdownBody(tr("Answer"))
        self.thoughts = None if mine else ThoughtsView()
        self.figures = Parts("turn_figures", 12)
        self.error = Note("turn_error", "error")
        self.made = label("", "note", "turn_made")
        self.deeds = Deeds(self, self._buttons)
        self._foot = QBoxLayout(QBoxLayout.Direction.LeftToRight)
        self._last = self._near = self._writes = False
        self.setMinimumWidth(1)  # the column says how wide it is
        self._lay_out()
        self._tell_deeds()

    def _buttons(self) -> dict[str, QPushButton]:
        mine, turn = self.turn.role is Role.USER, self.turn
        said = tr("Copy the prompt") if mine else tr("Copy the answer")
        made = {}
        if mine:
            tip = tr("Say it otherwise, as a variant (E)")
            made["edit"] = button("turn_edit_button", tr("Edit"), self.begin_edit, tip=tip)
        else:
            tip = tr("As it was written (M)")
            made["raw"] = button("turn_raw", tr("Text"), self._on_raw, tip=tip, checkable=True)
        made["copy"] = button("turn_copy", tr("Copy"), self.copy, tip=tr("Copy all of it (C)"), said=said)
        if not mine:
            tip = tr("Another answer to the same, beside this one (R)")
            made["again"] = button("turn_again", tr("Regenerate"), lambda: self.again_asked.emit(turn), tip=tip)
            tip = tr("Show this request on the Play page, with all panels that look into the engine (I)")
            made["inside"] = button("turn_inside", tr("See inside"), lambda: self.inside_asked.emit(turn), tip=tip)
        tip = tr("Take it out, with all that came after it; this can be undone (Delete)")
        made["delete"] = button("turn_delete", tr("Delete"), lambda: self.delete_asked.emit(turn), tip=tip)
        return made

    def _lay_out(self) -> None:
        if self.bubble is not None:
            self.bubble.edited.connect(lambda text: self.edited.emit(self.turn, text))
            self.bubble.editing_changed.connect(self._tell_deeds)
            foot = row(None, self.variants, self.deeds, spacing=4)
            self.setLayout(column(self.bubble, foot, margins=(SIDE, 2, SIDE, 2), spacing=2))
            return
        assert self.body is not None
        assert self.thoughts is not None
        fill(self._foot, (self.figures, 1), row(self.variants, (self.deeds, 1), spacing=4), spacing=2)
        head = row(self.made, None)
        self.setLayout(
            column(head, self.thoughts, self.body, self.error, self._foot, margins=(SIDE, 2, SIDE, 2), spacing=6)
        )

    # -- what it shows --------------------------------------------------------------------------------------------

    def show_turn(self, place: int, count: int, *, writes: bool, last: bool) -> None:
        """`place` among its `count` variants; `writes`: more of it comes."""
        turn = self.turn
        self.variants.show_place(place, count)
        self.variants.setEnabled(not writes)
        self._last = last
        if self.bubble is not None:
            self.bubble.show_turn(turn)
            self.setAccessibleName(tr("You: {text}", text=turn.text))
        else:
            self.show_answer(writes=writes)
        self._tell_deeds()

    def show_answer(self, *, writes: bool) -> None:
        """An answer as far as it is there: a frame of it."""
        assert self.body is not None
        assert self.thoughts is not None
        facts, said, self._writes = self.turn.facts, split_thoughts(self.turn.text), writes
        self.thoughts.show_thoughts(Said("", "") if self.body.raw else said, facts, writes=writes)
        self.body.show_text(self.turn.text if self.body.raw else said.answer, whole=not writes)
        self.figures.say_parts(figures(facts, writes=writes))
        self.figures.setToolTip(FORMULAS)
        if self.made.text() != made_by(facts):
            self.made.setText(made_by(facts))
        self.error.say(facts.error)
        self.deeds.enable("inside", facts.request >= 0)
        for name in ("again", "delete"):
            self.deeds.enable(name, not writes)
        if not writes:
            self.setAccessibleName(tr("Answer: {text}", text=said.answer or self.turn.text))

    def restyle(self) -> None:
        if self.body is not None and self.thoughts is not None:
            self.body.restyle()
            self.thoughts.restyle()
        if self.bubble is not None:
            self.bubble.restyle()
        self._fold()

    # -- what can be done -----------------------------------------------------------------------------------------

    def begin_edit(self) -> None:
        if self.bubble is not None:
            self.bubble.begin()

    def copy(self) -> None:
        raw = self.body is not None and self.body.raw
        QGuiApplication.clipboard().setText(self.turn.text if raw else self.turn.said or self.turn.text)

    def _on_raw(self) -> None:
        if self.body is not None:
            self.body.set_raw(self.deeds.buttons["raw"].isChecked())
            self.show_answer(writes=self._writes)

    def set_near(self, near: bool) -> None:
        """Whether the focus is in it."""
        self._near = near
        self._tell_deeds()
        self.update()

    def _tell_deeds(self) -> None:
        editing = self.bubble is not None and self.bubble.editing
        self.deeds.show_all(not editing and (self._last or self._near or self.underMouse()))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        keys = {"edit": Qt.Key.Key_E, "raw": Qt.Key.Key_M, "copy": Qt.Key.Key_C, "again": Qt.Key.Key_R}
        keys |= {"inside": Qt.Key.Key_I, "delete": Qt.Key.Key_Delete}
        name = next((name for name, key in keys.items() if key == event.key() and name in self.deeds), None)
        switch = {Qt.Key.Key_Left: self.variants.back, Qt.Key.Key_Right: self.variants.on}.get(Qt.Key(event.key()))
        if not event.modifiers() and event.key() == Qt.Key.Key_T and self.thoughts and self.thoughts.isVisible():
            self.thoughts.fold.click()
        elif event.modifiers() or (name is None and switch is None):
            super().keyPressEvent(event)
        elif name is not None:
            self.deeds.buttons[name].click()
        elif switch is not None and self.variants.isVisible():
            switch.click()

    def enterEvent(self, event: QEnterEvent) -> None:
        super().enterEvent(event)
        self._tell_deeds()

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._tell_deeds()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fold()

    def _fold(self) -> None:
        ways = QBoxLayout.Direction
        self._foot.setDirection(ways.LeftToRight if self.width() >= theme.px(WIDE) else ways.TopToBottom)
        self.deeds.keep_room(2 if self.body is not None and self.width() < theme.px(NARROW) else 1)

    def paintEvent(self, event: QPaintEvent) -> None:
        """The focus as a bar at the left."""
        if self.hasFocus():
            painter = QPainter(self)
            painter.fillRect(0, 0, theme.px(2), self.height(), theme.current().accent)
            painter.end()
