"""One step whole, as a person is told it: rows, times, what was refused, what became of blocks. No Qt in here."""

from __future__ import annotations

import math
from collections import Counter
from enum import Enum
from itertools import pairwise

import numpy as np

from app.inside.columns import whole
from app.inside.step.block_accounts import Account, accounts
from app.inside.step.history import StepHistory, preempted_samples, swapped_blocks
from app.inside.step.kernels import KernelLines
from app.inside.step.times import StepTimes, step_times
from app.inside.visible import VISIBLE
from app.language import digits, tr, trn
from app.refusals import RefusalWords, refusals
from app.words import bytes_words, duration, graph_words, rank_title, way_words
from engine.trace import Fate, Header, Kind, Step, SwapEvent, rank_loads


class Waste(Enum):
    """Why tokens of a row were computed for nothing."""

    NONE = ""
    HELD = "held"
    PAST = "past its end"
    AGAIN = "again"
    REJECTED = "rejected"


WASTE_TITLES = {
    Waste.HELD: tr("held"),
    Waste.PAST: tr("past its end"),
    Waste.AGAIN: tr("again"),
    Waste.REJECTED: tr("rejected"),
}
WASTE_ABOUT = {
    Waste.HELD: tr("finished, and computed on until the longest of its batch ends"),
    Waste.PAST: tr("it had stopped or was cancelled while this step was under way"),
    Waste.REJECTED: tr("drafted tokens that the model would not have said, and what was drafted after them"),
    Waste.AGAIN: tr("these tokens had been computed before, and their K and V are no longer there"),
}


class StepRow:
    """One row of a step. `tokens` were drawn from it, with their probabilities and their parts of the text; a batch
    that delivers at its end gives many at once. `chunk`: which of how many (None: not known yet) of its prompt.
    `attended` pairs of a token and a position; `attention`: its seconds, computed."""

    def __init__(self, story: StepStory, at: int) -> None:
        step, times = story.step, story.times
        self.slot, self.request, self.branch = int(step.slot[at]), int(step.request[at]), int(step.branch[at])
        self.name = story.name(self.request, self.branch)
        self.kind = Kind(int(step.kind[at]))
        self.first, self.count, self.wasted = int(step.first[at]), int(step.count[at]), int(step.wasted[at])
        self.cached = int(step.lies_at[at])  # tokens before it whose K and V it finds
        self.reused, self.padding = (int(whole(c, step.rows)[at]) for c in (step.reused, step.padding))
        self.chunk = story.history.chunk(story.place, self.request, self.branch)
        begin, end = np.searchsorted(step.token_row, (at, at + 1)).tolist()
        self.tokens = tuple(step.token[begin:end].tolist())
        self.probabilities = [math.exp(min(0.0, logprob)) for logprob in step.logprob[begin:end].tolist()]
        borders = [0, *step.text_end.tolist()][begin : end + 1]
        self.texts = [step.text[one:other] for one, other in pairwise(borders)]
        self.accepted = int(whole(step.accepted, step.rows)[at])
        drafted = whole(step.drafted, step.rows)
        begin = int(drafted[:at].sum())
        self.drafts = step.draft_text[begin : begin + int(drafted[at])]
        self.searched = story.history.beams(self.request)
        after = (
            (step.beam_request == self.request) & (step.beam_parent == self.branch) & (step.beam_fate != Fate.PRUNED)
        )
        self.lives = [step.beam_text[i] for i in np.flatnonzero(after).tolist()] if self.searched else []
        self.weighed = self.searched and bool((step.beam_request == self.request).any())
        self.waste = self._waste(story)
        self.attended = int(times.rows.positions[at])
        self.attention = float(times.rows.shares[at]) * times.attention

    def _waste(self, story: StepStory) -> Waste:
        if not self.wasted:
            return Waste.NONE
        if self.kind is Kind.HELD:
            return Waste.HELD
        if self.drafts:
            return Waste.REJECTED
        # its prompt is computed again
        again = self.kind is Kind.PREFILL and story.history.preempted_before(story.place, self.request, self.branch)
        return Waste.PAST if self.wasted == self.count and not self.tokens and not again else Waste.AGAIN

    @property
    def kind_words(self) -> str:
        match self.kind:
            case Kind.PREFILL if self.chunk is not None:
                which, of = self.chunk
                whole = tr("chunk {n:,} of {all:,}", n=which, all=of) if of is not None else ""
                return whole or tr("chunk {n:,}", n=which)
            case Kind.PREFILL:
                return tr("prefill")
            case Kind.HELD:
                return tr("held")
            case _:
                return tr("verify") if self.drafts else tr("decode")

    @property
    def positions(self) -> str:
        """The positions [first, first + count) in the sequence, both ends said."""
        last = self.first + self.count - 1
        return digits(f"{self.first:,}" if self.count == 1 else f"{self.first:,}…{last:,}")

    @property
    def out_text(self) -> str:
        """The drawn token's text, quoted, line breaks made visible. A stop token has none, nor a cut character yet.
        Of a beam, the tokens with which it goes on."""
        if self.searched:
            return " ".join(f"“{text.translate(VISIBLE)}”" for text in self.lives)
        if not self.tokens:
            return ""
        text = "".join(self.texts).translate(VISIBLE)
        return f"“{text}”" if text else tr("no text")

    @property
    def out_note(self) -> str:
        """The token's probability, or how many tokens were delivered together. Of a beam, how many went on."""
        if self.searched and not self.weighed:
            return ""
        if self.searched and self.lives:
            return trn("goes on", "{count:,} go on", len(self.lives))
        if self.searched:
            return tr("pruned")
        if self.drafts:
            return tr("{n:,} of {all:,}", n=self.accepted, all=len(self.drafts))
        if len(self.tokens) > 1:
            return tr("{count:,} tokens", count=len(self.tokens))
        return f"{100 * self.probabilities[0]:.0f} %" if self.tokens else ""

    @property
    def verified(self) -> tuple[str, str, str]:
        """Of a row that verified drafts: what was drafted and kept, the model's own token, and what was rejected."""
        parts = self.texts[: self.accepted], self.texts[self.accepted :], self.drafts[self.accepted :]
        kept, own, rejected = ("".join(part).translate(VISIBLE) for part in parts)
        return kept, own, rejected

    @property
    def cached_words(self) -> str:
        if self.reused:
            return tr("{first:,} · {found:,} found", first=self.cached, found=self.reused)
        return digits(f"{self.cached:,}") if self.cached else "–"

    @property
    def wasted_words(self) -> str:
        return digits(f"{self.wasted:,} {WASTE_TITLES[self.waste]}") if self.wasted else ""


class StepStory:
    """A step, with what the records before it say about it. `place` is its place among all steps, `beside` how many
    prompts a prefill worker computed meanwhile."""

    def __init__(self, step: Step, history: StepHistory, place: int, origin: float) -> None:
        self.beside, step = step.beside, step.own
        self.step, self.place, self.origin = step, place, origin
        self.header: Header | None = history.header
        self.times: StepTimes = step_times(step, self.header)
        self.accounts: list[Account] = accounts(step, history, place)
        self.refused: list[tuple[int, RefusalWords]] = refusals(step, self.header)
        self.preempted = preempted_samples(step)
        self.swapped_out, self.swapped_in = (swapped_blocks(step, event) for event in (SwapEvent.OUT, SwapEvent.IN))
        self.found_below = swapped_blocks(step, SwapEvent.FOUND)
        self.offloaded = int(((step.swap_event == SwapEvent.OFFLOADED) & (step.swap_block >= 0)).sum())
        self.kernels = KernelLines(step, self.header)
        self.tokens_in = int(step.count.sum())
        self.padding = int(step.padding.sum())
        self.tokens_out = len(step.token)
        self.history, self.known = history, history.steps
        self._made: dict[int, StepRow] = {}

    def __len__(self) -> int:
        return self.step.rows

    @property
    def apart(self) -> bool:
        """Whether a prefill worker computes the prompts."""
        return self.header is not None and self.header.config.disaggregated

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
        several = any(self.history.samples(request) > 1 for request in set(requests.tolist()))
        return sample_name(int(requests.max()), 88, 2 if several else 1) if len(requests) else "#8"

    @property
    def widest_position(self) -> int:
        """A number as wide as the rows' positions, of three digits at least."""
        ends = self.step.first + self.step.count
        return int("8" * max(3, len(str(int(ends.max())))) if len(ends) else "888")

    def row(self, at: int) -> StepRow:
        """The row of this number; made when it is first asked for."""
        if at not in self._made:
            self._made[at] = StepRow(self, at)
        return self._made[at]

    def rows_of(self, request: int) -> list[int]:
        """The rows of a request, one for each of its samples that took part."""
        return list(np.flatnonzero(self.step.request == request).tolist())

    def name(self, request: int, branch: int) -> str:
        """What a sample of a request is called: "#17", or "#17·2" where there are several."""
        return sample_name(request, branch, self.history.samples(request))

    # -- in words -------------------------------------------------------------------------------------------------

    @property
    def when_words(self) -> str:
        """Which step, when it ended, and how long it took: "step 1,204 · 3.412 s · 18.4 ms"."""
        step = self.step
        long = millis(self.times.duration)
        return tr("step {step:,} · {ended:,.3f} s · {long}", step=step.step, ended=step.ended - self.origin, long=long)

    @property
    def short_when_words(self) -> tuple[str, ...]:
        """Where there is little room for them, from long to short."""
        step, long = self.step.step, millis(self.times.duration)
        brief = tr("step {step:,} · {long}", step=step, long=long)
        return self.when_words, brief, tr("step {step:,}", step=step), f"{step:,}"

    @property
    def size_words(self) -> str:
        """ "28 rows · 123 tokens in, 28 out"."""
        if not len(self):
            return self.beside_words or tr("no rows")
        if self.padding:
            tokens = trn(
                "{count:,} token in + {padding:,} padding, {out:,} out",
                "{count:,} tokens in + {padding:,} padding, {out:,} out",
                self.tokens_in,
                padding=self.padding,
                out=self.tokens_out,
            )
        else:
            tokens = trn(
                "{count:,} token in, {out:,} out",
                "{count:,} tokens in, {out:,} out",
                self.tokens_in,
                out=self.tokens_out,
            )
        rows = trn("{count:,} row", "{count:,} rows", len(self))
        device = tr("{time} by the GPU's clock", time=millis(self.step.device)) if self.step.device else ""
        said = rows, tokens, self.adapters_words, self.experts_words, self.graph_words, device, self.beside_words
        return " · ".join(filter(None, said))

    @property
    def adapters(self) -> dict[str, int]:
        """How many of the step's tokens went through each adapter of the model, in its order, and through none (""),
        where any of the model's requests can."""
        names = self.header.model.adapters if self.header is not None else ()
        through = Counter[str]()
        for request, count in zip(self.step.request.tolist(), self.step.count.tolist(), strict=True):
            through[self.history.adapter(request)] += count
        return {name: through[name] for name in (*names, "") if through[name]} if names else {}

    @property
    def adapters_words(self) -> str:
        """ "pirate 6 · german 5 · no adapter 1"."""
        told = (f"{name or tr('no adapter')} {digits(f'{count:,}')}" for name, count in self.adapters.items())
        return ", ".join(told)

    @property
    def experts_words(self) -> str:
        """Of a mixture: "33 of 48 experts"."""
        sent = self.step.expert
        return tr("{n:,} of {all:,} experts", n=int(np.count_nonzero(sent)), all=len(sent)) if len(sent) else ""

    @property
    def beside_words(self) -> str:
        """What the prefill worker computed meanwhile: "3 prompts beside"."""
        return trn("{count:,} prompt beside", "{count:,} prompts beside", self.beside) if self.beside else ""

    @property
    def graph_words(self) -> str:
        """ "replayed a graph of 64 rows (3 dummies)"; "eager" where it could have been one; empty where none is."""
        if self.step.graph or not len(self):
            return graph_words(self.step.graph, len(self), 0 if self.decodes else self.tokens_in)
        return tr("eager") if self.header is not None and self.header.graphs else ""

    @property
    def spare(self) -> int:
        """Dummies, or tokens of padding, of the graph that was replayed."""
        return max(0, self.step.graph - (len(self) if self.decodes else self.tokens_in))

    @property
    def decodes(self) -> bool:
        """Every row computes the one token that its request said last."""
        return bool((self.step.kind == Kind.DECODE).all()) and not self.step.drafted.any()

    @property
    def ranks(self) -> dict[str, str]:
        """What each rank of a split model did in the forward pass, in words; empty where nobody told."""
        step = self.step
        columns = (step.rank_computing, step.rank_communicating, step.rank_waiting)
        each = zip(*(column.tolist() for column in columns))
        asked = self._asked_of_ranks()
        return {
            self._rank_title(i): tr(
                "computing {computing}, communicating {communicating}, waiting {waiting}",
                computing=millis(a),
                communicating=millis(b),
                waiting=millis(c),
            )
            + (asked[i] if i < len(asked) else "")
            for i, (a, b, c) in enumerate(each)
        }

    def _asked_of_ranks(self) -> list[str]:
        """Where ranks share a mixture's experts out: what part of all that was sent to experts each got."""
        if self.header is None or not self.header.rank_experts or not self.step.expert.any():
            return []
        loads = rank_loads(self.header, self.step.expert.reshape(-1, self.header.model.experts)).sum(0)
        return [tr("; {share} of what goes to experts", share=percent(load / loads.sum())) for load in loads.tolist()]

    def _rank_title(self, rank: int) -> str:
        """ "rank 1"; of a pipeline "rank 1, layers 5–8"."""
        layers = self.header.rank_layers if self.header is not None else ()
        if rank >= len(layers):
            return rank_title(rank, self.apart)
        first = sum(layers[:rank]) + 1
        return tr("{rank}, layers {first}–{last}", rank=rank_title(rank), first=first, last=first + layers[rank] - 1)

    @property
    def micro_batches(self) -> int:
        """How many of them the step's rows were; 0 where it is no pipeline's."""
        return len(self.step.micro_begun) // max(1, len(self.step.rank_bytes))

    @property
    def communication_words(self) -> str:
        """ "Communication is 9 % of forward, and waiting for other ranks 4 %; 196 kB were sent over shared memory."; of
        a pipeline what its bubbles are."""
        step = self.step
        columns = (step.rank_computing, step.rank_communicating, step.rank_waiting)
        computing, communicating, waiting = (float(column.sum()) for column in columns)
        whole = max(computing + communicating + waiting, 1e-12)
        told = {"share": percent(communicating / whole), "waiting": percent(waiting / whole)}
        size = bytes_words(int(step.rank_bytes.sum()))
        if self.apart:
            worked, span = float(step.rank_computing[1]), max(step.ended - step.started, 1e-12)
            return tr(
                "The prefill worker computed {share} of the time; {size} of K and V were handed over.",
                share=percent(min(worked / span, 1.0)),
                size=size,
            )
        if parts := self.micro_batches:
            stages = len(step.rank_bytes)
            return trn(
                "Bubbles are {waiting} of the stages' time; {parts} micro-batch through {stages} stages leaves at "
                "least {least}. {size} were handed on.",
                "Bubbles are {waiting} of the stages' time; {parts} micro-batches through {stages} stages leave at "
                "least {least}. {size} were handed on.",
                parts,
                parts=parts,
                waiting=told["waiting"],
                stages=stages,
                least=percent((stages - 1) / (parts + stages - 1)),
                size=size,
            )
        if self.header is None or (between := self.header.interconnect) is None:
            return tr(
                "Communication is {share} of the ranks' time, and waiting for each other {waiting}; {size} were sent.",
                size=size,
                **told,
            )
        return tr(
            "Communication is {share} of the ranks' time, and waiting for each other {waiting}; {size} were sent over "
            "{way}.",
            size=size,
            way=way_words(between.way),
            **told,
        )

    @property
    def quiet_words(self) -> str:
        """What is said where nobody was refused."""
        waiting = self.step.waiting
        if waiting:
            return tr("Nobody was refused; {count:,} wait after this step.", count=waiting)
        return tr("Nobody was refused, and nobody waits.")


def sample_name(request: int, branch: int, samples: int) -> str:
    """ "#17", or "#17·2" for the second of several samples."""
    return digits(f"#{request:,}") + (f"·{branch + 1}" if samples > 1 else "")


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
