"""The growing log of one load and one config, and the index of requests that views read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from engine.config import Message, SamplingParams
from engine.trace.records import Array, Ended, FinishReason, Header, Kind, Record, Step, Submitted


class State(StrEnum):
    WAITING = "queued"
    PREFILL = "prefill"
    DECODE = "decoding"
    PREEMPTED = "preempted"
    FINISHED = "finished"


@dataclass(slots=True)
class RequestView:
    """One request as the records so far tell it. Times are seconds from the trace's start, None until they happen.

    `token_times[i]` is when token i was committed; `computed` counts the tokens whose K and V are in the cache.
    """

    request: int
    submitted: float
    prompt: str
    prompt_ids: Array
    params: SamplingParams
    messages: tuple[Message, ...] = ()
    label: str = ""
    state: State = State.WAITING
    scheduled: float | None = None
    ended: float | None = None
    reason: FinishReason | None = None
    error: str = ""
    computed: int = 0
    slot: int = -1
    preemptions: int = 0
    parts: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    token_times: list[float] = field(default_factory=list)

    @property
    def text(self) -> str:
        if len(self.parts) > 1:
            self.parts[:] = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""

    @property
    def first_token(self) -> float | None:
        return self.token_times[0] if self.token_times else None

    @property
    def last_token(self) -> float | None:
        return self.token_times[-1] if self.token_times else None

    @property
    def ttft(self) -> float | None:
        """Time to first token, seconds: first token minus submit."""
        return self.token_times[0] - self.submitted if self.token_times else None

    @property
    def tokens_per_second(self) -> float | None:
        """1 / TPOT: (n - 1) tokens over last minus first token time."""
        if len(self.token_times) < 2 or self.token_times[-1] <= self.token_times[0]:
            return None
        return (len(self.token_times) - 1) / (self.token_times[-1] - self.token_times[0])


class RequestIndex:
    """Requests by id, kept up to date by feeding it records in order. Costs O(rows) a step."""

    def __init__(self) -> None:
        self.requests: dict[int, RequestView] = {}

    def feed(self, record: Record) -> None:
        match record:
            case Step():
                self._step(record)
            case Submitted():
                self.requests[record.request] = RequestView(
                    record.request, record.time, record.text, record.token_ids, record.params, record.messages,
                    record.label,
                )  # fmt: skip
            case Ended():
                view = self.requests[record.request]
                view.state, view.ended, view.reason, view.error = (
                    State.FINISHED, record.time, record.reason, record.error,
                )  # fmt: skip
                if record.text:
                    view.parts.append(record.text)
            case _:
                pass

    def _step(self, step: Step) -> None:
        requests, started, text, at = self.requests, step.started, step.text, 0
        for request in step.preempted.tolist():
            view = requests[request]
            view.state, view.slot, view.computed = State.PREEMPTED, -1, 0
            view.preemptions += 1
        rows = zip(
            step.request.tolist(), step.slot.tolist(), step.first.tolist(), step.count.tolist(), step.kind.tolist(),
            step.text_end.tolist(), strict=True,
        )  # fmt: skip
        views = []
        for request, slot, first, count, kind, end in rows:
            view = requests[request]
            views.append(view)
            part, at = text[at:end], end
            if view.state is State.FINISHED:
                continue
            view.state = State.DECODE if kind == Kind.DECODE else State.PREFILL
            view.slot, view.computed = slot, first + count
            if view.scheduled is None:
                view.scheduled = started
            if part:
                view.parts.append(part)
        ended = step.ended
        for row, token, logprob in zip(
            step.token_row.tolist(), step.token.tolist(), step.logprob.tolist(), strict=True
        ):
            view = views[row]
            view.tokens.append(token)
            view.logprobs.append(logprob)
            view.token_times.append(ended)
            if view.state is State.PREFILL:
                view.state = State.DECODE


class Trace:
    """The append-only log. Appending is safe from any thread; `records` may be read by index while it grows.

    Listeners run on the appending thread: they must be quick and must not append.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records: list[Record] = list(records)
        self.complete = False
        self._lock = threading.Lock()
        self._listeners: list[Callable[[Record], None]] = []
        self._index = RequestIndex()
        self._indexed = 0

    def append(self, record: Record) -> None:
        with self._lock:
            self.records.append(record)
            for listener in self._listeners:
                listener(record)

    def extend(self, records: Sequence[Record]) -> None:
        for record in records:
            self.append(record)

    def listen(self, listener: Callable[[Record], None]) -> None:
        with self._lock:
            self._listeners.append(listener)

    def since(self, position: int) -> list[Record]:
        """The records from `position` on: a reader keeps `position + len(result)` for the next call."""
        return self.records[position:]

    @property
    def header(self) -> Header:
        first = self.records[0] if self.records else None
        if not isinstance(first, Header):
            raise ValueError("this trace has no header yet")
        return first

    @property
    def requests(self) -> dict[int, RequestView]:
        """Every request so far, by id, brought up to date with the records at the time of the call."""
        with self._lock:
            for record in self.records[self._indexed :]:
                self._index.feed(record)
            self._indexed = len(self.records)
        return self._index.requests

    @property
    def steps(self) -> list[Step]:
        return [r for r in self.records if isinstance(r, Step)]

    @property
    def duration(self) -> float:
        """Seconds from the first submission to the last committed step or end."""
        begun = next((r.time for r in self.records if isinstance(r, Submitted)), 0.0)
        for record in reversed(self.records):
            if isinstance(record, Step):
                return record.ended - begun
        return 0.0
