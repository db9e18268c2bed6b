"""What is asked of each of the window's pages."""

from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.ui.layouts import named


class Page(QWidget):
    """A page does what it is not asked to do otherwise."""

    undoable = Signal(str, object, object)  # what was done on it, in words; what takes it back, and does it again

    def __init__(self, name: str) -> None:
        super().__init__()
        named(self, name, "page")

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

    def close_down(self) -> None:
        """The window closes: nothing that runs here goes on."""
