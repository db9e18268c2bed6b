"""One request as its caller sees it: deltas as they come, sync or async, and the completion in the end."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from engine.trace.measures.metrics import RequestMetrics
from engine.trace.records import Ended, FinishReason, PromptScored, Record, Step
from engine.trace.trace import Trace

Cancel = Callable[[list[int], Trace], None]  # an engine's: ends requests of that trace


class Delta(NamedTuple):  # made by the hundred in every step
    """What one step added to a sample. `text` may be empty while a character or a stop string is held back.
    `alternatives`, where they were asked for: to each token the likeliest there, with their log-probabilities and what
    each is by itself."""

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    time: float
    sample: int = 0
    alternatives: tuple[tuple[tuple[int, float, str], ...], ...] = ()


class PromptToken(NamedTuple):
    """A token of a prompt, its log-probability given those before it, and the likeliest there with theirs."""

    token: int
    logprob: float
    alternatives: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Completion:
    """One sample of a request that is over. Of a beam search they come best first, and each has a `score`: the sum of
    its log-probabilities over its length to the power of the length penalty. `prompt_logprobs`, where they were asked
    for and the prompt was computed: of each of its tokens, None for the first."""

    request: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish_reason: FinishReason
    error: str
    metrics: RequestMetrics
    sample: int = 0
    score: float | None = None
    prompt_logprobs: tuple[PromptToken | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a caller knows of a request from the start; `submitted` in seconds from the trace's start; `amid`: its
    samples begin amid thoughts."""

    request: int
    submitted: float
    prompt_tokens: int
    samples: int = 1
    amid: bool = False


class Stream:
    """Iterate it, `async for` it, or wait for `result()`; `cancel()` ends it. Any number of readers, each from the
    beginning.

    The deltas of several samples come mixed; each says whose it is. Beams say what all of them begin with as it becomes
    certain, and the rest at the end.
    """

    def __init__(self, ticket: Ticket, trace: Trace, cancel: Cancel) -> None:
        self.request, self.submitted, self.prompt_tokens = ticket.request, ticket.submitted, ticket.prompt_tokens
        self.samples, self.amid, self._trace = ticket.samples, ticket.amid, trace
        self.scheduled: float | None = None  # when the first step that has it began, in seconds from the trace's start
        self.reused = 0  # tokens of the prompt whose K and V were there
        self._cancel: Cancel | None = cancel  # whose engine lives until this is over, whoever lets go of it
        self.deltas: list[Delta] = []
        self.prompt_scored: PromptScored | None = None  # where it was asked for, before the request ends
        self.ended: dict[int, Ended] = {}  # by sample
        self._changed = threading.Condition()
        self._waiting = 0  # readers that wait, or are about to see whether they must
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    @property
    def done(self) -> bool:
        return len(self.ended) == self.samples

    def cancel(self) -> None:
        """Ends the request, with all its samples, at the next step's border; it keeps the text it has by then. Returns
        at once, from any thread. Does nothing where it is over."""
        if (cancel := self._cancel) is not None:
            cancel([self.request], self._trace)

    def push(self, delta: Delta) -> None:
        self.deltas.append(delta)
        self._wake()

    def end(self, ended: Ended) -> None:
        if ended.text or len(ended.token):
            tokens, logprobs = tuple(ended.token.tolist()), tuple(ended.logprob.tolist())
            self.deltas.append(Delta(ended.text, tokens, logprobs, ended.time, ended.branch))
        self.ended[ended.branch] = ended
        if self.done:
            self._cancel = None
        self._wake()

    def _wake(self) -> None:
        """After something was added. Whoever waits says so before looking, so that nobody is overlooked who saw
        nothing new, and no lock is taken for streams that nobody waits for."""
        if not self._waiting and not self._waiters:
            return
        with self._changed:
            self._changed.notify_all()
            for loop, event in self._waiters:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)

    def _wait_for(self, ready: Callable[[], bool], timeout: float | None = None) -> bool:
        with self._changed:
            self._waiting += 1
            try:
                return self._changed.wait_for(ready, timeout)
            finally:
                self._waiting -= 1

    def __iter__(self) -> Iterator[Delta]:
        position = 0
        while True:
            self._wait_for(lambda: position < len(self.deltas) or self.done)  # noqa: B023
            if position >= len(self.deltas):
                return
            yield self.deltas[position]
            position += 1

    async def __aiter__(self) -> AsyncIterator[Delta]:
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._changed:
            self._waiters.append(waiter)
        try:
            position = 0
            while True:
                waiter[1].clear()
                if position < len(self.deltas):
                    yield self.deltas[position]
                    position += 1
                elif self.done:
                    return
                else:
                    await waiter[1].wait()
        finally:
            with self._changed:
                self._waiters.remove(waiter)

    def result(self, timeout: float | None = None) -> Completion:
        """Waits for the end; the first sample. Raises TimeoutError after `timeout` seconds; the request goes on."""
        return self.results(timeout)[0]

    def results(self, timeout: float | None = None) -> list[Completion]:
        """Waits for the end of all samples, as `result` does."""
        if not self._wait_for(lambda: self.done, timeout):
            raise TimeoutError(f"request {self.request} has not ended after {timeout} s")
        return [self._completion(sample) for sample in range(self.samples)]

    def _completion(self, sample: int) -> Completion:
        deltas = [d for d in self.deltas if d.sample == sample]
        times = [d.time for d in deltas for _ in d.token_ids]
        metrics = RequestMetrics.of(self.submitted, self.prompt_tokens, [times])
        text, ended = "".join(d.text for d in deltas), self.ended[sample]
        ids, logprobs = tuple(i for d in deltas for i in d.token_ids), tuple(p for d in deltas for p in d.logprobs)
        told = prompt_tokens(self.prompt_scored) if self.prompt_scored is not None else None
        how = ended.reason, ended.error, metrics, sample, ended.score
        return Completion(self.request, text, ids, logprobs, *how, told)


def prompt_tokens(scored: PromptScored) -> tuple[PromptToken | None, ...]:
    """The record as its caller has it."""
    shape = len(scored.logprob), scored.alternatives
    ids, logprobs = scored.alt_token.reshape(shape).tolist(), scored.alt_logprob.reshape(shape).tolist()
    own = zip(scored.token[1:].tolist(), scored.logprob.tolist())
    return None, *(
        PromptToken(token, logprob, tuple(zip(others, theirs)))
        for (token, logprob), others, theirs in zip(own, ids, logprobs)
    )


class StreamRouter:
    """Feeds the streams of one trace from its records: a listener of the trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.streams: dict[int, Stream] = {}
        self._waiting: dict[int, Stream] = {}  # those that no step had yet
        trace.listen(self)

    def open(self, ticket: Ticket, cancel: Cancel) -> Stream:
        stream = self.streams[ticket.request] = self._waiting[ticket.request] = Stream(ticket, self.trace, cancel)
        return stream

    def end_unknown(self, time: float, reason: FinishReason, error: str) -> None:
        """Ends the streams of requests that the trace will never know: their record was lost with a process."""
        for stream in list(self.streams.values()):
            for sample in range(stream.samples):
                stream.end(Ended(time, stream.request, reason, "", error, sample))

    def __call__(self, record: Record) -> None:
        match record:
            case Step():
                self._step(record)
            case Ended():
                stream = self.streams.get(record.request)
                if stream is not None:
                    stream.end(record)
                    if stream.done:
                        del self.streams[record.request]
                        self._waiting.pop(record.request, None)
            case PromptScored():
                if (stream := self.streams.get(record.request)) is not None:
                    stream.prompt_scored = record
            case _:
                pass

    def _step(self, step: Step) -> None:
        if not self.streams:
            return
        if self._waiting:
            for request, reused in zip(step.request.tolist(), step.reused.tolist()):
                if (stream := self._waiting.pop(request, None)) is not None:
                    stream.scheduled, stream.reused = step.started, reused
        rows, tokens, logprobs = step.token_row.tolist(), step.token.tolist(), step.logprob.tolist()
        requests, samples = step.request[step.token_row].tolist(), step.branch[step.token_row].tolist()
        ends, text, streams, time = step.text_end.tolist(), step.text, self.streams, step.ended
        others = _alternatives(step) if len(step.alt_token) else None
        first, count, at = 0, len(rows), 0
        while first < count:
            end = first + 1
            while end < count and rows[end] == rows[first]:
                end += 1
            stream = streams.get(requests[first])
            if stream is not None:
                new = tuple(tokens[first:end]), tuple(logprobs[first:end])
                beside = tuple(others[i] for i in range(first, end)) if others is not None else ()
                delta = text[at : ends[end - 1]], *new, time, samples[first], beside
                stream.push(tuple.__new__(Delta, delta))
            at, first = ends[end - 1], end


def _alternatives(step: Step) -> list[tuple[tuple[int, float, str], ...]]:
    """Of each emitted token, those that were likely there."""
    found: list[list[tuple[int, float, str]]] = [[] for _ in step.token]
    columns = step.alt_token_index.tolist(), step.alt_token.tolist(), step.alt_logprob.tolist(), step.alt_text
    for index, *one in zip(*columns, strict=True):
        found[index].append((one[0], one[1], one[2]))
    return list(map(tuple, found))
