"""Watches every forward of an engine, whether its model computes it or a recorded step is replayed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine import Engine
from engine.models.attention import Timer
from engine.runner.runner import Computed, Inputs
from engine.scheduler.plan import StepPlan


def nothing(_: Tensor) -> None:
    pass


class Watched:
    """From now until `remove`, `before` is given the ids of each forward, and may raise; `after` its logits, of the
    rows that sample. Both on the engine's thread. Replays are those of the runner that the engine has now."""

    def __init__(
        self, engine: Engine, before: Callable[[Tensor], None] = nothing, after: Callable[[Tensor], None] = nothing
    ) -> None:
        module, self._runner = engine.model.module, engine.runner
        self._handles = [
            module.register_forward_pre_hook(lambda _m, _a, given: before(given["input_ids"]), with_kwargs=True),
            module.register_forward_hook(lambda _m, _a, out: after(out.logits[0])),
        ]
        prepare = self._runner._prepare

        def watched(plan: StepPlan) -> Inputs:
            inputs = prepare(plan)
            if inputs.graph:
                replay = inputs.compute

                def compute(timer: Timer | None) -> Computed:
                    before(torch.tensor([[token for row in plan.rows for token in row.ids()]]))
                    computed = replay(timer)
                    after(computed.logits)
                    return computed

                inputs.compute = compute
            return inputs

        self._runner._prepare = watched  # type: ignore[method-assign]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        vars(self._runner).pop("_prepare", None)
