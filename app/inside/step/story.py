"""One step whole, as a person is told it: rows, times, what was refused, what became of blocks. No Qt in here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from app.inside.step.block_accounts import Account, accounts
from app.inside.step.history import StepHistory
from app.inside.step.refusals import RefusalWords, refusals
from app.inside.step.times import StepTimes, step_times
from app.words import counted, duration, graph_words
from engine.trace import Array, Header, Kind, Step

VISIBLE = str.maketrans({"\n": "↵", "\t": "⇥", "\r": "␍"})


class Waste(Enum):
    """Why tokens of a row were computed for nothing."""

    NONE = ""
    HELD = "held"
    PAST = "past its end"
    AGAIN = "again"


WASTE_ABOUT = {
    Waste.HELD: "finished, and computed on until the longest of its batch ends",
    Waste.PAST: "it had stopped or was cancelled while this step was under way",
    Waste.AGAIN: "these tokens had been computed before, and their K and V are no longer there",
}


@dataclass(frozen=True, slots=True)
class StepRow:
    """One row of a step. `tokens` were drawn from it, with their probabilities and their parts of the text; a batch
    that delivers at its end gives many at once. `chunk`: which of how many (None: not known yet) of its prompt."""

    slot: int
    request: int
    branch: int
    samples: int
    kind: Kind
    first: int
    count: int
    chunk: tuple[int, int | None] | None
    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]
    texts: tuple[str, ...]
    reused: int
    padding: int
    wasted: int
    waste: Waste
    attended: int
    attention: float  # seconds, computed

    @property
    def name(self) -> str:
        return sample_name(self.request, self.branch, self.samples)

    @property
    def kind_words(self) -> str:
        match self.kind:
            case Kind.PREFILL if self.chunk is not None:
                which, of = self.chunk
                return f"chunk {which:,} of {of:,}" if of is not None else f"chunk {which:,}"
            case Kind.PREFILL:
                return "prefill"
            case Kind.HELD:
                return "held"
            case _:
                return "decode"

    @property
    def positions(self) -> str:
        """The positions [first, first + count) in the sequence, both ends said."""
        last = self.first + self.count - 1
        return f"{self.first:,}" if self.count == 1 else f"{self.first:,}…{last:,}"

    @property
    def out_text(self) -> str:
        """The drawn token's text, quoted, line breaks made visible. A stop token has none, nor a cut character yet."""
        if not self.tokens:
            return ""
        text = "".join(self.texts).translate(VISIBLE)
        return f"“{text}”" if text else "no text"

    @property
    def out_note(self) -> str:
        """The token's probability, or how many tokens were delivered together."""
        if len(self.tokens) > 1:
            return f"{len(self.tokens):,} tokens"
        return f"{100 * self.probabilities[0]:.0f} %" if self.tokens else ""

    @property
    def cached_words(self) -> str:
        return f"{self.first:,} · {self.reused:,} found" if self.reused else f"{self.first:,}" if self.first else "–"

    @property
    def wasted_words(self) -> str:
        return f"{self.wasted:,} {self.waste.value}" if self.wasted else ""


class StepStory:
    """A step, with what the records before it say about it. `place` is its place among all steps."""

    def __init__(self, step: Step, history: StepHistory, place: int, origin: float) -> None:
        self.step, self.place, self.origin = step, place, origin
        self.header: Header | None = history.header
        self.times: StepTimes = step_times(step, self.header)
        self.accounts: list[Account] = accounts(step, history, place)
        self.refused: list[tuple[int, RefusalWords]] = refusals(step, self.header)
        branches = step.preempted_branch.tolist() or [0] * len(step.preempted)
        self.preempted: list[tuple[int, int]] = list(zip(step.preempted.tolist(), branches))
        self.tokens_in = int(step.count.sum())
        self.padding = int(step.padding.sum())
        self.tokens_out = len(step.token)
        self._history, self.known = history, history.steps
        self._tokens: Array = np.searchsorted(step.token_row, np.arange(step.rows + 1))
        self._made: dict[int, StepRow] = {}

    def __len__(self) -> int:
        return self.step.rows

    @property
    def chunked(self) -> bool:
        """Whether prompts may be computed in chunks."""
        return self.header is not None and self.header.config.mode == "chunked"

    @property
    def shares(self) -> bool:
        """Whether any row may find tokens that it need not compute."""
        return (self.header is not None and self.header.config.prefix_caching) or bool(self.step.reused.any())

    @property
    def widest_name(self) -> str:
        """As wide as the name of any row."""
        requests = self.step.request
        several = any(self._history.samples(request) > 1 for request in set(requests.tolist()))
        return sample_name(int(requests.max()), 88, 2 if several else 1) if len(requests) else "#8"

    @property
    def widest_position(self) -> int:
        """A number as wide as the rows' positions, of three digits at least."""
        ends = self.step.first + self.step.count
        return int("8" * max(3, len(str(int(ends.max())))) if len(ends) else "888")

    def row(self, at: int) -> StepRow:
        """The row of this number; made when it is first asked for."""
        found = self._made.get(at)
        if found is None:
            found = self._made[at] = self._row(at)
        return found

    def rows_of(self, request: int) -> list[int]:
        """The rows of a request, one for each of its samples that took part."""
        return list(np.flatnonzero(self.step.request == request).tolist())

    def name(self, request: int, branch: int) -> str:
        """What a sample of a request is called: "#17", or "#17·2" where there are several."""
        return sample_name(request, branch, self._history.samples(request))

    def _row(self, at: int) -> StepRow:
        step, history = self.step, self._history
        request, branch, kind = int(step.request[at]), int(step.branch[at]), Kind(int(step.kind[at]))
        begin, end = int(self._tokens[at]), int(self._tokens[at + 1])
        ends = step.text_end
        texts = tuple(step.text[int(ends[i - 1]) if i else 0 : int(ends[i])] for i in range(begin, end))
        count, wasted = int(step.count[at]), int(step.wasted[at])
        if not wasted:
            waste = Waste.NONE
        elif kind is Kind.HELD:
            waste = Waste.HELD
        elif wasted == count and begin == end and not self._again(kind, request, branch):
            waste = Waste.PAST
        else:
            waste = Waste.AGAIN
        logprobs = step.logprob[begin:end].tolist()
        return StepRow(
            slot=int(step.slot[at]),
            request=request,
            branch=branch,
            samples=history.samples(request),
            kind=kind,
            first=int(step.first[at]),
            count=count,
            chunk=history.chunk(self.place, request, branch),
            tokens=tuple(step.token[begin:end].tolist()),
            probabilities=tuple(math.exp(min(0.0, logprob)) for logprob in logprobs),
            texts=texts,
            reused=int(step.reused[at]) if len(step.reused) else 0,
            padding=int(step.padding[at]) if len(step.padding) else 0,
            wasted=wasted,
            waste=waste,
            attended=int(self.times.rows.positions[at]),
            attention=float(self.times.rows.shares[at]) * self.times.attention,
        )

    def _again(self, kind: Kind, request: int, branch: int) -> bool:
        """Whether a row whose tokens all were wasted is part of a prompt that is computed again."""
        return kind is Kind.PREFILL and self._history.preempted_before(self.place, request, branch)

    # -- in words -------------------------------------------------------------------------------------------------

    @property
    def when_words(self) -> str:
        """Which step, when it ended, and how long it took: "step 1,204 · 3.412 s · 18.4 ms"."""
        step = self.step
        return f"step {step.step:,} · {step.ended - self.origin:,.3f} s · {millis(self.times.duration)}"

    @property
    def size_words(self) -> str:
        """ "28 rows · 123 tokens in, 28 out"."""
        if not len(self):
            return "no rows"
        padding = f" + {self.padding:,} padding" if self.padding else ""
        tokens = f"{counted(self.tokens_in, 'token')} in{padding}, {self.tokens_out:,} out"
        device = f"{millis(self.step.device)} by the GPU's clock" if self.step.device else ""
        return " · ".join(filter(None, (f"{counted(len(self), 'row')} · {tokens}", self.graph_words, device)))

    @property
    def graph_words(self) -> str:
        """ "replayed a graph of 64 rows (3 dummies)"; "eager" where it could have been one; empty where none is."""
        if self.step.graph or not len(self):
            return graph_words(self.step.graph, len(self))
        return "eager" if self.header is not None and self.header.graphs else ""

    @property
    def quiet_words(self) -> str:
        """What is said where nobody was refused."""
        waiting = self.step.waiting
        if waiting:
            return f"Nobody was refused; {waiting:,} wait after this step."
        return "Nobody was refused, and nobody waits."


def sample_name(request: int, branch: int, samples: int) -> str:
    """ "#17", or "#17·2" for the second of several samples."""
    return f"#{request:,}" + (f"·{branch + 1}" if samples > 1 else "")


def millis(seconds: float) -> str:
    """Milliseconds with three digits: "18.4 ms", "0.062 ms", "148 ms"; from a second on as a duration."""
    if seconds >= 0.9995:
        return duration(seconds)
    value = seconds * 1e3
    if value >= 99.95:
        return f"{value:.0f} ms"
    return f"{value:.1f} ms" if value >= 9.995 else f"{value:.2f} ms"


def percent(share: float) -> str:
    """A share of 0 to 1: "88 %", "<1 %"."""
    return "<1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"
