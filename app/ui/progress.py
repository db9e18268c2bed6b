"""How far something is, as a bar."""

from PySide6.QtWidgets import QProgressBar

WHOLE = 1000


class Progress(QProgressBar):
    """`name` for tests and styles, `said` for screen readers."""

    def __init__(self, name: str, said: str) -> None:
        super().__init__()
        self.setObjectName(name)
        self.setAccessibleName(said)
        self.setTextVisible(False)
        self.setRange(0, WHOLE)

    def show_share(self, done: float | None, total: float = 1) -> None:
        """So much of the total; None or a total of 0: it is at work, and nobody knows how far."""
        known = done is not None and total > 0
        self.setRange(0, WHOLE if known else 0)
        if done is not None and total > 0:
            self.setValue(round(WHOLE * done / total))
