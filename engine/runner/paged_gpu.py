"""Runs a step over the paged KV cache on a GPU: rows' state stays on the device, decode steps are replayed graphs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config.specs import EngineConfig
from engine.kernels.attention.packed_rows import PackedRows
from engine.kernels.attention.paged_attention import paged_attention
from engine.kernels.kv_codes import allocate, apart
from engine.kernels.place_kv import place_kv
from engine.kernels.quantized_kv import CODES, dequantize
from engine.kernels.sampling import WORDS
from engine.kernels.step_inputs import StepInputs, decode_inputs, packed_inputs
from engine.kernels.store_kv import store_kv
from engine.memory.rules import bucket_sizes, captured_tokens
from engine.models.attention import Options, Timer, current_device
from engine.models.fusion.placing import PutOff
from engine.models.loading import LoadedModel
from engine.models.states import StateRows
from engine.parallel.group import Collective
from engine.runner.attention_watch import Watch, packed
from engine.runner.cuda_graphs import Drawn, StepGraphs, capture
from engine.runner.device_rows import DeviceRows
from engine.runner.launched_step import send_to
from engine.runner.packed_words import PackedShape, PackedWords, room_wanted
from engine.runner.runner import Computed, Inputs, Runner
from engine.runner.sampling.gpu_sampler import DeviceSampler, parameter_words
from engine.scheduler.block_pool import blocks_for
from engine.scheduler.plan import Row, StepPlan
from engine.trace.records import Kind


@dataclass(slots=True)
class GpuBatch:
    """One step's view of the paged cache on a GPU. Caches are a list by layer of `[blocks, block_size, kv_heads,
    head_dim]`, or of codes as `engine.kernels.kv_codes` has them. The rows are packed: one sequence of all their
    tokens, whose keys and values go to `cache_slots` int64 `[tokens]`."""

    k_caches: list[Tensor]
    v_caches: list[Tensor]
    cache_slots: Tensor
    rows: PackedRows
    watch: Watch | None = None
    states: StateRows | None = None

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        q, k, v = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
        k_cache, v_cache = self.k_caches[layer], self.v_caches[layer]
        store_kv(k, v, k_cache, v_cache, self.cache_slots)
        return paged_attention(q, k_cache, v_cache, self.rows, options)[None]

    def place(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options, later: PutOff) -> Tensor:
        """`attend` with queries and keys whose norms and rotation were put off."""
        q, k, v = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
        caches = self.k_caches[layer], self.v_caches[layer]
        q = place_kv(q, k, v, (later.cos[0], later.sin[0]), later.norms, caches, self.cache_slots)
        return paged_attention(q, *caches, self.rows, options)[None]


class GpuRunner(Runner):
    """One model over `blocks` blocks of KV cache, and one more that dummy rows write to.

    Rows are packed into one sequence `[1, tokens]`, decode rows first. A step in which every row decodes takes its
    inputs from what the device knows, at fixed places, so that it can be a replayed graph; any other is sent its tokens
    in one copy, and is a replayed graph as well for the numbers of tokens that are `captured`, None for as many as is
    worth it. With Triton's interpreter on, all of it runs on CPU tensors: so it is tested without a GPU.

    Of a model that is split rank 0 draws the tokens. Every step begins with its telling the others the last one of each
    slot, on the devices: so they need not know them to be sent the next step.
    """

    def __init__(
        self, model: LoadedModel, config: EngineConfig, blocks: int, captured: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(model, config)
        self.block_size, self._most_sampled = config.block_size, config.most_sampled
        self._codes = CODES.get(config.kv_dtype)
        for kv in model.layer_kv:
            self.k_caches.append(self._allocate(blocks + 1, kv.heads, kv.dim))
            self.v_caches.append(self.k_caches[-1] if kv.latent else self._allocate(blocks + 1, kv.heads, kv.dim))
        width = min(blocks, blocks_for(model.card.context, self.block_size) if model.card.context else blocks)
        sizes = bucket_sizes(config.max_running)
        rows = max(sizes[-1], config.max_running)
        group, sampler = model.group, self._sampler if self.draws else None
        assert sampler is None or isinstance(sampler, DeviceSampler)
        self._group, self._draws = group if isinstance(group, Collective) else None, sampler
        self._rows = DeviceRows(config.max_running, WORDS if sampler else 0, width, rows, blocks, self._device)
        self._last_token = self._rows.last_tokens
        if sampler is not None:
            sampler.parameters = self._rows.parameters
        self._ids, self._positions, self._cache_slots = torch.zeros(3, rows, dtype=torch.long, device=self._device)
        self._contexts, self._drawn_at = torch.zeros(2, rows, dtype=torch.int32, device=self._device)
        self._starts = torch.arange(rows + 1, dtype=torch.int32, device=self._device)
        if not config.cuda_graphs:
            self.graphs_off = "switched off"
        elif model.card.quantization == "int8":
            self.graphs_off = "int8 with outliers waits for the GPU in every layer; int8-plain does not"
        elif group is not None and not group.capturable:
            self.graphs_off = f"its ranks meet over {group.name}, which cannot be captured"
        spans = self._group.spans if self._group is not None else None
        self._graphs = StepGraphs(() if self.graphs_off else sizes, self._device, spans)
        tokens = captured_tokens(model.card, config) if captured is None else captured
        tokens = () if self.states is not None else tokens
        self._mixed = StepGraphs(() if self.graphs_off else tokens, self._device, spans)
        most = max((self._mixed_shape(size).size for size in self._mixed.wanted), default=0)
        if model.routing is not None:
            model.routing.room(max((*self._graphs.wanted, *self._mixed.wanted), default=0))
        self._words = torch.zeros(most, dtype=torch.int32, device=self._device)
        self.graphs, self.mixed_graphs = self._graphs.sizes, self._mixed.sizes
        if not (tokens or self.graphs_off):
            worth = "a step of this model keeps the GPU longer than its launches keep the host"
            worth = worth if self.states is None else "layers that keep a state take prompts by their lengths"
            self.mixed_off = worth if config.mixed_graphs else "switched off"

    def _allocate(self, blocks: int, kv_heads: int, head_dim: int) -> Tensor:
        size = blocks, self.block_size, kv_heads, head_dim
        if self._codes is not None:
            return allocate(*size, self._codes, self._device)
        return torch.zeros(*size, dtype=self.model.dtype, device=self._device)

    def capture(self, report: Callable[[int, int], None]) -> None:
        if not self.graphs_off:
            if self.model.ranks is not None:
                self.model.ranks.capture()
            self.reset()
            self._rows.row_slots.fill_(self._rows.dummy_slot)
            with torch.inference_mode(), current_device(self._device):
                sets = (self._mixed, self._mixed_and_draw), (self._graphs, self._decode_and_draw)
                capture(sets, report, self._any_rank)
            self.graphs, self.graphs_off = self._graphs.sizes, self._graphs.off
            self.mixed_graphs = self._mixed.sizes
            self.mixed_off = self.mixed_off or self._mixed.off

    def _any_rank(self, here: bool) -> bool:
        """Whether it is so on any rank; on all of them at once."""
        group = self.model.group
        return here if group is None else bool(group.largest(float(here), self._device))

    def reset(self) -> None:
        self._rows.forget()

    def forget_drawn(self) -> None:
        self._rows.forget_drawn()

    def there(self, row: Row) -> bool:
        """Whether a row's last token is where it was sampled, on the device. Other ranks are told."""
        return row.fed or (row.count == 1 and self._draws is not None and self._rows.knows(row))

    def _prepare(self, plan: StepPlan) -> Inputs:
        rows = plan.rows
        self._copy_blocks(plan.copies, *self.block_caches)
        watch = packed(rows, self._keys) if self._watched([row for row in rows if row.samples]) else None
        decoding = watch is None and all(row.kind is Kind.DECODE and row.count == 1 and self.there(row) for row in rows)
        if self._draws is None:
            self._rows.follow(rows, lambda branch: ())
        else:
            for branch in self._rows.follow(rows, parameter_words):
                self._draws.begin(branch)
        return self._next(rows) if decoding else self._packed(rows, plan.scored_places() if plan.scored else (), watch)

    def _keys(self, layer: int, row: Row, length: int) -> Tensor:
        """`[length, kv_heads, head_dim]`: a layer's of a row's first tokens."""
        table = self._tensor(row.branch.blocks[: blocks_for(length, self.block_size)])
        values, scales = apart(self.k_caches[layer])
        held = values[table] if scales is None else dequantize(values[table], scales[table], self.model.dtype)
        return held.flatten(0, 1)[:length]

    def _begin(self, rows: Sequence[Row]) -> None:
        """The sampler was told when the step was laid out."""

    def _next(self, rows: Sequence[Row]) -> Inputs:
        """A token for each row, which its slot sampled last."""
        count = len(rows)
        size = self._graphs.size_for(count)
        self._rows.line_up(rows, size or count)
        self._rows.send()

        def compute(_: Timer | None) -> Computed:
            if not size:
                return Computed(self._decode(count))
            left = self._graphs.replay(self._decode_and_draw, size)
            return Computed(left.logits, drawn=left.words)

        return Inputs(list(rows), compute, self._rows.row_slots[:count], self._drawn_at[:count], graph=size)

    def _decode(self, count: int) -> Tensor:
        """The logits `[count, vocabulary]` of the first `count` of `row_slots`. What it reads and writes lies at fixed
        places, so it can be captured."""
        self._hear_tokens()
        rows, contexts, row_slots = self._rows, self._contexts[:count], self._rows.row_slots[:count]
        ids, positions, cache_slots = self._ids[:count], self._positions[:count], self._cache_slots[:count]
        written = StepInputs(ids, positions, cache_slots, contexts)
        decode_inputs(written, self._drawn_at[:count], row_slots, rows.state, self.block_size)
        packed = PackedRows(self._starts[: count + 1], contexts, rows.tables, row_slots, short=count)
        states = None if self.states is None else self.states.next(row_slots)
        batch = GpuBatch(self.k_caches, self.v_caches, cache_slots, packed, states=states)
        if self.model.adapters is not None:
            self._adapt(rows.adapters[row_slots].long())
        return self._logits(ids[None], positions[None], 0, batch, None)

    def _decode_and_draw(self, count: int) -> Drawn:
        """A whole decode step, up to its tokens. Rows are sampled as if any had limits: what they ask for is read on
        the device. Alternatives, whose number a step decides, are found in its logits afterwards."""
        return self._drawn(self._decode(count), self._rows.row_slots[:count], self._drawn_at[:count])

    def _drawn(self, logits: Tensor, slots: Tensor, positions: Tensor) -> Drawn:
        if self._draws is None:
            return Drawn(logits, self._rows.lengths)  # which nobody reads
        return Drawn(logits, self._draws.draw(logits, slots, positions, self._last_token))

    def _hear_tokens(self) -> None:
        """Rank 0's last tokens come to the others: it alone draws, and maybe again after a replay."""
        if self._group is not None:
            self._group.broadcast(self._last_token)

    def _packed(self, rows: Sequence[Row], scored: Sequence[int], watch: Watch | None) -> Inputs:
        """Rows of any lengths; the logits of the tokens at the `scored` places come after those that are drawn by."""
        sampling = [row for row in rows if row.samples]
        size = 0 if scored or watch is not None else self._mixed.size_for(room_wanted(rows))
        shape = self._mixed_shape(size) if size else PackedShape.of(rows)
        words = shape.filled(rows, self._rows.dummy_slot)
        self._rows.set_lengths(rows)
        if size:
            self._rows.send()
            send_to(self._words, words)

            def replay(_: Timer | None) -> Computed:
                left = self._mixed.replay(self._mixed_and_draw, size)
                return Computed(left.logits, drawn=left.words)

            return Inputs(sampling, replay, graph=size)
        there = self._rows.send(words)
        assert there is not None
        parts = shape.apart(there)
        if scored:
            parts = parts._replace(kept=torch.cat((parts.kept, self._tensor(scored, torch.int32))))

        states = None if self.states is None else self.states.packed(rows)

        def compute(timer: Timer | None) -> Computed:
            return Computed(self._packed_logits(shape, parts, timer, watch, states))

        return Inputs(sampling, compute, parts.kept_slots, parts.drawn_at, watch=watch)

    def _packed_logits(
        self,
        shape: PackedShape,
        words: PackedWords,
        timer: Timer | None = None,
        watch: Watch | None = None,
        states: StateRows | None = None,
    ) -> Tensor:
        """The logits `[kept, vocabulary]` of rows that fill the shape or less of it. Tokens that belong to no row are
        computed beside the others, and nothing is written of them: what attention leaves them with is unspecified."""
        self._hear_tokens()
        ids, positions, cache_slots = torch.empty(3, shape.tokens, dtype=torch.long, device=self._device)
        contexts = torch.empty(shape.rows, dtype=torch.int32, device=self._device)
        written, sent = StepInputs(ids, positions, cache_slots, contexts), words[:4]
        packed_inputs(written, *sent, self._rows.state, self.block_size)
        rows = PackedRows(words.starts, contexts, self._rows.tables, words.slots, shape.short)
        batch = GpuBatch(self.k_caches, self.v_caches, cache_slots, rows, watch, states)
        if self.model.adapters is not None:  # those of empty rows begin where the next one does
            places = torch.arange(shape.tokens, dtype=torch.int32, device=self._device)
            own = torch.searchsorted(words.starts, places, right=True) - 1
            slots = words.slots[own.clamp(max=shape.rows - 1)]  # tokens of no row come last, and are for nobody
            self._adapt(self._rows.adapters[slots].long())
        return self._logits(ids[None], positions[None], words.kept.long(), batch, timer)

    def _mixed_shape(self, tokens: int) -> PackedShape:
        return PackedShape.captured(tokens, self._rows.dummy_slot, self._most_sampled)

    def _mixed_and_draw(self, tokens: int) -> Drawn:
        """A whole step with prompts of up to so many tokens, whose words lie at a fixed place, up to its tokens."""
        shape = self._mixed_shape(tokens)
        words = shape.apart(self._words)
        return self._drawn(self._packed_logits(shape, words), words.kept_slots, words.drawn_at)
