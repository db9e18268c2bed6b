"""A workload under way: its growing trace, its progress, its cancellation."""

import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from engine.config.specs import InvalidInput
from engine.config.submission import Submission
from engine.core.stream import Stream
from engine.trace.records import Ended, Record, Submitted
from engine.trace.trace import Trace
from engine.workloads.workload import Workload

GLANCE = 0.2  # seconds between looks at whether the trace was closed under a run that waits


class SubmitMany(Protocol):
    """Engine.submit_many. `more`: others follow that do not wait for these to end."""

    def __call__(self, submissions: Sequence[Submission], more: bool = False) -> list[Stream]: ...


class Run:
    """Feeds a workload's arrivals from a thread of its own, at most `workload.concurrency` of them open at once.

    A request that such a limit held back counts as submitted when it is really sent, as with `vllm bench serve
    --max-concurrency`. `finished` counts ended requests of `total`; `error` is what stopped the run early.
    """

    def __init__(
        self, workload: Workload, trace: Trace, submit_many: SubmitMany, cancel: Callable[[Iterable[int]], None]
    ) -> None:
        self.workload, self.trace, self.total = workload, trace, len(workload)
        self.finished = 0
        self.error: Exception | None = None
        self._submit_many, self._cancel = submit_many, cancel
        self._changed = threading.Condition()  # guards what follows; never held while submitting
        self._branches: dict[int, int] = {}  # of each request in the trace: how many are not over
        self._open: set[int] = set()  # this run's requests that are not over
        self._ended_early: set[int] = set()  # requests that were over before it was known whose they are
        self._cancelled = False
        self._fed, self._done = threading.Event(), threading.Event()
        trace.listen(self._on_record)
        self._thread = threading.Thread(target=self._play, name="run", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits for the last request; False when `timeout` seconds were not enough."""
        return self._done.wait(timeout)

    def cancel(self) -> None:
        """No more arrivals; requests that run end with reason "cancelled"."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()
        self._fed.wait()
        self._cancel_open()

    def result(self, timeout: float | None = None) -> Trace:
        """Waits for the last request. Raises what stopped the run early, or TimeoutError."""
        if not self._done.wait(timeout):
            raise TimeoutError(f"{self.finished} of {self.total} requests ended after {timeout} s")
        if self.error is not None:
            raise self.error
        self.trace.complete = True
        return self.trace

    # On the thread that appends to the trace.

    def _on_record(self, record: Record) -> None:
        match record:
            case Submitted():
                with self._changed:
                    self._branches[record.request] = record.params.branches
            case Ended():
                with self._changed:
                    left = self._branches.pop(record.request, 1) - 1
                    if left:
                        self._branches[record.request] = left
                        return
                    if record.request in self._open:
                        self._open.remove(record.request)
                        self.finished += 1
                        self._changed.notify_all()
                    else:
                        self._ended_early.add(record.request)
            case _:
                pass

    # On the run's thread.

    def _play(self) -> None:
        sent = 0
        try:
            for streams in self._feed():
                sent += len(streams)
                self._take(streams)
            if sent < self.total and not self._cancelled:
                self.error = InvalidInput(
                    f"the engine was closed or began another run: {self.total - sent} of {self.total} requests "
                    "were never sent; start the run again"
                )
        except Exception as error:  # a prompt was refused, or the engine is gone: the run ends with it
            self.error = error
        self.total = sent
        if self.error is not None:
            self._cancel_open()
        self._fed.set()
        with self._changed:
            while self._open and not self.trace.complete:
                self._changed.wait(GLANCE)
            lost = len(self._open)
        if lost and not self._cancelled and self.error is None:
            self.error = InvalidInput(
                f"the engine ended while {lost} of {self.total} requests ran; start the run again"
            )
        self._done.set()

    def _feed(self) -> Iterable[list[Stream]]:
        """Submits the arrivals as they are due and as the limit allows, until the last or until the run is stopped."""
        begun = time.perf_counter()
        arrivals, at, held = self.workload.arrivals, 0, begun  # `held`: until then some had to wait for others' end
        limit = self.workload.concurrency or len(arrivals)
        while at < len(arrivals):
            self._wait(lambda: False, begun + arrivals[at].time)
            if len(self._open) >= limit:
                self._wait(lambda: len(self._open) < limit)
                held = time.perf_counter()
            if self._stopped:
                return
            now = time.perf_counter()
            due = bisect_right(arrivals, now - begun, lo=at + 1, key=lambda a: a.time)
            room = limit - len(self._open)
            end = min(due, at + room)
            batch = [Submission(a.prompt, a.params, max(begun + a.time, held), a.label) for a in arrivals[at:end]]
            yield self._submit_many(batch, more=end < min(len(arrivals), at + room))
            if end < due:
                held = now
            at = end

    @property
    def _stopped(self) -> bool:
        return self._cancelled or self.trace.complete

    def _wait(self, until: Callable[[], bool], deadline: float = float("inf")) -> None:
        """Returns when `until` holds, at the deadline, or when the run is stopped."""
        with self._changed:
            while not (until() or self._stopped):
                left = deadline - time.perf_counter()
                if left <= 0:
                    return
                self._changed.wait(min(left, GLANCE))

    def _take(self, streams: Sequence[Stream]) -> None:
        """These requests are this run's."""
        with self._changed:
            requests = {stream.request for stream in streams}
            over = requests & self._ended_early
            self._ended_early -= over
            self._open |= requests - over
            self.finished += len(over)

    def _cancel_open(self) -> None:
        with self._changed:
            requests = sorted(self._open)
        if requests:
            self._cancel(requests)
