"""How long the window's thread works in each frame, and a trace that replays in real time."""

import threading
import time
from collections.abc import Sequence
from time import perf_counter

import numpy as np
from PySide6.QtCore import QEvent, QObject, QTimer

from app.playback.bridge import Bridge
from engine import Trace
from engine.trace import Record, time_of

REST = 0.002


def spread(ms: Sequence[float]) -> dict[str, float]:
    """Of milliseconds: the median, the slowest twentieth and hundredth, and the slowest of all."""
    figures = zip(("p50_ms", "p95_ms", "p99_ms", "max_ms"), np.percentile(ms or [0.0], (50, 95, 99, 100)))
    return {name: float(figure) for name, figure in figures}


class FrameMeter(QObject):
    """Sums what the GUI thread does between two ticks of the bridge: draining, panels, painting, everything.

    Whenever the event loop has nothing to do, the meter sleeps for two milliseconds; all time between two sleeps is
    work, waits for a core or for the interpreter's lock included. It adds about 0.3 ms of its own to a frame.
    """

    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self._frames: list[float] = []
        self._awake = self._began = 0.0
        self._work = self._cpu = 0.0
        ticks = bridge.findChild(QTimer)
        assert ticks is not None
        self._ticks = ticks
        self._idle = QTimer(self)  # of interval 0: fires when nothing else is due
        self._idle.timeout.connect(self._on_idle)

    def start(self) -> None:
        """Forgets the frames so far and counts from the next tick."""
        self._frames, self._work = [], 0.0
        self._awake = self._began = perf_counter()
        self._cpu = time.thread_time()
        self._ticks.installEventFilter(self)
        self._idle.start()

    def stop(self) -> dict[str, float]:
        """Ends the count: milliseconds of work a frame, and frames a second."""
        self._idle.stop()
        self._ticks.removeEventFilter(self)
        seconds = perf_counter() - self._began
        frames = [1000 * frame for frame in self._frames[1:] or [0.0]]
        return {
            "frames": len(frames),
            "seconds": seconds,
            "fps": len(self._frames) / seconds,
            **spread(frames),
            "busy_share": sum(frames) / 1000 / seconds,
            "cpu_share": (time.thread_time() - self._cpu) / seconds,
        }

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Timer:
            now = perf_counter()
            self._frames.append(self._work + now - self._awake)
            self._work, self._awake = 0.0, now
        return False

    def _on_idle(self) -> None:
        self._work += perf_counter() - self._awake
        time.sleep(REST)
        self._awake = perf_counter()


class Replayer:
    """Appends records to `trace` at the times they tell, from a thread of its own, as a live engine's listener does."""

    def __init__(self, records: Sequence[Record], batch_seconds: float = 0.016) -> None:
        self.trace = Trace()
        self._records, self._interval = records, batch_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._play, name="replayer", daemon=True)
        self.done = threading.Event()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the replay and its thread."""
        self._stopped.set()
        self._thread.join()

    def _play(self) -> None:
        begun, at, records = time.perf_counter(), 0, self._records
        while at < len(records) and not self._stopped.is_set():
            now, end = time.perf_counter() - begun, at
            while end < len(records) and time_of(records[end]) <= now:
                end += 1
            self.trace.extend(records[at:end])
            at = end
            self._stopped.wait(self._interval)
        if at == len(records):
            self.done.set()
