"""A stage of a pipeline: its layers over the paged cache of their own, micro-batch after micro-batch."""

import time
from functools import partial

import torch
from torch import Tensor

from engine.config.specs import EngineConfig
from engine.kernels.cpu import calls as native
from engine.models.attention import Batch, Timer
from engine.models.loading import LoadedModel
from engine.parallel.pipeline import SharedPipeline
from engine.parallel.stages import kept, micro_batches
from engine.runner.paged_cpu import PagedRunner
from engine.runner.recorded_steps import StepInputs
from engine.runner.runner import Computed, Inputs
from engine.scheduler.plan import StepPlan


class StagedRunner(PagedRunner):
    """All stages go through the same micro-batches in the same order. Rank 0, whose step it is, hands on those that it
    computed until none is left, then takes the logits of each."""

    def __init__(self, model: LoadedModel, config: EngineConfig, blocks: int, pipeline: SharedPipeline) -> None:
        super().__init__(model, config, blocks)
        self._pipeline, self._passage = pipeline, pipeline.passage
        self._first, self._hands_on = pipeline.stage.first, not pipeline.stage.last

    def _room(self, tokens: int) -> Tensor | None:
        if self._first:
            return None
        noise = torch.randn(tokens, self.model.card.hidden, generator=torch.Generator().manual_seed(0))
        return noise.to(self.model.dtype)

    def _arrives(self, inputs: StepInputs, count: int) -> None:
        if inputs.hidden is not None:
            self._passage.arrived = inputs.hidden[None, :count]

    def _logits(self, ids: Tensor, positions: Tensor, keep: Tensor | int, batch: Batch, timer: Timer | None) -> Tensor:
        """Of a stage but the last, `[tokens, hidden]` of all tokens, which go on."""
        try:
            logits = super()._logits(ids, positions, 0 if self._hands_on else keep, batch, timer)
            leaving = self._passage.leaving
            if not self._hands_on or leaving is None:
                return logits
            return leaving.flatten(0, 1)
        finally:
            self._passage.arrived = self._passage.leaving = None

    def _prepare(self, plan: StepPlan) -> Inputs:
        self._copy_blocks(plan.copies, *self.block_caches)
        rows = plan.rows
        sampling = [row for row in rows if row.samples]
        parts = micro_batches(plan, self._pipeline.micro_batches)
        replayed = not plan.scored and all(
            self._replays(part.rows, sum(row.samples for row in part.rows)) for part in parts
        )
        tokens = sum(row.count for row in rows) if replayed else 0
        return Inputs(sampling, partial(self._all_stages, parts), graph=tokens)

    def follow(self, plan: StepPlan) -> None:
        with torch.inference_mode():
            if plan.swap_out or plan.swap_in:
                self._swap(plan)
            self._copy_blocks(plan.copies, *self.block_caches)
            for i, part in enumerate(micro_batches(plan, self._pipeline.micro_batches)):
                self._own_layers(i, part, None)

    def _own_layers(self, i: int, part: StepPlan, timer: Timer | None) -> None:
        """This stage's layers of a micro-batch, from what arrives to what is handed on."""
        channel, begun = self._pipeline.channel, time.monotonic_ns()
        inputs = super()._prepare(part)
        if not self._first:
            arrived = channel.receive(i)
            begun = time.monotonic_ns()
            self._passage.arrived = arrived[None]
            if self._recorded is not None:
                self._inputs.arrived = arrived
        made = inputs.compute(timer).logits
        channel.computed(i, begun)
        channel.send(i, made)

    def _all_stages(self, parts: list[StepPlan], timer: Timer | None) -> Computed:
        for i, part in enumerate(parts):
            self._own_layers(i, part, timer)
        each = [self._pipeline.channel.receive(i).split(kept(part)) for i, part in enumerate(parts)]
        drawn, scored = (torch.cat(some) for some in zip(*each))
        logits = torch.cat([drawn, scored]) if len(scored) else drawn
        return Computed(logits, partial(native.greedy, drawn) if native.computes(logits.dtype) else None)
