"""Which steps tell what tokens attended to, and whose texts these are. No Qt in here."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count, islice, takewhile
from typing import NamedTuple

import numpy as np

from app.inside.visible import VISIBLE
from app.language import tr
from engine.trace import Array, Attended, Header, Record, Step, Submitted, attended

UNKNOWN = "…"  # a token that was told of elsewhere
GONE = -1.0  # in place of the weight of a token that was forgotten
KEPT = 512  # tokens of one answer whose weights are kept as they are shown

StepAt = Callable[[int], Step]


class Seen(NamedTuple):
    """Where heads are looked at: one `layer` and `head`, or None for the mean of all."""

    layer: int | None = None
    head: int | None = None

    def words(self, numbers: Sequence[int]) -> str:
        """Which heads these are, of layers with these numbers."""
        if self.layer is None:
            return tr("all layers and heads")
        if self.head is None:
            return tr("layer {n}", n=numbers[self.layer] + 1)
        return tr("layer {layer}, head {head}", layer=numbers[self.layer] + 1, head=self.head + 1)

    def of(self, weights: Array) -> Array:
        """`[context]` of `[layers, heads, context]`."""
        some = weights if self.layer is None else weights[self.layer : self.layer + 1]
        return np.asarray((some if self.head is None else some[:, self.head : self.head + 1]).mean((0, 1)))


@dataclass(slots=True)
class Watched:
    """A sample that tells what its tokens attend to: its `prompt`'s tokens as text, and of each token of its answer the
    text, when its step ended, that step's place among all steps, and its own among those that the step tells of, -1
    where it does not."""

    request: int
    branch: int
    prompt: tuple[str, ...]
    texts: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)

    def last_by(self, moment: float) -> int:
        """The last token that told by then; -1 before the first."""
        at = bisect_right(self.times, moment) - 1
        while at >= 0 and self.orders[at] < 0:
            at -= 1
        return at

    def told_by(self, moment: float) -> float:
        """When that was; -1 before it."""
        at = self.last_by(moment)
        return self.times[at] if at >= 0 else -1.0

    def context(self, token: int) -> list[str]:
        """What that token could attend to: the prompt's tokens and those before it."""
        return [*self.prompt, *self.texts[:token]]


class AttentionHistory:
    """Feed it the records in order. It costs O(tokens) a step once a request is watched, and nothing before."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.watched: dict[tuple[int, int], Watched] = {}
        self._steps = 0
        self._times: list[float] = []  # of steps that told, and of whom last
        self._whose: list[tuple[int, int]] = []
        self._told: tuple[tuple[int, int], dict[int, Attended]] = (-1, -1), {}  # of the sample that is shown, by token

    def take(self, records: Sequence[Record]) -> None:
        """The next records of the trace."""
        for record in records:
            match record:
                case Header():
                    self.header = record
                case Submitted() if record.params.attention:
                    for branch in range(record.params.branches):
                        self.watched[record.request, branch] = Watched(record.request, branch, record.token_text)
                case Step():
                    if self.watched and len(record.token):
                        self._step(record)
                    self._steps += 1
                case _:
                    pass

    def _step(self, step: Step) -> None:
        told = dict(zip(step.attended_token_index.tolist(), range(len(step.attended_token_index))))
        contexts, begin = step.attended_context.tolist(), 0
        rows, ends = step.token_row.tolist(), step.text_end.tolist()
        for index, (row, end) in enumerate(zip(rows, ends)):
            owner = int(step.request[row]), int(step.branch[row])
            if (sample := self.watched.get(owner)) is not None:
                order = told.get(index, -1)
                if order >= 0:
                    forgotten = int(step.forgotten[row]) if len(step.forgotten) else 0
                    missing = contexts[order] + forgotten - len(sample.prompt) - len(sample.texts)
                    self._extend(sample, [UNKNOWN] * missing, step.ended, -1)
                self._extend(sample, [step.text[begin:end]], step.ended, order)
            begin = end
        if told:
            row = rows[int(step.attended_token_index[-1])]
            self._times.append(step.ended)
            self._whose.append((int(step.request[row]), int(step.branch[row])))

    def _extend(self, sample: Watched, texts: list[str], time: float, order: int) -> None:
        for text in texts:
            sample.texts.append(text)
            sample.times.append(time)
            sample.places.append(self._steps)
            sample.orders.append(order)

    def shown(self, selected: int, moment: float) -> Watched | None:
        """The selected request's sample that told last by then; else whoever told last, or will first."""
        if not self._times:
            return None
        at = bisect_right(self._times, moment) - 1
        if (selected, 0) in self.watched:
            samples = takewhile(bool, (self.watched.get((selected, branch)) for branch in count()))
            return max(filter(None, samples), key=lambda sample: sample.told_by(moment))
        return self.watched[self._whose[max(at, 0)]]

    def told(self, sample: Watched, token: int, step_at: StepAt) -> Attended:
        """What its step tells of a token."""
        assert self.header is not None
        whose, kept = self._told
        if whose != (sample.request, sample.branch):
            kept = {}
            self._told = (sample.request, sample.branch), kept
        if token not in kept:
            step, order = step_at(sample.places[token]), sample.orders[token]
            if len(kept) >= KEPT:
                kept.pop(next(iter(kept)))
            kept[token] = next(islice(attended(step, self.header), order, None))
        return kept[token]

    def lines(self, sample: Watched, until: int, most: int, seen: Seen, step_at: StepAt) -> tuple[list[int], Array]:
        """The last `most` tokens up to one, `KEPT` of them at most, and what each gave whom: float32 `[tokens, context
        of the last]`, `GONE` what was forgotten by then."""
        most = min(most, KEPT)
        tokens = [at for at in range(max(0, until + 1 - most), until + 1) if sample.orders[at] >= 0]
        found = np.zeros((len(tokens), len(sample.prompt) + until), np.float32)
        for line, token in enumerate(tokens):
            told = self.told(sample, token, step_at)
            found[line, told.tokens] = seen.of(told.weights)
            found[line, told.forgotten.start : told.forgotten.stop] = GONE
        return tokens, found


def whole(told: Attended) -> Array:
    """float32 `[layers, heads, tokens]`: its weights, 0 where the cache had forgotten a token."""
    weights = told.weights
    found = np.zeros((*weights.shape[:2], weights.shape[2] + len(told.forgotten)), np.float32)
    found[..., told.tokens] = weights
    return found


def half(weights: Array) -> int:
    """How few of the tokens that are attended to have half of all that is given."""
    strongest = np.sort(weights)[::-1].cumsum()
    return int(np.searchsorted(strongest, strongest[-1] / 2)) + 1


def visible(text: str) -> str:
    """A token's text where it stands alone, blanks made visible; a dot where it has none, as the end has."""
    said = text.strip(" ") or "␣" * len(text) or "·"
    return said.translate(VISIBLE)
