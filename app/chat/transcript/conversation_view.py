"""The turns of one path under each other, in one calm column. What is long is built from its end."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QApplication, QScrollArea, QWidget

from app.chat.store.tree import Tree, Turn
from app.chat.transcript.turn_view import TurnView
from app.ui.layout.boxes import column, held, named, row
from app.ui.layout.zoomed import zoomed
from app.ui.look import theme

WIDEST = 760  # pixels of the design
FIRST = 6  # turns that are there at once
BUDGET = 0.01  # seconds a frame for those before them


class ConversationView(QScrollArea):
    """Stays at its end where it is there; else at the place that is read. `writes` tells whether a turn still grows."""

    edited = Signal(object, str)
    variant_asked = Signal(object, int)
    again_asked = Signal(object)
    inside_asked = Signal(object)
    delete_asked = Signal(object)

    def __init__(self, name: str, said: str, writes: Callable[[Turn], bool]) -> None:
        super().__init__()
        named(self, name, said=said)
        self._writes = writes
        self._tree = Tree([])
        self._path: list[Turn] = []
        self._views: dict[int, TurnView] = {}
        self._near: TurnView | None = None
        self._pinned = True
        self.before: QWidget | None = None  # Tab goes from it to the first turn
        self._left = 0  # pixels below what is read, while turns are added above
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self._column = zoomed(column(), spacing=8)
        self._inner = held(self._column)
        sheet = held(zoomed(row(None, (self._inner, 100), None), (16, 16, 16, 8)), "sheet")
        self.setWidget(held(column(sheet, None), "sheet"))
        self._filling = QTimer(self, interval=0)
        self._filling.timeout.connect(self._fill)
        bar = self.verticalScrollBar()
        bar.valueChanged.connect(self._on_scrolled)
        bar.rangeChanged.connect(self._on_range)
        bar.setSingleStep(theme.px(24))
        app = QApplication.instance()
        assert isinstance(app, QApplication)
        app.focusChanged.connect(self._on_focus)
        theme.changes.theme_changed.connect(self._on_theme)
        self._on_theme()

    @property
    def views(self) -> list[TurnView]:
        """Those that are built, in order."""
        return [self._views[turn.id] for turn in self._path if turn.id in self._views]

    @property
    def path(self) -> list[Turn]:
        return self._path

    def view(self, turn: Turn) -> TurnView | None:
        return self._views.get(turn.id)

    def show_path(self, tree: Tree, end: Turn | None) -> None:
        """The turns up to this one. Those that were on show stay as they are."""
        path = tree.path(end)
        if tree is not self._tree:
            self._pinned = True
        self._tree, self._path = tree, path
        kept = {turn.id for turn in path}
        for id in [id for id in self._views if id not in kept]:
            view = self._views.pop(id)
            self._near = None if view is self._near else self._near
            self._column.removeWidget(view)
            view.hide()
            view.deleteLater()
        for turn in path[-FIRST:]:
            self._build(turn)
        self.tell()
        self._order()
        if len(self._views) < len(path):
            self._filling.start()

    def tell(self) -> None:
        """Variants, and which one is last, are others."""
        for turn in self._path:
            if (view := self._views.get(turn.id)) is not None:
                self._show(view)

    def grow(self, turn: Turn) -> None:
        """It says more, or has ended."""
        view = self._views.get(turn.id)
        if view is not None and view.body is not None:
            writes = self._writes(turn)
            view.show_answer(writes=writes)
            if not writes:
                self._show(view)

    def to_end(self) -> None:
        self._pinned = True
        self.verticalScrollBar().setValue(self.verticalScrollBar().maximum())

    @property
    def editing(self) -> TurnView | None:
        """The turn that is being edited."""
        return next((v for v in self._views.values() if v.bubble is not None and v.bubble.editing), None)

    # -- inside ---------------------------------------------------------------------------------------------------

    def _build(self, turn: Turn) -> None:
        if turn.id in self._views:
            return
        place = self._path.index(turn)
        at = sum(before.id in self._views for before in self._path[:place])
        view = self._views[turn.id] = TurnView(turn)
        for name in ("edited", "variant_asked", "again_asked", "inside_asked", "delete_asked"):
            getattr(view, name).connect(getattr(self, name))
        self._column.insertWidget(at, view)

    def _show(self, view: TurnView) -> None:
        turn = view.turn
        variants = self._tree.variants(turn)
        last = turn is self._path[-1]
        view.show_turn(variants.index(turn), len(variants), writes=self._writes(turn), last=last)

    def _fill(self) -> None:
        """Builds what comes before, from its end, as much as a frame has time for."""
        until = perf_counter() + BUDGET
        missing = [turn for turn in self._path if turn.id not in self._views]
        bar = self.verticalScrollBar()
        self._left = bar.maximum() - bar.value()
        while missing and perf_counter() < until:
            turn = missing.pop()
            self._build(turn)
            self._show(self._views[turn.id])
        if not missing:
            self._filling.stop()
            self._order()

    def _order(self) -> None:
        """Tab goes through the turns as they stand, each with its buttons."""
        before = self.before
        for view in self.views:
            for widget in (view, *view.deeds.made):
                if before is not None:
                    QWidget.setTabOrder(before, widget)
                before = widget

    def _on_scrolled(self, value: int) -> None:
        self._pinned = value >= self.verticalScrollBar().maximum() - theme.px(4)

    def _on_range(self, low: int, high: int) -> None:
        bar = self.verticalScrollBar()
        if self._pinned:
            bar.setValue(high)
        elif self._filling.isActive():
            bar.setValue(high - self._left)

    def _on_focus(self, old: QWidget | None, now: QWidget | None) -> None:
        near = next((v for v in self._views.values() if now is not None and (v is now or v.isAncestorOf(now))), None)
        if near is not self._near:
            for view, on in ((self._near, False), (near, True)):
                if view is not None:
                    view.set_near(on)
            self._near = near
        if near is not None and near is now:
            self.ensureWidgetVisible(near, 0, theme.px(8))

    def _on_theme(self) -> None:
        self._inner.setMaximumWidth(theme.px(WIDEST))
        for view in self._views.values():
            view.restyle()

    def resizeEvent(self, event: QResizeEvent) -> None:
        pinned = self._pinned
        super().resizeEvent(event)
        if pinned:
            self.to_end()
