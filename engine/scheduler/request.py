"""One prompt's life (Request) and one continuation of it (Branch)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import count, repeat
from typing import Any, NamedTuple

from engine.config.sampling_params import SamplingParams
from engine.decoding.beams import BeamSearch
from engine.decoding.constraints import Matcher
from engine.decoding.output import Output
from engine.decoding.token_rules import TokenRules
from engine.scheduler.block_pool import ROOT
from engine.scheduler.prompt_scores import PromptScores
from engine.trace.column import Array
from engine.trace.records import FinishReason


class Life(Enum):
    WAITING = auto()
    RUNNING = auto()
    PREEMPTED = auto()
    FINISHED = auto()


class Emission(NamedTuple):
    """A sampled token with its log-probability, the alternatives with theirs, likeliest first, and its text, once the
    branch's output has said what it is. Of a branch that is held to a grammar, how many tokens were `allowed`, and the
    likeliest of all, with its log-probability, where that was not among them (`rather`). `attention`, of one that is
    watched: uint8 `[layers, heads or 1, context]`, as `engine.runner.attention_watch` has it."""

    token: int
    logprob: float = 0.0
    alternatives: tuple[tuple[int, float], ...] = ()
    text: str = ""
    allowed: int = -1
    rather: tuple[int, float] | None = None
    attention: Array | None = None

    @classmethod
    def plain(cls, tokens: Iterable[int], logprobs: Iterable[float]) -> list[Emission]:
        """Tokens with nothing beside them, in a third of the time: a step has hundreds."""
        nothing: repeat[tuple[()]] = repeat(())
        whole = zip(tokens, logprobs, nothing, repeat(""), repeat(-1), repeat(None), repeat(None))
        return list(map(tuple.__new__, repeat(cls), whole))


@dataclass(slots=True)
class Beam:
    """What a branch that is a place of a beam search has beside. `idle`: no path goes on there, and no row computes it.
    `found`: tokens that were in the cache when it was admitted. `told`: tokens of its text that were delivered, which
    are those that every result begins with, until the search is over. `score` is its result's."""

    idle: bool
    found: int = 0
    told: int = 0
    score: float | None = None


class Swapped(NamedTuple):
    """What a branch that waits has in host memory: the blocks from `place` of its table on, which hold the K and V of
    its tokens up to `computed`; `gone` as the branch had it."""

    place: int
    blocks: tuple[int, ...]
    computed: int
    gone: range = range(0)

    def places(self, first: int) -> Iterator[int]:
        """As `Branch` has them, from one of its blocks on."""
        return (at if at < self.gone.start else at + len(self.gone) for at in count(first))


@dataclass(slots=True, eq=False)
class Branch:
    """One continuation: its tokens, how far they are computed, and the blocks that hold their K and V.

    tokens[:computed] have their K and V in (or launched into) the cache. `in_flight` tokens are being sampled by
    steps not yet committed, so the branch's length is len(tokens) + in_flight. `steps` counts the launched steps that
    name this branch: its blocks and slot go back only at zero. `reached` is the most that was ever computed, before
    preemptions too. The first `published` blocks are findable, and `serial` is that of their prefix. `verdict` is the
    reason of a branch that is done but delivered only with its batch; `withheld` is what will be delivered. `accepts`
    is how likely a drafted token is kept, as far as was seen; `drafting` is what the drafter knows of the branch while
    it has its slot. `matcher` is its output's, where it is held to a grammar. `swapped` is what lies in host memory
    while it waits; tokens [first, end) of `restored` came back from there when it was admitted, and are not computed
    again. `away`: another process computes its prompt; `found`: how much of that was in the cache, where it was all but
    the last token. `gone` are the places of its table whose blocks were forgotten: those after them have moved up.
    `ruled`: its logits are changed before a token is drawn, by more than the repetition penalty.
    """

    request: Request
    tokens: list[int]
    output: Output
    index: int = 0
    life: Life = Life.WAITING
    reason: FinishReason | None = None
    error: str = ""
    computed: int = 0
    reached: int = 0
    in_flight: int = 0
    steps: int = 0
    slot: int = -1
    blocks: list[int] = field(default_factory=list)
    published: int = 0
    serial: int = ROOT
    verdict: FinishReason | None = None
    withheld: list[Emission] = field(default_factory=list)
    accepts: float = 0.7
    drafting: Any = None
    beam: Beam | None = None
    matcher: Matcher | None = None
    swapped: Swapped | None = None
    restored: tuple[int, int] = (0, 0)
    away: bool = False
    found: int = 0
    gone: range = range(0)
    ruled: bool = field(init=False)

    def __post_init__(self) -> None:
        self.ruled = self.request.rules is not None or self.matcher is not None

    @property
    def adapter(self) -> int:
        """As `Request` has it."""
        return self.request.adapter

    @property
    def room(self) -> int:
        """How many blocks long its tokens are that have room, those that were forgotten included."""
        return len(self.blocks) + len(self.gone)

    @property
    def places(self) -> Sequence[int]:
        """Where in its table its blocks lie, those that were forgotten counted."""
        if not self.gone:
            return range(len(self.blocks))
        return [*range(self.gone.start), *range(self.gone.stop, self.room)]

    def lies_at(self, position: int, size: int) -> int:
        """Where the token at a position that it still has lies among those of its blocks, of `size` tokens each."""
        return position if position < self.gone.start * size else position - len(self.gone) * size

    def held(self, first: int, end: int) -> list[int]:
        """Its blocks at the places [first, end) of its table, as far as they were not forgotten."""
        begin, gone = self.gone.start, len(self.gone)
        if not gone:
            return self.blocks[first:end]
        return (
            self.blocks[min(first, begin) : min(end, begin)]
            + self.blocks[max(first - gone, begin) : max(end - gone, begin)]
        )

    @property
    def together(self) -> list[Branch]:
        """The branches that get slots, are preempted and end together: all of a beam search, else this one alone."""
        return self.request.branches if self.beam is not None else [self]

    def advance(self, computed: int, drafted: int = 0) -> None:
        """Its K and V are launched up to there, the last `drafted` of them perhaps for nothing: and further, where what
        follows is there already."""
        first, end = self.restored
        if first == computed < end:
            computed = end
        self.computed = computed
        if computed - drafted > self.reached:
            self.reached = computed - drafted

    @property
    def finished(self) -> bool:
        return self.life is Life.FINISHED

    @property
    def constrained(self) -> bool:
        """True when each of its tokens must be known before the next is drawn."""
        return self.matcher is not None

    @property
    def over(self) -> bool:
        """True when it will get no more tokens, delivered or not."""
        return self.life is Life.FINISHED or self.verdict is not None

    @property
    def generated(self) -> int:
        """Tokens beyond the prompt, those in flight included."""
        return len(self.tokens) + self.in_flight - self.request.prompt_length

    @property
    def complete(self) -> bool:
        """True when no more tokens may be launched for it."""
        return self.over or self.generated >= self.request.limit

    @property
    def remaining(self) -> int:
        """Tokens of the branch whose K and V are not launched yet."""
        return len(self.tokens) + self.in_flight - self.computed

    @property
    def decoding(self) -> bool:
        """True when only the newest generated token is left to compute."""
        return self.remaining == 1 and self.generated > 0

    @property
    def due(self) -> bool:
        """True when it is decoding and not complete: asked of every branch in every step."""
        length = len(self.tokens) + self.in_flight
        if length - self.computed != 1 or self.life is Life.FINISHED or self.verdict is not None:
            return False
        return 0 < length - self.request.prompt_length < self.request.limit

    @property
    def reach(self) -> int:
        """Tokens whose K and V it can ever hold: the newest of the last step is never computed."""
        return self.request.prompt_length + self.request.limit - 1


@dataclass(slots=True, eq=False)
class Request:
    """A prompt and how to continue it. `limit` is the most tokens a branch may generate, never more than fit its
    context; `arrived` is the submit time in seconds from the trace's start; `scores` are of one that wants to hear of
    its prompt; `ranked`, how many of a place's likeliest tokens are to be known with its own; `watched`: what its
    tokens attend to is told; `greedy`: they are the likeliest by logits that nothing but rules and grammars changes;
    `adapter`: 0 for the model as it is, or 1 + the number of its adapter; `label`: whose it is, where shares are
    fair."""

    id: int
    prompt_length: int
    params: SamplingParams
    limit: int
    seed: int
    arrived: float = 0.0
    branches: list[Branch] = field(default_factory=list)
    search: BeamSearch | None = None
    rules: TokenRules | None = None
    scores: PromptScores | None = None
    adapter: int = 0
    label: str = ""
    ranked: int = field(init=False)
    watched: bool = field(init=False)
    greedy: bool = field(init=False)

    def __post_init__(self) -> None:
        self.greedy = self.params.temperature == 0 and self.params.repetition_penalty == 1.0
        self.ranked, self.watched = self.params.logprobs, self.params.attention

    @property
    def unscored(self) -> bool:
        """True while something is still to be told of its prompt, which is therefore computed from its beginning."""
        return self.scores is not None and not self.scores.whole

    @property
    def finished(self) -> bool:
        return all(branch.finished for branch in self.branches)
