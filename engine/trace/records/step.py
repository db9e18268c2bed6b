"""What a step computed, and what happened to blocks meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum

import numpy as np

from engine.trace.column import Array
from engine.trace.records.arrays import empty


class Kind(IntEnum):
    """What a row of a step computes. HELD: a finished row of a static batch, computed until the longest ends."""

    PREFILL = 0
    DECODE = 1
    HELD = 2


class Refusal(StrEnum):
    """Why the head of the queue did not join a step."""

    NO_SLOT = "no slot"
    NO_BLOCKS = "no blocks"
    BUDGET = "budget spent"
    DECODE_TURN = "decodes' turn"
    JOIN_TURN = "joins wait for their step"
    BATCH_FILLS = "the batch is not full"
    BATCH_RUNS = "the batch is not over"
    PROMPT_RUNS = "its prompt is still computed"
    OTHER_ADAPTER = "requests of another adapter run"
    PACE = "gaps would be longer than the target"


class BlockEvent(IntEnum):
    """What happened to a block. TAKEN: from the free ones, or from the cached ones, whose prefix is then forgotten.
    SHARED: one more owner, of an owned or a cached block. LEFT: an owner went, others stay. KEPT: the last owner went
    and the block stays cached for its prefix. FREED: the last owner went; without an owner, what was cached is lost."""

    TAKEN = 0
    SHARED = 1
    LEFT = 2
    KEPT = 3
    FREED = 4


class Fate(IntEnum):
    """What became of a candidate of a beam search. FINISHED: it ended, and was among the best that did."""

    PRUNED = 0
    LIVE = 1
    FINISHED = 2


class SwapEvent(IntEnum):
    """What happened to a block of host memory. OUT: it got a preempted branch's K and V. IN: they went back to the pool
    as the branch was admitted. DROPPED: it was given back without.

    Of prefixes that are offloaded: OFFLOADED, it got what a cached block held that makes room. FOUND: that went back to
    the pool, for a branch that begins with it, and stays here too. FORGOTTEN: it makes room itself."""

    OUT = 0
    IN = 1
    DROPPED = 2
    OFFLOADED = 3
    FOUND = 4
    FORGOTTEN = 5


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step was launched: so many rows, so many tokens. Says what is under way before its `Step` is there."""

    time: float
    step: int
    rows: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Step:
    """One committed step, in columns.

    Rows `[rows]`: `request`, `branch`, `slot`, `first` (position of the row's first token), `count` (tokens computed),
    `kind`, `wasted` (of `count`: computed and thrown away, by held rows, rows past a stop and recomputation), `padding`
    (pad tokens that were computed beside `count`), `reused` (tokens before `first` that need no computing, on a
    branch's first row: their K and V were there, of a prefix that was kept or of another sample's prompt). What the
    model was given is the sum of `count + padding`. The last `beside` rows are prompts that a prefill worker computes
    meanwhile: with `count` 0 until the step by whose end it is done. Emitted tokens, in row order: `token_row` (index
    of the row), `token`, `logprob` (natural log, of the model's own distribution), and `text_end`, where each token's
    part of `text` ends; a token's part may be empty while a character or a stop string is held back. Alternatives, for
    rows that asked, likeliest first: `alt_token_index` (index into `token`), `alt_token`, `alt_logprob`, `alt_text`. Of
    tokens that were held to a grammar: `allowed_token_index` (index into `token`) and how many tokens were `allowed`;
    and where the likeliest of all was not, what the model would rather have said: `rather_token_index`, `rather_token`,
    `rather_logprob`, `rather_text`.

    Of tokens whose request asked what they attend to: `attended_token_index` (index into `token`), `attended_context`,
    how many tokens each saw, the one that it follows and all before it, and where its part of `attended` ends,
    `attended_end`: uint8 codes `[layers, heads or 1, context]`, a weight being the square of a code over 255.

    Of a cache that forgets, `forgotten` `[rows]`: how many tokens before each row's were no longer in it, those after
    the header's `config.sink_tokens`. Empty where nothing was.

    What happened to blocks since the last record, in order: `block_event` (`BlockEvent`), `block`, `block_request` and
    `block_branch` (the owner that came or went; -1 where there was none), `block_place` (the block's place in that
    owner's block table). At depth 1 that includes what the next step took. `copied` and `copied_to` are pairs of
    copy-on-write. Refused requests with a reason each. `preempted` requests and `preempted_branch`, which of their
    samples. Likewise in order of what happened to blocks of host memory: `swap_event` (`SwapEvent`), `swap_host`,
    `swap_block` (the pool's block that was copied from or to, -1 where nothing was), `swap_request`, `swap_branch` and
    `swap_place` (-1 where it is no branch's). A preempted sample none of whose blocks went out computes them again.

    Of speculation, empty where nothing was drafted: `drafted` and `accepted` `[rows]`, how many tokens were proposed
    and computed with a row's own, and how many of them were kept: the first of the row's emitted tokens. `draft_token`
    and `draft_text` are those proposed, in row order.

    `seconds` a phase: plan, draft, prepare, forward, sample, wait, commit, record; launched at `started` one after
    another up to sample, and read back with wait and commit up to `ended`. What of the record was made while the next
    step computed is that one's `forward`. `attention`: those of `forward` that were
    spent in attention; 0 where that is not known, as on a GPU, which the host only launches. `swapping`: those of
    `prepare` in which blocks were copied out and in; on a GPU only asked for. `graph`: the size of the
    graph that was replayed, 0 where none was: its rows where all rows decode, those of the step and dummies; otherwise
    its tokens, those of the step and padding that belongs to no row. `device`: seconds by the GPU's own clock in which
    it computed the step, 0 without one. Beam searches' candidates, the best of each first: `beam_request`,
    `beam_parent` (the branch whose path it continues), `beam_branch` (that at which it goes on, -1 where it does not),
    `beam_token` with its text in `beam_text`, `beam_score` (sum of its path's log-probabilities) and `beam_fate`
    (`Fate`).
    `running`, `waiting` count branches after the step; `free_blocks` and `cached_blocks` likewise. The pool's tokens
    of four kinds: `kv_used`; `kv_reserved` (not used yet, still reachable under max_tokens); `kv_internal` (held,
    never reachable); `kv_external` (free, but of no use to the head of the queue, which was refused for want of more).

    Of a model that is split, `[ranks]`, seconds of prepare and forward by what each rank did: `rank_computing`,
    `rank_communicating` (sending and adding up what all had ready), `rank_waiting` (for a rank that had not); and
    `rank_bytes` that it sent. Of a pipeline, `[ranks * micro-batches]`, those of rank 0 first, seconds from `started`
    at which a rank began and ended each micro-batch: `micro_begun`, `micro_ended`. Empty where nobody told.

    Of a mixture of experts, `expert` `[expert_layers * experts]`, those of the first such layer first: how many of the
    step's tokens each layer sent to each of its experts, a token once for every expert that computes it. What a prefill
    worker computes is not among them. Empty where nobody told.

    Of a step that a CPU replayed, `kernel` `[kernels of the header]`: seconds of `forward` by what was done, of rank 0.
    """

    step: int
    started: float
    ended: float
    request: Array
    branch: Array
    slot: Array
    first: Array
    count: Array
    kind: Array
    wasted: Array
    token_row: Array
    token: Array
    logprob: Array
    text: str
    text_end: Array
    running: int
    waiting: int
    free_blocks: int
    seconds: dict[str, float]
    preempted: Array = empty(np.int32)
    refused: Array = empty(np.int32)
    refused_reason: tuple[str, ...] = ()
    alt_token_index: Array = empty(np.int32)
    alt_token: Array = empty(np.int32)
    alt_logprob: Array = empty(np.float32)
    alt_text: tuple[str, ...] = ()
    preempted_branch: Array = empty(np.int32)
    padding: Array = empty(np.int32)
    reused: Array = empty(np.int32)
    block_event: Array = empty(np.uint8)
    block: Array = empty(np.int32)
    block_request: Array = empty(np.int32)
    block_branch: Array = empty(np.int32)
    block_place: Array = empty(np.int32)
    copied: Array = empty(np.int32)
    copied_to: Array = empty(np.int32)
    cached_blocks: int = 0
    kv_used: int = 0
    kv_reserved: int = 0
    kv_internal: int = 0
    kv_external: int = 0
    attention: float = 0.0
    graph: int = 0
    device: float = 0.0
    drafted: Array = empty(np.int32)
    accepted: Array = empty(np.int32)
    draft_token: Array = empty(np.int32)
    draft_text: tuple[str, ...] = ()
    beam_request: Array = empty(np.int32)
    beam_parent: Array = empty(np.int32)
    beam_branch: Array = empty(np.int32)
    beam_token: Array = empty(np.int32)
    beam_score: Array = empty(np.float32)
    beam_fate: Array = empty(np.uint8)
    beam_text: tuple[str, ...] = ()
    allowed_token_index: Array = empty(np.int32)
    allowed: Array = empty(np.int32)
    rather_token_index: Array = empty(np.int32)
    rather_token: Array = empty(np.int32)
    rather_logprob: Array = empty(np.float32)
    rather_text: tuple[str, ...] = ()
    swap_event: Array = empty(np.uint8)
    swap_host: Array = empty(np.int32)
    swap_block: Array = empty(np.int32)
    swap_request: Array = empty(np.int32)
    swap_branch: Array = empty(np.int32)
    swap_place: Array = empty(np.int32)
    swapping: float = 0.0
    rank_computing: Array = empty(np.float32)
    rank_communicating: Array = empty(np.float32)
    rank_waiting: Array = empty(np.float32)
    rank_bytes: Array = empty(np.int64)
    beside: int = 0
    micro_begun: Array = empty(np.float32)
    micro_ended: Array = empty(np.float32)
    kernel: Array = empty(np.float32)
    expert: Array = empty(np.int32)
    attended_token_index: Array = empty(np.int32)
    attended_context: Array = empty(np.int32)
    attended_end: Array = empty(np.int64)
    attended: Array = empty(np.uint8)
    forgotten: Array = empty(np.int32)

    @property
    def own(self) -> Step:
        """The step as who decodes has computed it: without the rows of a prefill worker."""
        if not self.beside:
            return self
        columns = "request branch slot first count kind wasted padding reused drafted accepted forgotten".split()
        most = self.rows - self.beside
        return replace(self, beside=0, **{name: getattr(self, name)[:most] for name in columns})

    @property
    def under_way(self) -> int:
        """How many rows are prompts that a prefill worker has not computed yet."""
        return int((self.count[-self.beside :] == 0).sum()) if self.beside else 0

    @property
    def activated(self) -> float | None:
        """The share of all layers' experts that any of its tokens was sent to; None where nobody told."""
        return int(np.count_nonzero(self.expert)) / len(self.expert) if len(self.expert) else None

    @property
    def rows(self) -> int:
        return len(self.request)

    @property
    def standing(self) -> bool:
        """It computed nothing and took no time: it tells how things stood when somebody joined who came late, with all
        the tokens there were."""
        return self.started == self.ended and not self.count.any()

    @property
    def stays(self) -> Array:
        """Of how many of each row's tokens K and V count from then on: all but the drafted ones that were rejected."""
        return self.count - (self.drafted - self.accepted) if len(self.drafted) else self.count

    @property
    def lies_at(self) -> Array:
        """How many tokens that the cache holds each row's first one comes after."""
        return self.first - self.forgotten if len(self.forgotten) else self.first

    @property
    def moved_blocks(self) -> int:
        """How many blocks were copied to host memory, and back."""
        return int((self.swap_block >= 0).sum()) if len(self.swap_block) else 0

    @property
    def found_below(self) -> Array:
        """The requests of which blocks came back from offloaded prefixes, once for each such block."""
        owners = self.swap_request
        return np.asarray(owners[self.swap_event == SwapEvent.FOUND]) if len(owners) else owners

    @property
    def swapped_out(self) -> set[tuple[int, int]]:
        """The samples (request, branch) whose blocks went to host memory."""
        out = self.swap_event == SwapEvent.OUT
        return set(zip(self.swap_request[out].tolist(), self.swap_branch[out].tolist())) if len(out) else set()
