"""Runs a step of rows padded on the left to one width, over a contiguous KV cache, or over none (recompute)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from engine.config.specs import EngineConfig
from engine.kernels.attention.padded import attention, causal_attention, left_padded_bias
from engine.models.attention import Options, Timer
from engine.models.loading import LoadedModel
from engine.models.states import StateRows
from engine.runner.attention_watch import Query, Watch
from engine.runner.contiguous_cache import ContiguousCache
from engine.runner.launched_step import to_device
from engine.runner.runner import Computed, Inputs, Runner
from engine.scheduler.plan import Row, StepPlan
from engine.scheduler.request import Branch
from engine.trace.records import Kind


@dataclass(slots=True)
class WholeBatch:
    """Rows that are whole sequences, each after `padding` pads. Their K and V are kept in the `strips` of `cache`."""

    padding: list[int]
    tokens: int
    cache: ContiguousCache | None
    strips: slice
    biases: dict[tuple[int | None, torch.dtype], Tensor | None] = field(default_factory=dict)
    watch: Watch | None = None
    states: StateRows | None = None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        if self.cache is not None:
            columns = slice(self.cache.end - self.tokens, self.cache.end)
            for strips, new in zip(self.cache.layers[layer], (key, value)):
                strips[self.strips, :, columns] = new
        return causal_attention(query, key, value, self._bias(options.window, query), options).transpose(1, 2)

    def _bias(self, window: int | None, query: Tensor) -> Tensor | None:
        """The mask of layers with this window, made once a step; None where plain causality is all."""
        if window is not None and window >= self.tokens:
            window = None
        if window is None and not any(self.padding):
            return None
        if (window, query.dtype) not in self.biases:
            padding = to_device(self.padding, query.device)
            self.biases[window, query.dtype] = left_padded_bias(padding, self.tokens, window, query.dtype)
        return self.biases[window, query.dtype]


@dataclass(slots=True)
class NextBatch:
    """One token for every member of `cache`, row by strip; it goes to the column before the cache's end."""

    cache: ContiguousCache
    watch: Watch | None = None
    states: StateRows | None = None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        cache = self.cache
        kept = cache.layers[layer]
        count, end = len(cache.members), cache.end
        for strips, new in zip(kept, (key, value)):
            strips[:count, :, end - 1] = new[:, :, 0]
        # Every query is the last token of its row, so a sliding window is a band of columns.
        first = cache.start if options.window is None else max(cache.start, end - options.window)
        keys, values = (strips[:count, :, first:end] for strips in (kept[0], kept[-1]))
        return attention(query, keys, values, cache.bias(first), options).transpose(1, 2)


def _called_with(row: int, count: int, layer: int, key: Tensor) -> Tensor:
    """`[count, kv_heads, head_dim]`: those of a row's tokens, the last of what a layer was called with."""
    return key[row, :, -count:].transpose(0, 1)


class PaddedRunner(Runner):
    """One model over a contiguous cache of `blocks` blocks in all. A step is prompts alone, or a token each for all. A
    row of the model's call is a row of the plan, but in a decode step they are in order of the cache's strips."""

    def __init__(self, model: LoadedModel, config: EngineConfig, blocks: int) -> None:
        super().__init__(model, config)
        self._last_position = (model.card.context or 1 << 30) - 1
        self.cache = ContiguousCache(model, blocks * config.block_size, config.slots)

    def _prepare(self, plan: StepPlan) -> Inputs:
        # A held row begins at 0 too when its prompt is one token and it was cancelled before the next was read.
        prompts = plan.rows[0].kind is Kind.PREFILL
        return self._whole(plan) if prompts or not plan.members else self._next(plan)

    def _whole(self, plan: StepPlan) -> Inputs:
        """Whole sequences, from their first token on."""
        rows = plan.rows
        tokens = rows[0].padding + rows[0].count
        assert all(row.first == 0 and row.samples and row.padding + row.count == tokens for row in rows)
        if plan.members:
            joining = [row.branch for row in rows]
            assert list(plan.members[-len(rows) :]) == joining, "those who join are the newest members"
            self._arrange(plan.members[: -len(rows)], rows, plan.width)
            cache, first = self.cache, len(plan.members) - len(rows)
            batch = WholeBatch([row.padding for row in rows], tokens, cache, slice(first, len(plan.members)))
        else:
            batch = WholeBatch([row.padding for row in rows], tokens, None, slice(0))
        ids, positions = [], []
        for row in rows:
            ids += [0] * row.padding + row.ids()
            positions += [0] * row.padding + list(range(row.count))
        fed = [((i + 1) * tokens - 1, row.slot) for i, row in enumerate(rows) if row.fed]
        token_ids = self._token_ids(ids, fed).view(len(rows), tokens)
        at = self._tensor(positions).view(len(rows), tokens)
        adapters = self._tensor([row.branch.adapter for row in rows for _ in range(tokens)])
        if self._watched(rows):
            asked = [i for i, row in enumerate(rows) if row.branch.request.watched]
            batch.watch = Watch([Query(i, i, tokens - 1, partial(_called_with, i, rows[i].count)) for i in asked])
        batch.states = self._states(rows, plan.members)

        def compute(timer: Timer | None) -> Computed:
            self._adapt(adapters)
            return Computed(self._logits(token_ids, at, 1, batch, timer))

        return Inputs(list(rows), compute, watch=batch.watch)

    def _next(self, plan: StepPlan) -> Inputs:
        """One token for every member."""
        rows = plan.rows
        assert [row.branch for row in rows] == list(plan.members), "every member has its row, in their order"
        self._arrange(plan.members, (), plan.width)
        strip_of = {branch: strip for strip, branch in enumerate(self.cache.members)}
        strips = [strip_of[row.branch] for row in rows]
        self.cache.advance([strip for strip, row in zip(strips, rows, strict=True) if not row.samples])
        ids, positions, adapters = [0] * len(rows), [0] * len(rows), [0] * len(rows)
        fed: list[tuple[int, int]] = []
        for row, strip in zip(rows, strips, strict=True):
            if row.fed:
                fed.append((strip, row.slot))
            elif row.kind is Kind.HELD:
                ids[strip] = row.branch.tokens[-1]
            else:
                ids[strip] = row.branch.tokens[row.first]
            positions[strip] = min(row.first, self._last_position)
            adapters[strip] = row.branch.adapter
        token_ids = self._token_ids(ids, fed)[:, None]
        sampling = [row for row in rows if row.samples]
        picked = [strip for strip, row in zip(strips, rows, strict=True) if row.samples]
        at, chosen = self._tensor(positions)[:, None], self._tensor(picked)
        in_order, through = picked == list(range(len(rows))), self._tensor(adapters)
        batch = NextBatch(self.cache)
        if self._watched(sampling):
            asked = [i for i, row in enumerate(sampling) if row.branch.request.watched]
            batch.watch = Watch([Query(i, picked[i], 0, partial(self.cache.keys, picked[i])) for i in asked])
        batch.states = self._states(
            [row for _, row in sorted(zip(strips, rows, strict=True), key=lambda each: each[0])]
        )

        def compute(timer: Timer | None) -> Computed:
            self._adapt(through)
            logits = self._logits(token_ids, at, 1, batch, timer)
            return Computed(logits if in_order else logits.index_select(0, chosen))

        return Inputs(sampling, compute, watch=batch.watch)

    def _states(self, rows: Sequence[Row], members: Sequence[Branch] | None = None) -> StateRows | None:
        """Whose a step's tokens are; of whole sequences without `members` nothing is kept."""
        if self.states is None:
            return None
        pads = [row.padding for row in rows]
        mask = None
        if any(pads):
            places = torch.arange(pads[0] + rows[0].count, device=self._device)
            mask = (places >= self._tensor(pads)[:, None]).long()
        states = self.states.padded(rows, mask)
        return states if members is None or members else states.forgotten()

    def _arrange(self, staying: Sequence[Branch], joining: Sequence[Row], width: int) -> None:
        """Lets members leave and join. Where that fails half-way, the cache is of no use to those in it."""
        cache = self.cache
        try:
            cache.retain(set(staying))
            if len(cache.members) != len(staying):
                raise RuntimeError("a step that failed took the KV cache with it")
            if joining:
                cache.join([row.branch for row in joining], [row.count for row in joining], width)
        except Exception:
            cache.forget()
            raise
