"""A replica that Ray keeps, with an engine's face."""

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Unpack

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from engine.config.live_budget import BudgetChanges, LiveBudget
from engine.config.specs import EngineConfig, InvalidInput
from engine.config.submission import Prompt, Submission
from engine.core.child.process import EngineDied
from engine.core.face import EngineFace
from engine.core.stream import Stream
from engine.trace.records import Ended, Header, Notice, Record, Submitted, decode
from engine.trace.trace import Trace

PATIENCE = 30.0  # seconds for an answer that is no stream
GONE = RayError, RayServeException, TimeoutError, StopIteration


class RayReplica(EngineFace):
    """The replica of this name; `handle` is its deployment's. Its records come in one stream, a batch a step. Returns
    when its header is there. `submit_many` gives no streams: whoever reads them reads the trace. Raises EngineDied."""

    def __init__(self, handle: Any, name: str) -> None:
        self._handle, self.name = handle, name
        self._closing = False
        self._lock = threading.Lock()
        self._calls: list[tuple[Any, list[str]]] = []  # open calls of `generate`, with the labels of their requests
        self._labels: dict[int, str] = {}  # of the requests that are open
        self._watching: Any = None
        self.trace = Trace()
        self._there: Future[Header] = Future()
        self._reader = threading.Thread(target=self._read, name=f"fleet-ray-{name}", daemon=True)
        self._reader.start()
        header = self._there.result()
        self.card, self.config = header.model, header.config
        self.pid = int(self._call("process"))

    @property
    def budget(self) -> LiveBudget:
        return LiveBudget.of(self.config)

    def submit_many(self, submissions: Sequence[Submission], more: bool = False) -> list[Stream]:
        self._check()
        now = time.perf_counter()
        asked = [(replace(s, time=None), now - s.time if s.time is not None else 0.0) for s in submissions]
        try:
            call = self._handle.options(method_name="generate", stream=True).remote(at=self.name, asked=asked)
            said, why = next(call)
        except GONE as error:
            raise self._died(error) from None
        if said == "refused":
            raise InvalidInput(why)
        labels = [submission.label for submission in submissions]
        with self._lock:
            going = set(self._labels.values())
            self._calls = [(one, theirs) for one, theirs in self._calls if not going.isdisjoint(theirs)]
            self._calls.append((call, labels))  # Ray ends a call that nobody has any more
        return []

    def cancel(self, requests: Iterable[int] | None = None, trace: Trace | None = None) -> None:
        ids = None if requests is None else list(requests)
        if self.alive:
            self._handle.options(method_name="cancel").remote(at=self.name, requests=ids)

    def encode(self, prompt: Prompt) -> list[int]:
        return list(self._ask("encode", prompt))

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._ask("decode", list(tokens)))

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return list(self._ask("pieces", list(tokens)))

    def steer(self, **changes: Unpack[BudgetChanges]) -> LiveBudget:
        raise InvalidInput("a replica's budget stays as it was loaded")

    def begin(self, config: EngineConfig) -> Trace:
        raise InvalidInput("a replica keeps its config and its trace")

    def kill(self) -> None:
        """Ends its engine as a crash would."""
        self._handle.options(method_name="die").remote(at=self.name)

    def close(self) -> None:
        """Lets go of it; Ray keeps it or ends it."""
        self._closing, self.alive = True, False
        self._calls.clear()
        if (watching := self._watching) is not None:
            watching.cancel()
        self._reader.join(PATIENCE)

    def _check(self) -> None:
        if not self.alive:
            raise EngineDied(self.error)

    def _ask(self, verb: str, argument: Any) -> Any:
        said, answer = self._call("ask", verb=verb, argument=argument)
        if said == "refused":
            raise InvalidInput(answer)
        return answer

    def _call(self, method: str, **given: Any) -> Any:
        self._check()
        try:
            return self._handle.options(method_name=method).remote(at=self.name, **given).result(timeout_s=PATIENCE)
        except GONE as error:
            raise self._died(error) from None

    def _died(self, error: Exception) -> EngineDied:
        self.alive = False
        self.error = self.error or f"Ray's replica {self.name} is gone ({type(error).__name__})"
        return EngineDied(self.error)

    # The reader's thread.

    def _read(self) -> None:
        try:
            self._watching = self._handle.options(method_name="watch", stream=True).remote(at=self.name)
            for batch in self._watching:
                for kind, data in batch:
                    self._hear(decode(kind, data))
            self._died(StopIteration())
        except Exception as error:
            self._died(error)
        if not self._there.done():
            self._there.set_exception(EngineDied(self.error))
        elif not self._closing:
            self.trace.append(Notice(self.trace.end, "error", self.error))

    def _hear(self, record: Record) -> None:
        self.trace.append(record)
        match record:
            case Header():
                self._there.set_result(record)
            case Submitted():
                with self._lock:
                    self._labels[record.request] = record.label
            case Ended():
                with self._lock:
                    if all(request != record.request for request, _ in self.trace.open):
                        self._labels.pop(record.request, None)
            case _:
                pass
