"""One step's words: what is planned, what came of it, and what changed in the ledger meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.decoding.beams import Weighed
from engine.scheduler.request import Branch, Emission
from engine.trace.records import BlockEvent, Kind, Refusal, SwapEvent

Refused = tuple[tuple[int, Refusal], ...]  # the head of the queue and why it did not join, or nothing


# Rows, outcomes and emissions are made by the hundred in every step: a frozen dataclass takes six times as long.
@dataclass(slots=True, eq=False)
class Row:
    """Tokens [first, first + count) of a branch. `samples`: of how many of its last tokens the logits give a token:
    none, the last, or that and those of the `drafted` tokens, with which the row ends. Nobody changes it once it is
    planned.

    `fed`: the row's last token is still being sampled by the step before; the runner takes it from the device.
    `padding`: pad tokens to the left of the row, computed with it. `reused`: tokens found in the cache, on a branch's
    first row. `again`: how many of its tokens had been computed before. `joins`: the step admits its branch.
    `forgotten`: how many tokens before it are no longer in the cache.
    """

    branch: Branch
    slot: int
    first: int
    count: int
    kind: Kind
    samples: int
    fed: bool
    padding: int = 0
    reused: int = 0
    again: int = 0
    joins: bool = False
    drafted: tuple[int, ...] = ()
    forgotten: int = 0

    @property
    def lies_at(self) -> int:
        """Where its first token lies among those that its blocks hold."""
        return self.first - self.forgotten

    @property
    def drawn_at(self) -> range:
        """The positions of the tokens that are drawn: how many tokens are before each."""
        end = self.first + self.count
        return range(end - self.samples + 1, end + 1)

    def ids(self, unknown: int = 0) -> list[int]:
        """Its token ids; `unknown` stands for one that is still being sampled."""
        if not (self.fed or self.drafted):
            return self.branch.tokens[self.first : self.first + self.count]
        known = self.count - self.fed - len(self.drafted)
        return [*self.branch.tokens[self.first : self.first + known], *[unknown] * self.fed, *self.drafted]


@dataclass(slots=True, eq=False)
class StepPlan:
    """One step. Nobody changes it.

    In the padded modes `members` are all branches that hold a strip of the contiguous cache, in order of admission,
    the rows' own included, and `width` is how many tokens a strip holds; both are empty where nothing is cached.
    `copies` are pairs of blocks (from, to) to copy before the step: copy-on-write. `published`: branches of which the
    step makes blocks findable, each with how many were before and the serial of their prefix. `swap_out` are pairs
    (block, host block) to copy before anything else, `swap_in` pairs (host block, block) to copy next. `scored` are the
    rows of which the log-probabilities of their prompts' tokens are wanted, each with the positions that tell of them.
    """

    rows: tuple[Row, ...]
    refused: Refused = ()
    members: tuple[Branch, ...] = ()
    width: int = 0
    copies: tuple[tuple[int, int], ...] = ()
    published: tuple[tuple[Branch, int, int], ...] = ()
    swap_out: tuple[tuple[int, int], ...] = ()
    swap_in: tuple[tuple[int, int], ...] = ()
    scored: tuple[tuple[Row, range], ...] = ()

    def scored_places(self) -> list[int]:
        """Where the positions of `scored` lie among the tokens of all rows."""
        wanted = {id(row): positions for row, positions in self.scored}
        places: list[int] = []
        start = 0
        for row in self.rows:
            places += [start + at - row.first for at in wanted.get(id(row), ())]
            start += row.count
        return places


class BlockChange(NamedTuple):
    """One thing that happened to one block; `place` is where it is in the owner's block table. -1 for no owner."""

    event: BlockEvent
    block: int
    request: int
    branch: int
    place: int


class SwapChange(NamedTuple):
    """One thing that happened to one block of host memory; `place` is where it is in its owner's block table, `block`
    the block it was copied from or to, -1 for none."""

    event: SwapEvent
    host: int
    block: int
    request: int
    branch: int
    place: int


@dataclass(slots=True)
class Changes:
    """What happened to blocks and branches since the last record, in order.

    A record tells of all that happened before it was made, so that its blocks always add up; at depth 1 that includes
    what the next step took.
    """

    blocks: list[BlockChange] = field(default_factory=list)
    copied: list[tuple[int, int]] = field(default_factory=list)
    preempted: list[tuple[int, int]] = field(default_factory=list)  # request and branch
    weighed: list[tuple[int, Weighed]] = field(default_factory=list)  # request and candidate of its beam search
    swaps: list[SwapChange] = field(default_factory=list)


class Committed(NamedTuple):
    """One row's outcome: its new tokens, how many of its tokens were computed for nothing, and how many drafted ones
    are among the new."""

    emitted: Sequence[Emission] = ()
    wasted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class KvUse:
    """The pool's tokens of four kinds. Used + reserved + internal = what is owned."""

    used: int
    reserved: int
    internal: int
    external: int
