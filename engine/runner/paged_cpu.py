"""Runs a step over the paged KV cache on a CPU, all its rows packed into one sequence. Owns the cache's tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Protocol

import torch
from torch import Tensor

from engine.config.specs import EngineConfig
from engine.kernels.cpu import blocks as by_blocks
from engine.kernels.cpu import calls as native
from engine.kernels.cpu import quantized
from engine.kernels.cpu.large_pages import Populating, Zeros, zeros_in_large_pages
from engine.kernels.cpu.recorder import Unrecordable
from engine.kernels.cpu.structures import Attention
from engine.kernels.quantized_kv import CODES, dequantize, is_quantized, rounded
from engine.kernels.recurrence import Sequences
from engine.models.attention import Options, Timer
from engine.models.config import first_line
from engine.models.loading import LoadedModel
from engine.models.packed_linear import packed_names
from engine.models.states import StateRows
from engine.runner.attention_watch import Watch, packed
from engine.runner.launched_step import Results
from engine.runner.recorded_steps import MOST_TOKENS, RecordedSteps, Runs, StepInputs, rows_to_record
from engine.runner.runner import Computed, Inputs, Runner, each_adapter, nothing, single
from engine.runner.state_pool import RecordedStates
from engine.scheduler.block_pool import blocks_for
from engine.scheduler.plan import Row, StepPlan
from engine.trace.records import Kind

LONG_CONTEXT = 2048  # tokens; our attention took 0.3 to 0.6 of torch's time up to 512 of them, 0.8 to 1 at so many


Allocate = Callable[[int, int, int, int, torch.dtype, Zeros], Tensor]


class Decode(Protocol):
    """A step's first `rows` tokens: those of its decode rows, or, of the compiled kernels, all."""

    @property
    def rows(self) -> int: ...

    def attend(self, q: Tensor, k_cache: Tensor, v_cache: Tensor, options: Options) -> Tensor:
        """One query a row: q and out `[rows, heads, head_dim]`."""


@dataclass(slots=True)
class CpuBatch:
    """One step's view of the paged cache on a CPU. Caches are a list by layer of `[blocks, block_size, kv_heads,
    head_dim]`, or of codes as `engine.kernels.cpu.quantized` has them. The rows are packed, one sequence of all their
    tokens: `decode` answers its tokens all at once, those of `prefill` are answered row by row. `blocks` and `offsets`
    `[tokens]` are where each token's K and V go."""

    k_caches: list[Tensor]
    v_caches: list[Tensor]
    decode: Decode | None
    prefill: list[by_blocks.PrefillRow]
    blocks: Tensor
    offsets: Tensor
    compiled: bool
    watch: Watch | None = None
    states: StateRows | None = None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        q, k, v = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
        caches, decode = (self.k_caches[layer], self.v_caches[layer]), self.decode
        if self.compiled:
            native.store_kv(k, v, *caches, self.blocks, self.offsets)
        elif is_quantized(caches[0]):
            quantized.store(k, v, *caches, (self.blocks, self.offsets))
        else:
            for cache, new in zip(caches, (k, v), strict=True):
                cache.index_put_((self.blocks, self.offsets), new)
        if decode is not None:
            by_torch = not self.compiled and is_quantized(caches[0])
            read = quantized.readable(*caches, q.dtype) if by_torch else caches
            decoded = decode.attend(q[: decode.rows], *read, options)
            if not self.prefill:
                return decoded[None]
        out = torch.empty_like(q, memory_format=torch.contiguous_format)
        if decode is not None:
            out[: decode.rows] = decoded
        if self.prefill and is_quantized(caches[0]):  # every token is read as it is kept
            k, v = rounded(k, caches[0].dtype), rounded(v, caches[0].dtype)
        for row in self.prefill:
            at = slice(row.start, row.end)
            known = (k[at], v[at]) if row.table is None else _context(caches, row.table, row.context, q.dtype)
            out[at] = by_blocks.prefill_attention(q[at], *known, row, options)
        return out[None]


def _context(caches: tuple[Tensor, Tensor], table: Tensor, length: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """A row's K and V, copied together."""
    if is_quantized(caches[0]):
        return quantized.context(*caches, table, length, dtype)
    k = by_blocks.gather_context(caches[0], table, length)
    return k, k if caches[0] is caches[1] else by_blocks.gather_context(caches[1], table, length)


def _allocators(compiled: bool, codes: torch.dtype | None) -> tuple[Allocate, Allocate]:
    """Those of K and V."""
    if codes is not None:
        return quantized.allocate, quantized.allocate
    kind = native if compiled else by_blocks
    return kind.allocate_keys, kind.allocate_values


class PagedRunner(Runner):
    """One model over `blocks` blocks of KV cache, which `zeros` makes where others share it. Rows are packed into one
    sequence `[1, tokens]`; decode rows come first."""

    def __init__(self, model: LoadedModel, config: EngineConfig, blocks: int, zeros: Zeros | None = None) -> None:
        super().__init__(model, config)
        self.block_size = config.block_size
        size, dtype = config.block_size, model.dtype
        self.compiled = all(native.serves(dtype, size, kv.dim) for kv in model.layer_kv)
        zeros = zeros or (zeros_in_large_pages if self.compiled or config.kv_dtype != "auto" else by_blocks.plain_zeros)
        codes = CODES.get(config.kv_dtype)
        keys, values = _allocators(self.compiled, codes)
        for kv in model.layer_kv:
            shape = blocks, size, kv.heads, kv.dim, codes or dtype, zeros
            self.v_caches.append(values(*shape))
            self.k_caches.append(self.v_caches[-1] if kv.latent else keys(*shape))
        self._blocks, self._slots, self._budget = blocks, config.max_running, config.token_budget
        self._sampled = config.most_sampled
        self._recorded: RecordedSteps | None = None
        self.graphs_off = "" if config.cuda_graphs else "switched off"
        self.mixed_off = "" if config.mixed_graphs else "switched off"
        if model.group is not None and not model.group.recordable and not self.graphs_off:
            self.graphs_off = f"its ranks meet over {model.group.name}, which cannot be recorded"

    def capture(self, report: Callable[[int, int], None]) -> None:
        self.record(report)
        self.populating = Populating(self.block_caches)

    def record(self, report: Callable[[int, int], None]) -> None:
        """Records what is replayed later; `report` as `capture` has it."""
        if self.graphs_off or not self.compiled:
            return
        if self.model.ranks is not None:
            self.model.ranks.capture()
        card = self.model.card
        width = blocks_for(card.context, self.block_size) if card.context else self._blocks
        width, size = min(width, self._blocks), self.block_size
        rows = rows_to_record(self._slots * self._sampled, card.vocabulary, self.model.dtype)
        tokens = rows if self.mixed_off else max(rows, min(MOST_TOKENS, self._budget, width * size))
        inputs = self._inputs = StepInputs(tokens, rows, self._slots, width, size, self._room(tokens))
        caches = self.k_caches, self.v_caches

        def forward(count: int, kept: int) -> Tensor:
            seen = inputs.seen
            seen = native.NativeDecode(count, seen.tables, seen.starts, seen.lengths)
            batch = CpuBatch(*caches, seen, [], inputs.blocks[:count], inputs.offsets[:count], True)
            ids, positions = inputs.ids[None, :count], inputs.positions[None, :count]
            self._arrives(inputs, count)
            self._adapt(inputs.adapters[:count])
            if self.states is not None:
                batch.states = RecordedStates(self.states, Sequences(inputs.owners[:count], inputs.positions[:count]))
            return self._logits(ids, positions, inputs.kept[:kept], batch, None)

        names, adapters = packed_names(self.model.module), len(card.adapters)
        clear = self.states.clear if self.states is not None else nothing
        try:
            with torch.inference_mode():
                self._recorded = RecordedSteps(
                    forward, inputs, self._blocks, report, self._agree, self._hands_on, names, adapters, clear
                )
            self.overlaps = True
            self.graphs, self.recorded_bytes = tuple(range(1, rows + 1)), self._recorded.bytes
            self.kernels = self._recorded.kernels
            self._attention = self.kernels.names.index(Attention.work)
            if self._recorded.prompts:
                self.mixed_graphs = (tokens,)
            elif not self.mixed_off:
                self.mixed_off = "a step is long, and gains nothing by it"
        except Unrecordable as error:
            self.graphs_off = str(error)
        except (RuntimeError, TypeError) as error:  # a model's own code ran: it need not like to be heard
            self.graphs_off = f"recording failed: {type(error).__name__}: {first_line(error)}"

    # Of a stage of a pipeline, which does not begin with tokens, or not end with logits.

    _hands_on = False

    def _room(self, tokens: int) -> Tensor | None:
        """For what other stages computed of so many tokens."""
        return None

    def _arrives(self, inputs: StepInputs, count: int) -> None:
        """The forward that follows begins with the first of that."""

    def _agree(self, value: float) -> float:
        """What is decided by it is decided alike on all ranks."""
        group = self.model.group
        return value if group is None else group.largest(value, self._device)

    def _prepare(self, plan: StepPlan) -> Inputs:
        self._copy_blocks(plan.copies, *self.block_caches)
        rows = plan.rows
        sampling = [row for row in rows if row.samples]
        watched = self._watched(sampling)
        if not (plan.scored or watched) and self._replays(rows, sum([row.samples for row in sampling])):
            return self._recorded_inputs(rows, sampling)
        ids: list[int] = []
        positions: list[int] = []
        fed: list[tuple[int, int]] = []
        last: list[int] = []
        for row in rows:
            ids += row.ids()
            positions += range(row.first, row.first + row.count)
            if row.fed:
                fed.append((len(ids) - 1, row.slot))
            last += range(len(ids) - row.samples, len(ids))
        if plan.scored:
            last += plan.scored_places()
        token_ids, at = self._token_ids(ids, fed)[None], self._tensor(positions)[None]
        batch, keep = self._batch(rows, positions), self._tensor(last)
        adapters = self._tensor(each_adapter(rows)) if self.model.adapters is not None else None
        batch.watch = packed(rows, self._keys) if watched else None
        batch.states = None if self.states is None else self.states.in_place(rows)

        def compute(timer: Timer | None) -> Computed:
            self._adapt(adapters)
            return Computed(self._logits(token_ids, at, keep, batch, timer))

        return Inputs(sampling, compute, watch=batch.watch)

    def _keys(self, layer: int, row: Row, length: int) -> Tensor:
        """`[length, kv_heads, head_dim]`: a layer's of a row's first tokens."""
        cache, table = self.k_caches[layer], torch.tensor(row.branch.blocks[: blocks_for(length, self.block_size)])
        if not is_quantized(cache):
            return by_blocks.gather_context(cache, table, length)
        held, _ = quantized.held(cache, self.v_caches[layer])
        return dequantize(held.values[table], held.scales[table], self.model.dtype).flatten(0, 1)[:length]

    def _replays(self, rows: Sequence[Row], sampling: int) -> bool:
        """Whether a step of these rows is replayed: all but those whose prompts torch attends to."""
        recorded = self._recorded
        if recorded is None or sampling > recorded.rows:
            return False
        longest = LONG_CONTEXT if recorded.prompts else 0
        return False not in [row.kind is Kind.DECODE or row.lies_at + row.count <= longest for row in rows]

    def choose(self, rows: Sequence[Row]) -> Results | None:
        """The greedy choice for rows that sample one token each, with none of what else a step does for whoever reads
        it: for drafts. None where such rows are not replayed."""
        if self._recorded is None or not self._replays(rows, len(rows)):
            return None
        with torch.inference_mode():
            self._recorded(self._lay_out(rows)[0])
            tokens, logprobs = (each.tolist() for each in self._recorded.chosen)
        self._last_token.numpy()[[row.slot for row in rows]] = tokens
        return Results(tokens, logprobs)

    def _recorded_inputs(self, rows: Sequence[Row], sampling: list[Row]) -> Inputs:
        runs, tokens = self._lay_out(rows)
        return Inputs(sampling, lambda timer: self._replay(runs, timer), graph=tokens, overlaps=True)

    def _lay_out(self, rows: Sequence[Row]) -> tuple[Runs, int]:
        """The runs of a step to be replayed, and how many tokens it has."""
        firsts, counts = [row.lies_at for row in rows], [row.count for row in rows]
        forgotten = [row.forgotten for row in rows]
        tables, slots = [row.branch.blocks for row in rows], [row.slot for row in rows]
        adapters = () if self.model.adapters is None else [row.branch.adapter for row in rows]
        last_token = self._last_token.numpy()
        if counts.count(1) == len(rows) and single(rows):
            ids = [int(last_token[row.slot]) if row.fed else row.branch.tokens[row.first] for row in rows]
            return self._inputs.fill(ids, firsts, counts, tables, slots, range(len(rows)), adapters, forgotten), len(
                ids
            )
        ids, last = list[int](), list[int]()
        for row in rows:
            ids += row.ids()
            if row.fed:
                ids[-1] = int(last_token[row.slot])
            last += range(len(ids) - row.samples, len(ids))
        return self._inputs.fill(ids, firsts, counts, tables, slots, last, adapters, forgotten), len(ids)

    def _replay(self, runs: Runs, timer: Timer | None) -> Computed:
        recorded = self._recorded
        assert recorded is not None
        logits = recorded(runs, self._meanwhile)
        if timer is not None:
            spent = recorded.spent * 1e-9
            timer.kernels = spent if timer.kernels is None else timer.kernels + spent
            timer.seconds += float(spent[self._attention])
        return Computed(logits, recorded.greedy)

    def _batch(self, rows: Sequence[Row], positions: list[int]) -> CpuBatch:
        counts = [row.count for row in rows]
        starts = [0, *accumulate(counts)]
        # Beside the compiled kernel's, which answers every token by itself: what torch is as quick with.
        first = 0 if self.compiled else len(list(takewhile(lambda row: row.count == 1, rows)))
        prefill = []
        for row, start in list(zip(rows, starts))[first:]:
            context = row.lies_at + row.count
            if not self.compiled or (row.kind is Kind.PREFILL and row.count > 1 and context > LONG_CONTEXT):
                table = torch.tensor(row.branch.blocks[: -(-context // self.block_size)]) if row.lies_at else None
                prefill.append(by_blocks.PrefillRow(start, start + row.count, context, table))
        plan: Decode | None = None
        tables, firsts = [row.branch.blocks for row in rows], [row.lies_at for row in rows]
        if self.compiled:
            plan = native.plan_decode(tables, firsts, counts)
            for long in prefill:
                plan.lengths[long.start : long.end] = 0
        elif first:
            plan = by_blocks.plan_decode(tables[:first], [at + 1 for at in firsts[:first]], self.block_size)
        blocks = [
            row.branch.blocks[p // self.block_size] for row in rows for p in range(row.lies_at, row.lies_at + row.count)
        ]
        offsets = [position % self.block_size for position in positions]  # whole blocks are forgotten
        dtype = torch.int32 if self.compiled else torch.long
        places = torch.tensor(blocks, dtype=dtype), torch.tensor(offsets, dtype=dtype)
        return CpuBatch(self.k_caches, self.v_caches, plan, prefill, *places, self.compiled)
