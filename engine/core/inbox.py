"""What other threads ask of the engine's thread."""

import threading
from collections.abc import Callable

Ask = Callable[[], None]


class Inbox:
    """Asked in order, from any thread. What was taken in before `close` is still handed out; nothing is after it."""

    def __init__(self) -> None:
        self.closed = False
        self._asked: list[Ask] = []
        self._changed = threading.Condition()

    def post(self, ask: Ask) -> bool:
        """False where it is closed, and nobody will do it."""
        with self._changed:
            if not self.closed:
                self._asked.append(ask)
                self._changed.notify()
            return not self.closed

    def take(self, waits: bool, patience: float | None) -> tuple[list[Ask], bool]:
        """What was asked since the last call, and whether that was all; `waits` up to `patience` seconds for some."""
        with self._changed:
            if waits:
                self._changed.wait_for(lambda: self._asked or self.closed, patience)
            asked, self._asked = self._asked, []
            return asked, self.closed

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify()
