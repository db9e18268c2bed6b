"""One conversation in one column, or in two side by side with a head each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QMenu, QToolButton, QWidget

from app.chat.branches import COLUMNS, Branches
from app.chat.second_model import SecondModel, spec_words
from app.chat.store.tree import Role, Turn
from app.chat.transcript.conversation_view import ConversationView
from app.language import tr
from app.ui.labels import label
from app.ui.layout.boxes import column, held, named, panel, row
from app.ui.layout.zoomed import sized
from engine import ModelSpec

NAMES = "AB"
HEAD = 36  # pixels of the design
SAME = tr("same model")
BESIDE = tr("Another model for this column: it is loaded beside the first, and answers when that one is done")


class Columns(QWidget):
    """Its signals tell the column first."""

    edited = Signal(int, object, str)
    variant_asked = Signal(int, object, int)
    again_asked = Signal(int, object)
    inside_asked = Signal(int, object)
    delete_asked = Signal(int, object)
    models_asked = Signal()  # the menu of the second column's models is about to be shown
    model_asked = Signal(object)  # ModelSpec of the second column; None: the first one's

    def __init__(self, writes: Callable[[Turn], bool]) -> None:
        super().__init__()
        named(self, "chat_columns")
        self.views = [
            ConversationView(f"chat_view_{n.lower()}", tr("Conversation {name}", name=n), writes) for n in NAMES
        ]
        self._heads = [label("", "title", f"chat_head_{n.lower()}") for n in NAMES]
        self.model = named(QToolButton(), "chat_model_b", said=tr("Model of B"), tip=BESIDE)
        self.model.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.model.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._menu = QMenu(self.model)
        self._menu.aboutToShow.connect(self.models_asked)
        self.model.setMenu(self._menu)
        beside: list[list[QWidget]] = [[], [self.model]]
        self._rows = [
            sized(held(row(head, None, *more, margins=(16, 6, 8, 0))), least_height=HEAD)
            for head, more in zip(self._heads, beside)
        ]
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

    def offer_models(self, specs: Sequence[ModelSpec], chosen: ModelSpec | None) -> None:
        """What the menu holds: the first column's model, and these."""
        self._menu.clear()
        for spec in (None, *specs):
            action = self._menu.addAction(SAME if spec is None else spec_words(spec))
            action.setCheckable(True)
            action.setChecked(spec == chosen)
            action.triggered.connect(lambda checked=False, spec=spec: self.model_asked.emit(spec))

    def show_model(self, second: SecondModel) -> None:
        """What answers the second column, or how far its load is."""
        words = SAME if second.spec is None else spec_words(second.spec)
        self.model.setToolTip(second.words or BESIDE)
        if not second.ready:
            words = tr("{model} · loading", model=words)
        self.model.setText(f"{words}  ▾")
        self.model.setAccessibleName(tr("Model of B: {model}", model=words))

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
