"""Whether lanes gave the same tokens for the same prompts, and where not, by how little."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from engine.scheduler import Emission
from engine.trace.records import FinishReason, Header, Step
from engine.trace.requests import RequestView, SampleView
from engine.trace.trace import Trace

NEAR_TIE = 1e-3
"""Nats. Two lanes add the same numbers in another order: in float32 their log-probabilities then differ by some 1e-6 to
1e-5, so two tokens this near may change places, while a wrong mask or position moves them by tenths. In bfloat16
the noise alone may be larger: there a lane that `differs` is not proven wrong."""


class Verdict(StrEnum):
    """SAME tokens; a NEAR_TIE: they part at two tokens of nearly the same probability; or they DIFFER."""

    SAME = "same"
    NEAR_TIE = "near-tie"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class Parting:
    """Where a lane first left the first lane, in one sample of the `arrival`-th prompt.

    `position` counts generated tokens from 0. `tokens` are the first lane's and this lane's there, None where that one
    had ended; `texts` are what came with them, empty where a character was not whole. `margin` is in nats, None where
    it cannot be told: after an end, and where noise or a penalty had a say in the choice. `exact`: the true gap between
    the two in the first lane; else what a tie leaves behind, the difference of the two lanes' own maxima.
    """

    arrival: int
    sample: int
    position: int
    tokens: tuple[int | None, int | None]
    texts: tuple[str, str]
    margin: float | None = None
    exact: bool = False

    @property
    def verdict(self) -> Verdict:
        return Verdict.NEAR_TIE if self.margin is not None and self.margin < NEAR_TIE else Verdict.DIFFERS


@dataclass(frozen=True, slots=True)
class Agreement:
    """One lane against the first. `compared` samples of requests, of which `partings` are those that differ."""

    compared: int
    partings: tuple[Parting, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        if not self.partings:
            return Verdict.SAME
        ties = all(p.verdict is Verdict.NEAR_TIE for p in self.partings)
        return Verdict.NEAR_TIE if ties else Verdict.DIFFERS

    def to_json(self) -> dict[str, Any]:
        partings = [asdict(p) | {"verdict": p.verdict} for p in self.partings]
        return {"verdict": self.verdict, "text": self.text(), "compared": self.compared, "partings": partings}

    def text(self) -> str:
        """A sentence for people."""
        if not self.compared:
            return "no request to compare"
        if not self.partings:
            return "same tokens in every request"
        first = min(self.partings, key=lambda p: (p.verdict is Verdict.NEAR_TIE, p.arrival, p.sample))
        ours, theirs = (
            "its end" if token is None else f"{token}{f' {text!r}' if text else ''}"
            for token, text in zip(first.tokens, first.texts)
        )
        what = "near-tie" if first.verdict is Verdict.NEAR_TIE else "difference"
        by = "" if first.margin is None else f", {'' if first.exact else '~'}{first.margin:.1e} nats apart"
        return (
            f"{len(self.partings)} of {self.compared} differ; first {what}: prompt {first.arrival + 1}, "
            f"token {first.position + 1} is {theirs}, not {ours}{by}"
        )


def agreement(first: Trace, other: Trace) -> Agreement:
    """Compares two traces of one workload: the i-th request of one with the i-th of the other, sample by sample. A
    request that was cancelled or failed in either is compared as far as both go; one with another prompt is not."""
    compared, partings = 0, []
    pairs = zip(_in_order(first), _in_order(other))
    for arrival, (ours, theirs) in enumerate(pairs):
        if not np.array_equal(ours.prompt_ids, theirs.prompt_ids):
            continue
        for sample, (a, b) in enumerate(zip(ours.samples, theirs.samples)):
            compared += 1
            shared = min(len(a.tokens), len(b.tokens))
            unequal = np.flatnonzero(np.array(a.tokens[:shared]) != np.array(b.tokens[:shared]))
            cut_short = {FinishReason.CANCELLED, FinishReason.ERROR, None} & {a.reason, b.reason}
            if len(unequal):
                at = int(unequal[0])
            elif len(a.tokens) != len(b.tokens) and not cut_short:
                at = shared
            else:
                continue
            here, there = _emission(first, ours.request, a, at), _emission(other, theirs.request, b, at)
            both = ours.params, theirs.params
            greedy = all(p.temperature == 0 and p.repetition_penalty == 1 and p.beam_width == 1 for p in both)
            margin = _margin(here, there) if greedy else None
            tokens = here.token if here else None, there.token if there else None
            texts = here.text if here else "", there.text if there else ""
            partings.append(Parting(arrival, sample, at, tokens, texts, *(margin or (None, False))))
    return Agreement(compared, tuple(partings))


def agreements(traces: Sequence[Trace | None]) -> tuple[Agreement | None, ...]:
    """Every lane against the first that was played; None for that one, for lanes that were not, and for servers whose
    token ids are not known."""
    known = [None if trace is None or _outside(trace) else trace for trace in traces]
    first = next((trace for trace in known if trace is not None), None)
    return tuple(
        None if first is None or trace is None or trace is first else agreement(first, trace) for trace in known
    )


def _outside(trace: Trace) -> bool:
    return any(isinstance(record, Header) and bool(record.outside) for record in trace.records[:1])


def _in_order(trace: Trace) -> list[RequestView]:
    """Requests are numbered as they arrive."""
    return [view for _, view in sorted(trace.requests.items())]


def _emission(trace: Trace, request: int, sample: SampleView, position: int) -> Emission | None:
    """A sample's token as its step recorded it; None where it has no such token. Tokens that came only with their
    request's end are in no step."""
    if position >= len(sample.tokens):
        return None
    records, time = trace.records, sample.token_times[position]
    ends = records.step_ends
    found = bisect_left(ends, time)
    if found == len(ends) or ends[found] != time:
        return Emission(sample.tokens[position], sample.logprobs[position])
    step = records[records.step_places[found]]
    assert isinstance(step, Step)
    row = int(np.flatnonzero((step.request == request) & (step.branch == sample.branch))[0])
    emitted = np.flatnonzero(step.token_row == row)
    index = int(emitted[position - bisect_left(sample.token_times, time)])
    text = step.text[int(step.text_end[index - 1]) if index else 0 : int(step.text_end[index])]
    others = step.alt_token_index == index
    alternatives = tuple(zip(step.alt_token[others].tolist(), step.alt_logprob[others].tolist()))
    return Emission(int(step.token[index]), float(step.logprob[index]), alternatives, text)


def _margin(ours: Emission | None, theirs: Emission | None) -> tuple[float, bool] | None:
    """How far apart two lanes' greedy choices were, in nats, and whether exactly.

    Exactly: the gap between both tokens in the first lane, where its alternatives hold the other one. Else the
    difference of the two chosen log-probabilities. Both lanes saw the same prefix and each took its maximum, so with
    lanes whose log-probabilities are at most e apart the two maxima are at most e apart, and the gap at most 2 e: a
    large difference proves that more than noise is at work, a small one is what a tie leaves behind.
    """
    if ours is None or theirs is None:
        return None
    alternatives = dict(ours.alternatives)
    if theirs.token in alternatives:
        return abs(ours.logprob - alternatives[theirs.token]), True
    return abs(ours.logprob - theirs.logprob), False
