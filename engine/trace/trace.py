"""The growing log of one load and one config, and the index of requests that views read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from engine.config import Message, SamplingParams
from engine.trace.records import Array, Ended, FinishReason, Header, Kind, Record, Step, Submitted


class State(StrEnum):
    WAITING = "queued"
    PREFILL = "prefill"
    DECODE = "decoding"
    PREEMPTED = "preempted"
    FINISHED = "finished"


@dataclass(slots=True)
class SampleView:
    """One continuation of a request. Times are seconds from the trace's start, None until they happen.

    `token_times[i]` is when token i was committed; `computed` counts the tokens whose K and V are in the cache, of
    which `reused` were there already.
    """

    branch: int = 0
    state: State = State.WAITING
    ended: float | None = None
    reason: FinishReason | None = None
    error: str = ""
    computed: int = 0
    reused: int = 0
    slot: int = -1
    parts: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    token_times: list[float] = field(default_factory=list)
    text_ends: list[int] = field(default_factory=list)  # where each token's part of `text` ends

    def add(self, token: int, logprob: float, time: float, text: str) -> None:
        """One more token and its part of the text."""
        if text:
            self.parts.append(text)
        self.text_ends.append((self.text_ends[-1] if self.text_ends else 0) + len(text))
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.token_times.append(time)

    def add_tail(self, text: str) -> None:
        """Text that was held back until the end: the last token's."""
        if text:
            self.parts.append(text)
            if self.text_ends:
                self.text_ends[-1] += len(text)

    @property
    def text(self) -> str:
        if len(self.parts) > 1:
            self.parts[:] = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""


@dataclass(slots=True)
class RequestView:
    """One request as the records so far tell it, with its `params.n` samples. What only a sample has (text, tokens,
    times) is the first sample's; state, end and error are those of all."""

    request: int
    submitted: float
    prompt: str
    prompt_ids: Array
    params: SamplingParams
    messages: tuple[Message, ...] = ()
    label: str = ""
    scheduled: float | None = None
    preemptions: int = 0
    samples: list[SampleView] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.samples:
            self.samples = [SampleView(i) for i in range(self.params.n)]

    @property
    def state(self) -> State:
        """The liveliest sample's: finished only when all are."""
        if len(self.samples) == 1:
            return self.samples[0].state
        return max((sample.state for sample in self.samples), key=_LIVELINESS.__getitem__)

    @property
    def ended(self) -> float | None:
        ends = [sample.ended for sample in self.samples if sample.ended is not None]
        return max(ends) if len(ends) == len(self.samples) else None

    @property
    def reason(self) -> FinishReason | None:
        """Why it ended, None while any sample goes on; the worst reason of several."""
        reasons = [sample.reason for sample in self.samples if sample.reason is not None]
        if len(reasons) < len(self.samples):
            return None
        return reasons[0] if len(reasons) == 1 else max(reasons, key=list(FinishReason).index)

    @property
    def error(self) -> str:
        return next((sample.error for sample in self.samples if sample.error), "")

    @property
    def text(self) -> str:
        return self.samples[0].text

    @property
    def parts(self) -> list[str]:
        return self.samples[0].parts

    @property
    def tokens(self) -> list[int]:
        return self.samples[0].tokens

    @property
    def logprobs(self) -> list[float]:
        return self.samples[0].logprobs

    @property
    def token_times(self) -> list[float]:
        return self.samples[0].token_times

    @property
    def computed(self) -> int:
        return self.samples[0].computed

    @property
    def reused(self) -> int:
        return self.samples[0].reused

    @property
    def slot(self) -> int:
        return self.samples[0].slot

    @property
    def first_token(self) -> float | None:
        return min((s.token_times[0] for s in self.samples if s.token_times), default=None)

    @property
    def last_token(self) -> float | None:
        return max((s.token_times[-1] for s in self.samples if s.token_times), default=None)

    @property
    def ttft(self) -> float | None:
        """Time to first token, seconds: first token of any sample minus submit."""
        first = self.first_token
        return first - self.submitted if first is not None else None

    @property
    def tokens_per_second(self) -> float | None:
        """1 / TPOT of the first sample: (n - 1) tokens over last minus first token time."""
        times = self.samples[0].token_times
        if len(times) < 2 or times[-1] <= times[0]:
            return None
        return (len(times) - 1) / (times[-1] - times[0])


_LIVELINESS = {
    State.FINISHED: 0, State.WAITING: 1, State.PREEMPTED: 2, State.PREFILL: 3, State.DECODE: 4,
}  # fmt: skip


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
                sample = self.requests[record.request].samples[record.branch]
                sample.state, sample.ended, sample.reason, sample.error = (
                    State.FINISHED, record.time, record.reason, record.error,
                )  # fmt: skip
                at = 0
                for token, logprob, end in zip(
                    record.token.tolist(), record.logprob.tolist(), record.text_end.tolist(), strict=True
                ):
                    sample.add(token, logprob, record.time, record.text[at:end])
                    at = end
                sample.add_tail(record.text[at:])
            case _:
                pass

    def _step(self, step: Step) -> None:
        requests, started, text, at = self.requests, step.started, step.text, 0
        branches = step.preempted_branch.tolist() or [0] * len(step.preempted)
        for request, branch in zip(step.preempted.tolist(), branches, strict=True):
            requests[request].preemptions += 1
            sample = requests[request].samples[branch]
            sample.state, sample.slot, sample.computed, sample.reused = State.PREEMPTED, -1, 0, 0
        rows = zip(
            step.request.tolist(), step.branch.tolist(), step.slot.tolist(), step.first.tolist(), step.count.tolist(),
            step.kind.tolist(), strict=True,
        )  # fmt: skip
        samples = []
        for request, branch, slot, first, count, kind in rows:
            view = requests[request]
            sample = view.samples[branch]
            samples.append(sample)
            if sample.state is State.FINISHED or kind == Kind.HELD:
                continue
            sample.state = State.DECODE if kind == Kind.DECODE else State.PREFILL
            sample.slot, sample.computed = slot, first + count
            if view.scheduled is None:
                view.scheduled = started
        ended = step.ended
        for row, token, logprob, end in zip(
            step.token_row.tolist(), step.token.tolist(), step.logprob.tolist(), step.text_end.tolist(), strict=True
        ):
            sample = samples[row]
            sample.add(token, logprob, ended, text[at:end])
            at = end
            if sample.state is State.PREFILL:
                sample.state = State.DECODE
        for row in np.flatnonzero(step.reused).tolist():
            samples[row].reused = int(step.reused[row])


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
        """Seconds from the first submission to the last committed step."""
        begun = next((r.time for r in self.records if isinstance(r, Submitted)), 0.0)
        for record in reversed(self.records):
            if isinstance(record, Step):
                return record.ended - begun
        return 0.0
