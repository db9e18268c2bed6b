"""What was done in the window and can be taken back: one stack for all pages, with its two keys."""

from PySide6.QtGui import QAction, QKeySequence, QUndoStack
from PySide6.QtWidgets import QWidget

MOST = 100  # steps back


class Undoing(QUndoStack):
    """`actions` say what they would take back: "Undo: deleted run mixed". Text fields keep their own undo, and its key
    while they have the focus."""

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self.setUndoLimit(MOST)
        undo, redo = self.createUndoAction(window, "Undo:"), self.createRedoAction(window, "Redo:")
        undo.setShortcut(QKeySequence("Ctrl+Z"))
        redo.setShortcuts([QKeySequence("Ctrl+Shift+Z"), QKeySequence("Ctrl+Y")])
        window.addActions([undo, redo])
        self.actions: list[QAction] = [undo, redo]
