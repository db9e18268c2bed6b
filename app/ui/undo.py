"""What was done and can be taken back: one stack for the whole window."""

from collections.abc import Callable

from PySide6.QtCore import Signal, SignalInstance
from PySide6.QtGui import QAction, QKeySequence, QUndoCommand, QUndoStack
from PySide6.QtWidgets import QWidget

from app.language import tr
from app.ui.banner import Action
from engine import InvalidInput

MOST = 100  # steps back
Act = Callable[[], object]


class _Change(QUndoCommand):
    """It has been made when it is pushed. What cannot be done any more is forgotten."""

    def __init__(self, words: str, undo: Act, redo: Act, failed: Callable[[str], object]) -> None:
        super().__init__(words)
        self._undo, self._redo, self._failed = undo, redo, failed
        self._pushed = False

    def undo(self) -> None:
        self._do(self._undo)

    def redo(self) -> None:
        if self._pushed:
            self._do(self._redo)
        self._pushed = True

    def _do(self, act: Act) -> None:
        try:
            act()
        except (InvalidInput, OSError) as error:
            self.setObsolete(True)
            self._failed(str(error))


class UndoStack(QUndoStack):
    """`actions` have the window's two keys and say what they take back: "Undo: deleted run mixed". A text field keeps
    its own undo, and the key while it has the focus."""

    failed = Signal(str)  # why something cannot be taken back, or done again, any more

    def __init__(self, window: QWidget) -> None:
        super().__init__(window)
        self.setUndoLimit(MOST)
        undo = self._action(window, self.undo, self.canUndoChanged, "Ctrl+Z")
        redo = self._action(window, self.redo, self.canRedoChanged, "Ctrl+Shift+Z")
        undo.setText(tr("Undo"))
        redo.setText(tr("Redo"))
        self.undoTextChanged.connect(lambda what: undo.setText(tr("Undo: {what}", what=what) if what else tr("Undo")))
        self.redoTextChanged.connect(lambda what: redo.setText(tr("Redo: {what}", what=what) if what else tr("Redo")))
        self.actions: list[QAction] = [undo, redo]

    def _action(self, window: QWidget, act: Act, can: SignalInstance, keys: str) -> QAction:
        action = QAction(window)
        action.setShortcut(QKeySequence(keys))
        action.setEnabled(False)
        action.triggered.connect(lambda checked=False: act())
        can.connect(action.setEnabled)
        window.addAction(action)
        return action

    def did(self, words: str, undo: Act, redo: Act) -> Action:
        """Something was done, told as "deleted run mixed". Returns what a banner offers, which takes back this and
        nothing else."""
        self.push(_Change(words, undo, redo, self.failed.emit))
        place = self.index()
        return tr("Undo"), lambda: self.undo() if self.index() == place else None
