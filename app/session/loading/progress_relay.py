"""How far the work of another thread is, told on the GUI thread: the latest, ten times a second at most."""

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from app.session.loading.progress import LoadMeter
from engine.jobs import LoadProgress

PAUSE_MS = 100


class ProgressRelay(QObject):
    """One piece of work after another."""

    progressed = Signal(object)  # LoadStatus
    _reported = Signal()

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._meter = LoadMeter()
        self._latest: LoadProgress | None = None  # that is not told yet
        self._pause = QTimer(self, singleShot=True, interval=PAUSE_MS)
        self._pause.timeout.connect(self._tell)
        self._reported.connect(self._on_reported, Qt.ConnectionType.QueuedConnection)

    def clear(self) -> None:
        """This piece is over, or the next one begins: nothing of it is told any more."""
        self._meter, self._latest = LoadMeter(), None
        self._pause.stop()

    def report(self, progress: LoadProgress) -> None:
        """From any thread."""
        first, self._latest = self._latest is None, progress
        if first:
            self._reported.emit()

    def end(self) -> None:
        """This piece is over: tells what is left to tell."""
        self._tell()
        self.clear()

    def _on_reported(self) -> None:
        if not self._pause.isActive():
            self._tell()

    def _tell(self) -> None:
        progress, self._latest = self._latest, None
        if progress is not None:
            self._pause.start()
            self.progressed.emit(self._meter.read(progress))
