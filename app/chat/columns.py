"""One conversation in one column, or in two side by side with a head each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.chat.branches import COLUMNS, Branches
from app.chat.store.tree import Role, Turn
from app.chat.transcript.conversation_view import ConversationView
from app.ui.labels import label
from app.ui.layouts import column, held, named, panel, row

NAMES = "AB"


class Columns(QWidget):
    """Its signals tell the column first."""

    edited = Signal(int, object, str)
    variant_asked = Signal(int, object, int)
    again_asked = Signal(int, object)
    inside_asked = Signal(int, object)
    delete_asked = Signal(int, object)

    def __init__(self, writes: Callable[[Turn], bool]) -> None:
        super().__init__()
        named(self, "chat_columns")
        self.views = [ConversationView(f"chat_view_{n.lower()}", f"Conversation {n}", writes) for n in NAMES]
        self._heads = [label("", "title", f"chat_head_{n.lower()}") for n in NAMES]
        self._rows = [held(row(head, None, margins=(16, 10, 16, 0))) for head in self._heads]
        self._panels = [panel(column(head, (view, 1))) for head, view in zip(self._rows, self.views)]
        self.setLayout(row(*((each, 1) for each in self._panels), spacing=8))
        for place, view in enumerate(self.views):
            view.edited.connect(lambda turn, text, place=place: self.edited.emit(place, turn, text))
            view.variant_asked.connect(lambda turn, by, place=place: self.variant_asked.emit(place, turn, by))
            for name in ("again_asked", "inside_asked", "delete_asked"):
                signal = getattr(self, name)
                getattr(view, name).connect(lambda turn, place=place, signal=signal: signal.emit(place, turn))

    def show_branches(self, branches: Branches, names: Sequence[str]) -> None:
        """A column for each of the presets' names."""
        for place in range(COLUMNS):
            shown = place < len(names)
            self._panels[place].setVisible(shown)
            self._rows[place].setVisible(len(names) > 1)
            if shown:
                self._heads[place].setText(f"{NAMES[place]}  ·  {names[place]}")
                self.views[place].show_path(branches.tree, branches.ends[place])

    def grow(self, turn: Turn) -> None:
        for view in self.views:
            if view.isVisible():
                view.grow(turn)

    def to_end(self) -> None:
        for view in self.views:
            view.to_end()

    def edit_last(self) -> bool:
        """Edits the last prompt where it stands; False where there is none."""
        path = self.views[0].path
        last = next((turn for turn in reversed(path) if turn.role is Role.USER), None)
        view = self.views[0].view(last) if last is not None and self.views[0].isVisible() else None
        if view is not None:
            view.begin_edit()
        return view is not None

    def end_edit(self) -> bool:
        """Ends the edit under way; False where there is none."""
        editing = next((view.editing for view in self.views if view.editing is not None), None)
        if editing is not None and editing.bubble is not None:
            editing.bubble.end()
        return editing is not None
