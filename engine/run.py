"""A workload under way: its growing trace, its progress, its cancellation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from engine.config import Submission
from engine.stream import Stream
from engine.trace.records import Ended, Record
from engine.trace.trace import Trace
from engine.workload import Workload


class Run:
    """Feeds a workload's arrivals from a thread of its own. `finished` counts ended requests of `total`."""

    def __init__(
        self,
        workload: Workload,
        trace: Trace,
        submit_many: Callable[[Sequence[Submission]], list[Stream]],
        cancel: Callable[[], None],
    ) -> None:
        self.workload, self.trace, self.total = workload, trace, len(workload)
        self.finished = 0
        self.error: Exception | None = None
        self._submit_many, self._cancel = submit_many, cancel
        self._cancelled, self._done = threading.Event(), threading.Event()
        trace.listen(self._on_record)
        self._thread = threading.Thread(target=self._feed, name="run", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def _on_record(self, record: Record) -> None:
        if isinstance(record, Ended):
            self.finished += 1
            if self.finished >= self.total:
                self._done.set()

    def _feed(self) -> None:
        begun, at = time.perf_counter(), 0
        arrivals = self.workload.arrivals
        try:
            while at < self.total and not self._cancelled.is_set():
                due = begun + arrivals[at].time
                if self._cancelled.wait(max(0.0, due - time.perf_counter())):
                    break
                now = time.perf_counter() - begun
                end = at + 1
                while end < self.total and arrivals[end].time <= now:
                    end += 1
                self._submit_many([Submission(a.prompt, a.params, begun + a.time, a.label) for a in arrivals[at:end]])
                at = end
        except Exception as error:  # a prompt was refused, or the engine is gone: the run ends with it
            self.error = error
            self._cancel()
        finally:
            self.total = at
            if self.finished >= self.total:
                self._done.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the last request; False when `timeout` seconds were not enough."""
        return self._done.wait(timeout)

    def cancel(self) -> None:
        """No more arrivals; requests that run end with reason "cancelled"."""
        self._cancelled.set()
        self._thread.join()
        self._cancel()

    def result(self, timeout: float | None = None) -> Trace:
        """Waits for the last request. Raises what stopped the run early, or TimeoutError."""
        if not self._done.wait(timeout):
            raise TimeoutError(f"{self.finished} of {self.total} requests ended after {timeout} s")
        if self.error is not None:
            raise self.error
        self.trace.complete = True
        return self.trace
