"""What is asked of each of the window's pages."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QWidget

from app.ui.layout.boxes import named


class Page(QWidget):
    """A page does what it is not asked to do otherwise."""

    undoable = Signal(str, object, object)  # what was done on it, in words; what takes it back, and does it again

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        named(self, name, "page")

    def action(self, words: str, act: Callable[[], object], keys: str = "") -> QAction:
        """An action of this page; its keys, which must be none of the window's, are heard while it is on show."""
        action = QAction(words, self)
        action.triggered.connect(lambda checked=False: act())
        action.setShortcut(QKeySequence(keys))
        action.setShortcutContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self.addAction(action)
        return action

    def enter(self) -> None:
        """It comes on show: takes the keyboard's focus."""
        self.setFocus()

    def give_up(self) -> bool:
        """Esc: ends what runs on it. False where nothing does."""
        return False

    def take_file(self, path: Path) -> bool:
        """Takes a file or folder that was opened or dropped while it is on show. False where it is not for this
        page."""
        return False

    def ask_file(self, take: Callable[[str], object]) -> bool:
        """Asks which file is to be opened, for `take`. False where it has no dialog of its own for that."""
        return False

    def close_down(self) -> None:
        """The window closes: nothing that runs here goes on."""
