"""What can be undone: a change that knows its way back, for the window's undo stack."""

from collections.abc import Callable

from PySide6.QtGui import QUndoCommand

from engine import InvalidInput


class Change(QUndoCommand):
    """`words` say what was done ("Deleted run mixed"). The change has been made when it is pushed; `redo` makes it
    again. Where either cannot be done any more, `failed` is told why and the change is forgotten."""

    def __init__(
        self, words: str, undo: Callable[[], object], redo: Callable[[], object], failed: Callable[[str], object]
    ) -> None:
        super().__init__(words)
        self._undo, self._redo, self._failed = undo, redo, failed
        self._made = True

    def undo(self) -> None:
        self._do(self._undo)

    def redo(self) -> None:
        if not self._made:
            self._do(self._redo)
        self._made = False

    def _do(self, act: Callable[[], object]) -> None:
        try:
            act()
        except (InvalidInput, OSError) as error:
            self.setObsolete(True)
            self._failed(str(error))
