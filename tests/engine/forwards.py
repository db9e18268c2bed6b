"""Watches every forward of an engine, whether its model computes it or a recorded step is replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from engine import Engine
from engine.runner.runner import known_ids


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
        replay = getattr(self._runner, "_replay", None)
        if replay is not None:

            def watched(rows: Any, runs: Any, timer: Any) -> Any:
                before(torch.tensor([[token for row in rows for token in known_ids(row)]]))
                computed = replay(rows, runs, timer)
                after(computed.logits)
                return computed

            self._runner._replay = watched  # type: ignore[attr-defined]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
        vars(self._runner).pop("_replay", None)
