"""What a step has to read, write and compute at the least, counted from its rows and the model's card. No torch.

The formulas are those of Kaplan et al. 2020, "Scaling Laws for Neural Language Models", section 2.1: two operations a
weight and token, and of Pope et al. 2022, "Efficiently Scaling Transformer Inference", section 2: a step reads every
weight once however many tokens it computes, and each row's keys and values. Attention is counted as in Dao 2023,
"FlashAttention-2", section 4.1: what the mask hides is not counted, although some kernels compute it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.config.specs import PAGED_MODES
from engine.trace.records import Array, BlockEvent, Header, Kind, ModelCard, Step

ITEMS = {"float32": 4, "float16": 2, "bfloat16": 2}
STATE_OPERATIONS = 7
ALIGNED_MODES = ("static", "dynamic", "sequential")  # those that are done keep growing with their batch


@dataclass(frozen=True, slots=True)
class Work:
    """Columns `[steps]`: tokens computed, padding included, and those that are sampled from; bytes and floating-point
    operations of the matrix products with weights, and of attention, of which those of layers that keep a state are
    `state_bytes` and `state_operations`. `row_bytes` and `row_operations` `[rows of all
    steps]` are each row's attention, in order; `row_ends` `[steps]` is where each step's rows end.

    A prefix that rows share counts in each row's bytes, and in the step's once where the step reads it once.
    """

    tokens: Array
    sampled: Array
    matmul_bytes: Array
    matmul_operations: Array
    attention_bytes: Array
    attention_operations: Array
    row_bytes: Array
    row_operations: Array
    row_ends: Array
    state_bytes: Array
    state_operations: Array

    @property
    def bytes(self) -> Array:
        return self.matmul_bytes + self.attention_bytes

    @property
    def operations(self) -> Array:
        return self.matmul_operations + self.attention_operations


@dataclass(frozen=True, slots=True)
class Weights:
    """What the card says of the weights; of a card on which nobody counted, the embedding taken as the head as well."""

    dense: float
    expert: float
    share: float  # of the experts, that one token is sent to
    head: float
    body_bytes: float  # a weight
    item: float  # bytes of an element of the embedding, the head, K and V

    @classmethod
    def of(cls, card: ModelCard) -> Weights:
        item = float(ITEMS.get(card.dtype, 4))
        if card.body_parameters == 0:
            head = float(card.vocabulary * card.hidden)
            stored = card.weight_bytes / max(card.parameters, 1)
            return cls(max(0.0, card.parameters - head), 0.0, 0.0, head, stored, item)
        share = card.active_experts / card.experts if card.experts else 0.0
        dense = float(card.body_parameters - card.expert_parameters)
        expert, head = float(card.expert_parameters), float(card.head_parameters)
        return cls(dense, expert, share, head, card.bytes_per_weight, item)


class WorkCounter:
    """Counts the steps of one trace, each once and in order: what some of them read depends on those before."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._shares = header.model.device == "cpu" and header.config.mode in PAGED_MODES
        self._aligned = header.config.mode in ALIGNED_MODES
        self._owners = np.zeros(header.blocks if self._shares else 0, np.int32)
        self._surplus = 0  # owners of blocks beyond each block's first
        self._width = 0

    def count(self, steps: Sequence[Step]) -> Work:
        """The next steps' work."""
        shared, widths = np.zeros(len(steps)), np.zeros(len(steps), np.int64)
        for i, step in enumerate(steps):
            if self._shares and len(step.block):
                shared[i] = self._share(step)
            elif self._shares:
                shared[i] = self._surplus
            if self._aligned and step.rows:
                whole = step.kind[0] == Kind.PREFILL
                self._width = int(step.count[0] + step.padding[0]) if whole else self._width + 1
                widths[i] = self._width
        return count_work(self._header, steps, shared * self._header.config.block_size, widths)

    def _share(self, step: Step) -> int:
        """Owners beyond the first of each block while the step ran: what joined before, what left after it."""
        owned = step.block_request >= 0
        block, event = step.block[owned], step.block_event[owned]
        joined = (event == BlockEvent.TAKEN) | (event == BlockEvent.SHARED)
        if len(block) and block.max() >= len(self._owners):
            self._owners = np.concatenate([self._owners, np.zeros(block.max() + 1 - len(self._owners), np.int32)])
        touched = np.unique(block)
        before = np.maximum(self._owners[touched] - 1, 0).sum()
        np.add.at(self._owners, block[joined], 1)
        during = self._surplus + int(np.maximum(self._owners[touched] - 1, 0).sum() - before)
        np.add.at(self._owners, block[~joined], -1)
        self._surplus += int(np.maximum(self._owners[touched] - 1, 0).sum() - before)
        return during


def activated_by_chance(share: float, tokens: Array) -> Array:
    """The share of all experts that so many tokens are sent to on average, each to this `share` of them, if all are as
    likely: 1 - (1 - share)^tokens."""
    return 1 - (1 - share) ** tokens.astype(np.float64)


def activated(share: float, steps: Sequence[Step], tokens: Array) -> Array:
    """Of each step the share of all experts that its tokens are sent to, each to this `share` of them: as it tells, or
    by chance."""
    counted = np.array([np.nan if (told := step.activated) is None else told for step in steps], np.float64)
    return np.where(np.isnan(counted), activated_by_chance(share, tokens), counted)


def count_work(header: Header, steps: Sequence[Step], shared: Array | None = None, widths: Array | None = None) -> Work:
    """The work of these steps. With P weights that multiply a token, H of the head, n tokens of which s are sampled
    from, and a the positions that row i's tokens attend to in layer l:

    - matrix products: 2 P n + 2 H s operations; P and H weights read once, H only if s > 0, and n rows of the
      embedding. Of experts, each token multiplies with the active ones, and a step reads those that any of its tokens
      is sent to: counted where the step tells, else 1 - (1 - active / experts)^n of them, as if all were as likely.
    - attention: 4 heads head_dim sum(a) operations, K and V of the positions that any token of the row sees read once a
      row, and K and V of its tokens written. A token at position p sees p + 1 positions, or those of its window, and
      none that the cache has forgotten.
    - states, of layers that keep one: read and written once a row, and 7 operations a number and token: it decays, what
      it holds for a key is summed, what that lacks is added, and what it holds for a query is summed (the gated delta
      rule, https://arxiv.org/abs/2412.06464, section 3; others have less). They count as attention.

    In the padded modes pads count as tokens, every row attends over the width of the rectangle, and all rows go through
    the head. Recomputing writes no K and V. `shared` `[steps]`: tokens of a prefix that decode rows share and that are
    read once; `widths` `[steps]`: the rectangle's, 0 where the longest row says it. Activations between layers are not
    counted, nor norms. Of rows that a prefill worker computes nothing is.
    """
    card, config = header.model, header.config
    paged, weights = config.mode in PAGED_MODES, Weights.of(card)
    rows = np.array([step.rows for step in steps], np.int64)
    of_step = np.repeat(np.arange(len(steps)), rows)

    def column(name: str) -> Array:
        parts = [getattr(step, name) for step in steps]
        return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)

    def by_step(values: Array) -> Array:
        return np.bincount(of_step, values, len(steps))

    first, tokens, kind = column("lies_at"), column("count"), column("kind")
    ends = np.cumsum(rows)
    for end_of, step in zip(ends.tolist(), steps):
        if step.beside:
            first[end_of - step.beside : end_of] = tokens[end_of - step.beside : end_of] = 0
    end = first + tokens
    if not paged:
        tokens = tokens + column("padding")
        longest = np.zeros(len(steps), np.int64)
        np.maximum.at(longest, of_step, first + tokens)
        if widths is not None:
            longest = np.where(widths > 0, widths, longest)
        end = longest[of_step]
    begin = end - tokens

    operations, read = np.zeros(len(first)), np.zeros(len(first))
    windows = card.windows or (0,) * card.layers  # of those that attend
    for window in set(windows):
        layers = windows.count(window)
        operations += layers * (_seen(end, window) - _seen(begin, window))
        read += layers * (end - (np.maximum(begin - window + 1, 0) if window else 0))
    kv_layers = card.kv_layers or len(windows)
    layer_bytes = card.kv_token_bytes / max(kv_layers, 1)
    row_operations = 4.0 * card.heads * card.head_dim * operations
    written = tokens * (0 if config.mode == "recompute" else kv_layers)
    row_bytes = layer_bytes * (read + written)
    state_bytes = (0.0 if config.mode == "recompute" else 2.0) * card.state_bytes * (tokens > 0)
    state_operations = STATE_OPERATIONS * card.state_bytes / ITEMS["float32"] * tokens
    row_bytes, row_operations = row_bytes + state_bytes, row_operations + state_operations

    attention_bytes = by_step(row_bytes)
    if shared is not None and paged:
        decodes = by_step((kind == Kind.DECODE).astype(np.float64))
        sharing = np.maximum(decodes - 1, 0) / np.maximum(rows - 1, 1)
        attention_bytes = attention_bytes - shared * sharing * layer_bytes * windows.count(0)

    count = by_step(tokens.astype(np.float64))
    if paged:
        emitted = np.zeros(len(first), bool)
        starts = np.cumsum(rows) - rows
        for start, step in zip(starts.tolist(), steps):
            emitted[start + step.token_row] = True
        sampled = by_step(((kind == Kind.DECODE) | emitted).astype(np.float64))
        sampled = sampled + np.array([float(step.drafted.sum()) for step in steps])
    else:
        sampled = rows.astype(np.float64)
    met = activated(weights.share, steps, count)
    return Work(
        tokens=count,
        sampled=sampled,
        matmul_bytes=np.where(count > 0, weights.dense + weights.expert * met, 0.0) * weights.body_bytes
        + np.where(sampled > 0, weights.head * weights.item, 0.0)
        + count * card.hidden * weights.item,
        matmul_operations=2 * (weights.dense + weights.expert * weights.share) * count + 2 * weights.head * sampled,
        attention_bytes=attention_bytes,
        attention_operations=by_step(row_operations),
        row_bytes=row_bytes,
        row_operations=row_operations,
        row_ends=ends,
        state_bytes=by_step(state_bytes),
        state_operations=by_step(state_operations),
    )


def _seen(end: Array, window: int) -> Array:
    """The positions that the tokens before `end` attend to, each up to itself and within its window, added up."""
    if not window:
        return end * (end + 1) // 2
    inside = np.minimum(end, window)
    return inside * (inside + 1) // 2 + (end - inside) * window
