"""Requests as the records so far tell them, and as they stood at any moment before."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import Any

import numpy as np

from engine.config.sampling_params import SamplingParams
from engine.config.submission import Message
from engine.trace.records import Array, Ended, FinishReason, Kind, Record, Step, Submitted
from engine.trace.thoughts import answer_begins, begins_amid, thought_tokens


class State(StrEnum):
    WAITING = "queued"
    PREFILL = "prefill"
    DECODE = "decoding"
    PREEMPTED = "preempted"
    SWAPPED = "swapped out"
    FINISHED = "finished"


_STATES = tuple(State)
_CODES = {state: code for code, state in enumerate(_STATES)}
_WIDTH = 4  # numbers a mark
_UNMARKED = (None, -1, 0, 0)
_LONGEST = 65_535  # characters of text whose ends fit in two bytes


def _column(code: str, compare: bool = True) -> Any:
    return field(default_factory=lambda: array(code), repr=False, compare=compare)


@dataclass(slots=True)
class SampleView:
    """One continuation of a request. Times are seconds from the trace's start, None until they happen.

    `token_times[i]` is when token i was committed; `drafted[i]` is 1 where it had been drafted, and was kept (what is
    beyond the column's end was not); `computed` counts the tokens whose K and V are in the cache, of
    which `reused` were there already. Columns are `array`s, which cannot grow while NumPy looks into them: take a
    copy (`np.array`), never `np.asarray`, of a sample that goes on.
    """

    branch: int = 0
    state: State = State.WAITING
    ended: float | None = None
    reason: FinishReason | None = None
    error: str = ""
    computed: int = 0
    reused: int = 0
    slot: int = -1
    parts: list[str] = field(default_factory=list, compare=False)  # of `text`, in order
    tokens: array[int] = _column("i")
    logprobs: array[float] = _column("f")
    token_times: array[float] = _column("d")
    text_ends: array[int] = _column("H")  # where each token's part of `text` ends; wider once the text is long
    drafted: array[int] = _column("B")
    tail: int = field(default=0, repr=False)  # characters of `text` that came with the end
    # What `at` cannot tell from the tokens. Between two marks `computed` grows by the tokens that come out.
    _mark_times: array[float] = _column("d", compare=False)
    _marks: array[int] = _column("i", compare=False)
    marked: tuple[State | None, int, int, int] = field(default=_UNMARKED, repr=False, compare=False)  # the last mark
    score: float | None = None  # of a beam search's result, once it is over

    def add(self, token: int, logprob: float, time: float, text: str, drafted: bool = False) -> None:
        """One more token and its part of the text."""
        if drafted:
            self.drafted.extend([0] * (len(self.tokens) - len(self.drafted)))
            self.drafted.append(1)
        ends = self.text_ends
        end = ends[-1] if ends else 0
        if text:
            self.parts.append(text)
            end += len(text)
        try:
            ends.append(end)
        except OverflowError:
            self._end_text(end)
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.token_times.append(time)

    def _end_text(self, at: int) -> None:
        if at > _LONGEST and self.text_ends.typecode == "H":
            self.text_ends = array("I", self.text_ends)
        self.text_ends.append(at)

    def end(self, ended: Ended) -> None:
        """It is over; what was held back until now comes with it, the tail as the last token's."""
        self.state, self.ended, self.reason, self.error = State.FINISHED, ended.time, ended.reason, ended.error
        self.score = ended.score
        at = 0
        columns = ended.token.tolist(), ended.logprob.tolist(), ended.text_end.tolist()
        for token, logprob, end in zip(*columns, strict=True):
            self.add(token, logprob, ended.time, ended.text[at:end])
            at = end
        tail = ended.text[at:]
        if tail:
            self.parts.append(tail)
            if self.text_ends:
                self._end_text(self.text_ends.pop() + len(tail))
                self.tail = len(tail)
        self.parts[:] = [self.text] if self.parts else []
        self.marked = _UNMARKED
        self.tokens, self.logprobs, self.token_times = self.tokens[:], self.logprobs[:], self.token_times[:]  # no slack
        self.text_ends = self.text_ends[:]

    def mark(self, time: float) -> None:
        """Keeps for `at` how things stand, unless that follows from the mark before. Call it after every step."""
        marked = (self.state, self.slot, self.computed - len(self.tokens), self.reused)
        if marked != self.marked:
            self.marked = marked
            self._mark_times.append(time)
            self._marks.extend((_CODES[self.state], *marked[1:]))

    @property
    def text(self) -> str:
        if len(self.parts) > 1:
            self.parts[:] = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""

    @property
    def begun(self) -> float | None:
        """When the first step that had a row of it was committed."""
        return self._mark_times[0] if self._mark_times else None

    def preempted_until(self, moment: float) -> int:
        """How often it was preempted by then."""
        marks = bisect_right(self._mark_times, moment)
        states = self._marks[: _WIDTH * marks : _WIDTH]
        return states.count(_CODES[State.PREEMPTED]) + states.count(_CODES[State.SWAPPED])

    def at(self, moment: float) -> SampleView:
        """As it stood at a moment: what the records up to then tell. Itself where it was over; else a copy."""
        if self.ended is not None and self.ended <= moment:
            return self
        tokens = bisect_right(self.token_times, moment)
        text_ends = self.text_ends[:tokens]
        if tokens and tokens == len(self.tokens):
            text_ends[-1] -= self.tail
        marks = bisect_right(self._mark_times, moment)
        code, slot, lead, reused = self._marks[_WIDTH * (marks - 1) : _WIDTH * marks] if marks else (0, -1, -tokens, 0)
        parts = [self.text[: text_ends[-1]]] if tokens else []
        columns = self.tokens[:tokens], self.logprobs[:tokens], self.token_times[:tokens], text_ends
        marked = self._mark_times[:marks], self._marks[: _WIDTH * marks]
        computed = lead + tokens
        stood = _STATES[code], None, None, "", computed, reused, slot, parts
        return SampleView(self.branch, *stood, *columns, self.drafted[:tokens], 0, *marked)


@dataclass(slots=True)
class RequestView:
    """One request as the records so far tell it, with its `params.branches` samples. What only a sample has (text,
    tokens, times) is the first sample's; state, end and error are those of all."""

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
            self.samples = [SampleView(i) for i in range(self.params.branches)]

    def at(self, moment: float) -> RequestView | None:
        """The request as it stood at a moment (seconds from the trace's start): what the records up to then tell,
        every field exactly; a step tells at its end what it did. None before it was submitted.

        Costs O(log tokens) and copies of arrays. A request that was over is itself; any other is a copy that does not
        change.
        """
        if moment < self.submitted:
            return None
        samples = [sample.at(moment) for sample in self.samples]
        if all(now is then for now, then in zip(self.samples, samples)):
            return self
        begun = min((s.begun for s in samples if s.begun is not None), default=None)
        scheduled = self.scheduled if begun is not None and begun <= moment else None
        preemptions = sum(s.preempted_until(moment) for s in self.samples) if self.preemptions else 0
        return replace(self, scheduled=scheduled, preemptions=preemptions, samples=samples)

    @property
    def state(self) -> State:
        """The liveliest sample's: finished only when all are."""
        if len(self.samples) == 1:
            return self.samples[0].state
        return max((sample.state for sample in self.samples), key=_LIVELINESS.index)

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
    def tokens(self) -> array[int]:
        return self.samples[0].tokens

    @property
    def logprobs(self) -> array[float]:
        return self.samples[0].logprobs

    @property
    def token_times(self) -> array[float]:
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
    def ttft(self) -> float | None:
        """Time to first token, seconds: first token of any sample minus submit."""
        first = self.first_token
        return first - self.submitted if first is not None else None

    @property
    def amid(self) -> bool:
        """Whether its samples begin amid thoughts."""
        return begins_amid(self.prompt, self.params)

    def answer_begins(self, sample: SampleView) -> int | None:
        """At which character of a sample's text its answer begins; 0 where it thinks not, None while it thinks."""
        return answer_begins(sample.text, self.amid)

    @property
    def thinks(self) -> bool:
        """Whether all of its samples that go on are amid thoughts."""
        going = [sample for sample in self.samples if sample.state is State.DECODE]
        return bool(going) and all(self.answer_begins(sample) is None for sample in going)

    @property
    def thoughts(self) -> list[int]:
        """Of each sample's tokens those that it thought before it answered; 0 where it thinks not."""
        amid = self.amid
        return [thought_tokens(sample.text, sample.text_ends, amid) for sample in self.samples]

    @property
    def ttfo(self) -> float | None:
        """Time to first output token, seconds: the first token of any sample's answer minus submit."""
        spoken = zip(self.samples, self.thoughts)
        first = min((s.token_times[n] for s, n in spoken if n < len(s.token_times)), default=None)
        return first - self.submitted if first is not None else None

    @property
    def tokens_per_second(self) -> float | None:
        """1 / TPOT of the first sample: (n - 1) tokens over last minus first token time."""
        times = self.samples[0].token_times
        if len(times) < 2 or times[-1] <= times[0]:
            return None
        return (len(times) - 1) / (times[-1] - times[0])


_LIVELINESS = (State.FINISHED, State.WAITING, State.PREEMPTED, State.SWAPPED, State.PREFILL, State.DECODE)


class RequestIndex:
    """Requests by id, kept up to date by feeding it records in order. Costs O(rows) a step."""

    def __init__(self) -> None:
        self._fed: dict[int, RequestView] = {}
        self.requests: Mapping[int, RequestView] = self._fed
        self._submitted = array("d")  # in order of time, as `_ids`
        self._ids: list[int] = []

    def at(self, moment: float) -> Mapping[int, RequestView]:
        """The requests that were submitted by then, in order of submission, each as it stood: `RequestView.at`. A view
        of this index, made in O(log requests); a request is worked out each time that it is asked for."""
        return _Past(self.requests, self._ids, bisect_right(self._submitted, moment), moment)

    @property
    def order(self) -> tuple[array[float], list[int]]:
        """When each request was submitted, in order of time, and which it is."""
        return self._submitted, self._ids

    def restore(self, requests: Mapping[int, RequestView], submitted: array[float], ids: list[int]) -> None:
        """Takes over a whole run's requests and their `order`: nothing more can be fed."""
        self.requests, self._submitted, self._ids = requests, submitted, ids

    def forget(self, requests: Collection[int]) -> None:
        """Lets go of these, of which no later record speaks."""
        for request in requests:
            self._fed.pop(request, None)
        left = [(time, request) for time, request in zip(self._submitted, self._ids) if request in self._fed]
        self._submitted, self._ids = array("d", (time for time, _ in left)), [request for _, request in left]

    def feed(self, record: Record) -> None:
        match record:
            case Step():
                self._step(record)
            case Submitted():
                self._submit(record)
            case Ended():
                self._fed[record.request].samples[record.branch].end(record)
            case _:
                pass

    def _submit(self, record: Submitted) -> None:
        place = bisect_right(self._submitted, record.time)
        self._submitted.insert(place, record.time)
        self._ids.insert(place, record.request)
        self._fed[record.request] = RequestView(
            record.request, record.time, record.text, record.token_ids, record.params, record.messages, record.label
        )

    def _step(self, step: Step) -> None:
        requests, started, ended, text, at = self._fed, step.started, step.ended, step.text, 0
        branches = step.preempted_branch.tolist() or [0] * len(step.preempted)
        swapped = step.swapped_out
        for request, branch in zip(step.preempted.tolist(), branches, strict=True):
            requests[request].preemptions += 1
            sample = requests[request].samples[branch]
            sample.state = State.SWAPPED if (request, branch) in swapped else State.PREEMPTED
            sample.slot, sample.computed, sample.reused = -1, 0, 0
            sample.mark(ended)
        columns = step.request, step.branch, step.slot, step.first, step.stays, step.kind
        samples = []
        for request, branch, slot, first, count, kind in zip(*(c.tolist() for c in columns), strict=True):
            view = requests[request]
            sample = view.samples[branch]
            samples.append(sample)
            if sample.state is State.FINISHED or kind == Kind.HELD:
                continue
            sample.state = State.DECODE if kind == Kind.DECODE else State.PREFILL
            sample.slot, sample.computed = slot, first + count
            if view.scheduled is None:
                view.scheduled = started
        emitted = step.token_row, step.token, step.logprob, step.text_end
        kept = step.accepted.tolist()
        for row, token, logprob, end in zip(*(c.tolist() for c in emitted), strict=True):
            sample = samples[row]
            drafted = bool(kept) and kept[row] > 0
            if drafted:
                kept[row] -= 1
            sample.add(token, logprob, ended, text[at:end], drafted)
            at = end
            if sample.state is State.PREFILL:
                sample.state = State.DECODE
        for row in np.flatnonzero(step.reused).tolist():
            samples[row].reused = int(step.reused[row])
        for sample in samples:
            # a decoding sample's marks stay as they are: that is seen here, since a call a row and step would cost more
            now = sample.state, sample.slot, sample.computed - len(sample.tokens), sample.reused
            if now != sample.marked and sample.state is not State.FINISHED:
                sample.mark(ended)


class _Past(Mapping[int, RequestView]):
    """The first `count` of `ids`, as they stood at `moment`."""

    def __init__(self, requests: Mapping[int, RequestView], ids: list[int], count: int, moment: float) -> None:
        self._requests, self._ids, self._count, self._moment = requests, ids, count, moment

    def __getitem__(self, request: int) -> RequestView:
        view = self._requests[request].at(self._moment)
        if view is None:
            raise KeyError(request)
        return view

    def __contains__(self, request: object) -> bool:
        view = self._requests.get(request)  # type: ignore[call-overload]
        return view is not None and view.submitted <= self._moment

    def __iter__(self) -> Iterator[int]:
        return islice(iter(self._ids), self._count)

    def __len__(self) -> int:
        return self._count
