"""A stage of a pipeline on a GPU: its layers over the paged cache of their own, micro-batch after micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from engine.config.specs import EngineConfig
from engine.models.attention import Batch, Timer
from engine.models.loading import LoadedModel
from engine.parallel.device_pipeline import DevicePipeline
from engine.parallel.stages import kept, micro_batches
from engine.runner.cuda_graphs import Drawn
from engine.runner.paged_gpu import GpuRunner
from engine.runner.runner import Computed, Inputs
from engine.scheduler.plan import StepPlan


class StagedGpuRunner(GpuRunner):
    """All stages go through the same micro-batches in the same order. Rank 0, whose step it is, looks up the tokens and
    draws from the logits that the last stage tells it: no other needs to know a token.

    A graph is one micro-batch through this stage's layers, from a fixed place to which others' activations come; what
    is exchanged lies between graphs. What one leaves is handed on, or copied, before the next is replayed.
    """

    def __init__(
        self, model: LoadedModel, config: EngineConfig, blocks: int, captured: tuple[int, ...], pipeline: DevicePipeline
    ) -> None:
        super().__init__(model, config, blocks, captured)
        self._pipeline, self._passage = pipeline, pipeline.passage
        self._first, self._hands_on = pipeline.stage.first, not pipeline.stage.last
        most = max((*self._graphs.wanted, *self._mixed.wanted), default=0)
        self._fixed = self._hidden(0 if self._first else most)
        self._arrived = self._fixed  # `[tokens or more, hidden]` from which the next micro-batch is computed

    def _hidden(self, tokens: int) -> Tensor:
        return torch.zeros(tokens, self.model.card.hidden, dtype=self.model.dtype, device=self._device)

    def capture(self, report: Callable[[int, int], None]) -> None:
        self._arrived = self._fixed
        super().capture(report)

    def _logits(self, ids: Tensor, positions: Tensor, keep: Tensor | int, batch: Batch, timer: Timer | None) -> Tensor:
        """Of a stage but the last, `[tokens, hidden]` of all tokens, which go on."""
        if not self._first:
            self._passage.arrived = self._arrived[None, : ids.shape[1]]
        try:
            logits = super()._logits(ids, positions, 0 if self._hands_on else keep, batch, timer)
            leaving = self._passage.leaving
            return leaving.flatten(0, 1) if self._hands_on and leaving is not None else logits
        finally:
            self._passage.arrived = self._passage.leaving = None

    def _drawn(self, logits: Tensor, slots: Tensor, positions: Tensor) -> Drawn:
        """Whoever has the logits of a micro-batch does not draw."""
        return Drawn(logits, self._rows.lengths)  # which nobody reads

    def _prepare(self, plan: StepPlan) -> Inputs:
        """Micro-batches are laid out one by one: each finds slots' state as the one before left it."""
        self._copy_blocks(plan.copies, *self.block_caches)
        parts = micro_batches(plan, self._pipeline.micro_batches)

        def compute(_: Timer | None) -> Computed:
            made, sizes = zip(*map(self._own_layers, parts))
            inputs.graph = sum(sizes) if all(sizes) else 0
            if self._first:
                return self._told(parts)
            if not self._hands_on:
                self._tell(torch.cat(made))
            return Computed(made[-1])

        inputs = Inputs([row for row in plan.rows if row.samples], compute)
        return inputs

    def _own_layers(self, part: StepPlan) -> tuple[Tensor, int]:
        """This stage's layers of a micro-batch, from what arrives to what is handed on, which is returned: of the last
        stage the logits. And the size of the graph that was replayed."""
        inputs = super()._prepare(part)
        tokens = sum(row.count for row in part.rows)
        if not self._first:
            self._arrived = self._fixed if inputs.graph else self._hidden(tokens)
            self._pipeline.receive(self._arrived[:tokens])
        with self._pipeline.computing():
            made = inputs.compute(None).logits
            made = made[: tokens if self._hands_on else sum(kept(part))]
            if inputs.graph and not self._hands_on:
                made = made.clone()
        if self._hands_on:
            self._pipeline.send(made.to(self.model.dtype))
        return made, inputs.graph

    def _tell(self, logits: Tensor) -> None:
        """Rank 0 hears of all micro-batches at once, of a step that draws nothing too: it is never ahead of a stage."""
        self._pipeline.send(logits.to(self.model.dtype) if len(logits) else self._no_logits())

    def _told(self, parts: Sequence[StepPlan]) -> Computed:
        """Rank 0 has them: those that are drawn from, then those that are scored."""
        counts = [count for part in parts for count in kept(part)]
        if not sum(counts):
            self._pipeline.receive(none := self._no_logits())
            return Computed(none[:0])
        size = sum(counts), self.model.card.vocabulary
        logits = torch.empty(*size, dtype=self.model.dtype, device=self._device)
        self._pipeline.receive(logits)
        each = logits.split(counts)
        return Computed(torch.cat([*each[::2], *each[1::2]]) if any(counts[1::2]) else logits)

    def _no_logits(self) -> Tensor:
        return torch.zeros(1, self.model.card.hidden, dtype=self.model.dtype, device=self._device)
