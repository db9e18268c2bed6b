"""What each token of an answer tells: how likely it was, how long it took, what else could have come. No Qt in here."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.trace import Array, RequestView, SampleView, Step

LIKELY = (0.8, 0.5, 0.2, 0.05)  # probabilities between the classes 0 (likeliest) to 4
SLOW = (1.25, 2.0, 4.0)  # medians between the classes 0 (as usual) to 3, a stall
STALL, FIRST = 3, 4  # classes of time; FIRST is the time to first token, which no median of gaps can judge
OWN, DRAFTED = 0, 1  # classes of where a token came from
TOGETHER = 8  # added to the class of a token that came with the one before it
MARKS = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\N{NO-BREAK SPACE}": "⍽"}


def token_classes(logprobs: Sequence[float]) -> Array:
    """Classes of probability [tokens], 0 to 4 by `LIKELY`, of natural logarithms."""
    probability = np.exp(np.array(logprobs, np.float64))
    return np.asarray((probability[:, None] < np.array(LIKELY)).sum(1), np.uint8)


def draft_classes(sample: SampleView) -> Array:
    """OWN or DRAFTED, [tokens]."""
    classes = np.full(len(sample.tokens), OWN, np.uint8)
    classes[: len(sample.drafted)] = np.array(sample.drafted, np.uint8)
    return classes


@dataclass(frozen=True, slots=True)
class Waits:
    """How long the tokens of one answer took. Tokens of one step, or of one delivery, are one emission.

    `emission` [tokens]: which one brought the token; `begins` [emissions]: its first token; `seconds` [emissions]: TTFT
    of the first and ITL, the gap since the one before, of the others; `median` of the ITLs, NaN where there is none.
    """

    emission: Array
    begins: Array
    seconds: Array
    median: float

    @classmethod
    def of(cls, submitted: float, times: Sequence[float] | Array) -> Waits:
        """From the times at which the tokens came."""
        times = np.array(times, np.float64)
        new = np.ones(len(times), bool)
        new[1:] = times[1:] != times[:-1]
        begins = np.flatnonzero(new)
        seconds = np.diff(times[begins], prepend=submitted)
        median = float(np.median(seconds[1:])) if len(seconds) > 1 else float("nan")
        return cls(np.cumsum(new) - 1, begins, seconds, median)

    def classes(self) -> Array:
        """Classes of time [tokens]: 0 to `STALL` by `SLOW`, or `FIRST`; plus `TOGETHER`."""
        emissions = (self.seconds[:, None] > np.array(SLOW) * self.median).sum(1)
        emissions[:1] = FIRST
        result = emissions[self.emission]
        result[np.diff(self.emission, prepend=-1) == 0] += TOGETHER
        return np.asarray(result, np.uint8)


def visible(text: str) -> str:
    """The text with what cannot be seen in it told: spaces as ␣, ends of lines as ⏎, others by their number."""
    return "".join(MARKS.get(c) or (c if unicodedata.category(c)[0] not in "CZ" else f"⟨{ord(c):04X}⟩") for c in text)


def shown_units(text: str) -> Array:
    """How many UTF-16 units each character takes in a document, [characters]; none for carriage returns, which Qt
    would join with the new line behind them or not, by where a text was cut."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return np.where(points == 13, 0, np.where(points > 0xFFFF, 2, 1)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that the model could have given, and its probability; `chosen` is the one it gave."""

    text: str
    token: int
    probability: float
    chosen: bool


@dataclass(frozen=True, slots=True)
class TokenCard:
    """All about one token. `index` counts the answer's tokens from 0, `position` those of the prompt too.

    `wait` is the TTFT where `first`, else the ITL, in seconds, of the emission that brought `together` tokens. `rank`
    is 1 for the likeliest, None where it is not known. `step` is None for a token that came with its request's end.
    `drafted`: it was, and was kept; `instead_of` is the text of the draft whose place it took, None where there was
    none.
    Of an answer that is held to a grammar: how many of the `vocabulary` were `allowed`, and what the model would
    `rather` have said where that was not.
    """

    index: int
    count: int
    token: int
    text: str
    probability: float
    rank: int | None
    alternatives: tuple[Alternative, ...]
    wait: float
    first: bool
    together: int
    position: int
    step: int | None
    time: float
    drafted: bool = False
    instead_of: str | None = None
    vocabulary: int = 0
    allowed: int | None = None
    rather: Alternative | None = None


def token_card(view: RequestView, branch: int, index: int, step: Step | None, vocabulary: int = 0) -> TokenCard:
    """The card of an answer's token; `step` is the one that ended at the token's time, if any did.

    Raises IndexError where the sample has no such token.
    """
    sample = view.samples[branch]
    count = len(sample.tokens)
    if not 0 <= index < count:
        raise IndexError(f"token {index} of {count}")
    waits = Waits.of(view.submitted, sample.token_times)
    emission = int(waits.emission[index])
    place = place_in_step(step, view.request, branch, index - int(waits.begins[emission])) if step is not None else -1
    step = step if place >= 0 else None
    at = int(sample.text_ends[index - 1]) if index else 0
    token, text = int(sample.tokens[index]), sample.text[at : int(sample.text_ends[index])]
    chosen = Alternative(text, token, float(np.exp(sample.logprobs[index])), True)
    others = alternatives(step, place, token) if step is not None else ()
    origin = from_draft(step, place) if step is not None else (False, None)
    rank = next((i for i, other in enumerate(others, 1) if other.chosen), None)
    return TokenCard(
        index=index,
        count=count,
        token=token,
        text=text,
        probability=chosen.probability,
        rank=rank,
        alternatives=(*others, chosen) if others and rank is None else others,
        wait=float(waits.seconds[emission]),
        first=emission == 0,
        together=int((waits.emission == emission).sum()),
        position=len(view.prompt_ids) + index,
        step=step.step if step is not None else None,
        time=float(sample.token_times[index]),
        drafted=origin[0],
        instead_of=origin[1],
        vocabulary=vocabulary,
        allowed=_at(step.allowed_token_index, step.allowed, place) if step is not None else None,
        rather=rather(step, place) if step is not None else None,
    )


def from_draft(step: Step, place: int) -> tuple[bool, str | None]:
    """Whether a token of a step had been drafted, and, where it had not, what was drafted in its place."""
    row = int(step.token_row[place])
    if not len(step.drafted) or not step.drafted[row]:
        return False, None
    nth, first = place - int(np.searchsorted(step.token_row, row)), int(step.drafted[:row].sum())
    if nth < step.accepted[row]:
        return True, None
    return False, step.draft_text[first + nth] if nth < step.drafted[row] else None


def place_in_step(step: Step, request: int, branch: int, nth: int) -> int:
    """The place among a step's emitted tokens of the nth one that it gave this branch; -1 where it gave fewer."""
    rows = np.flatnonzero((step.request == request) & (step.branch == branch))
    places = np.flatnonzero(np.isin(step.token_row, rows))
    return int(places[nth]) if nth < len(places) else -1


def alternatives(step: Step, place: int, token: int) -> tuple[Alternative, ...]:
    """What the model could have given at a place among the step's tokens, likeliest first, where it was recorded."""
    result = []
    for i in np.flatnonzero(step.alt_token_index == place).tolist():
        other = int(step.alt_token[i])
        result.append(Alternative(step.alt_text[i], other, float(np.exp(step.alt_logprob[i])), other == token))
    return tuple(result)


def rather(step: Step, place: int) -> Alternative | None:
    """What the model would rather have said at a place among the step's tokens, where its grammar ruled that out."""
    for i in np.flatnonzero(step.rather_token_index == place).tolist():
        return Alternative(step.rather_text[i], int(step.rather_token[i]), float(np.exp(step.rather_logprob[i])), False)
    return None


def _at(places: Array, values: Array, place: int) -> int | None:
    found = np.flatnonzero(places == place)
    return int(values[found[0]]) if len(found) else None
