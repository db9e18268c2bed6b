"""Stages that hand on by the calls of a collective, from one to one: those on GPUs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import torch
from torch import Tensor

from engine.config.parallel import Parallel
from engine.parallel.board import Board
from engine.parallel.group import Collective
from engine.parallel.group.spans import MicroSpans
from engine.parallel.pipeline import Pipeline
from engine.parallel.stages import Stage


class DevicePipeline(Pipeline):
    """Stages on `device`, each on one of its own, that meet in the file `store` as a `Collective` does.

    Whoever sends over NCCL may wait for whoever receives. So that none wait in a ring, the last stage tells rank 0 the
    logits of a step after all of its micro-batches: rank 0 asks for them when it has handed on all of its own.
    """

    def __init__(
        self, parallel: Parallel, board: Board, stage: Stage, backend: str, device: torch.device, store: Path
    ) -> None:
        self._ranks = Collective(board, stage.rank, backend, device, parallel.timeout, store, MicroSpans)
        super().__init__(parallel, board, stage, self._ranks.name)
        self._before, self._after = (stage.rank - 1) % stage.ranks, (stage.rank + 1) % stage.ranks
        self._meet(torch.zeros(1, device=device))

    def begin(self, step: int) -> None:
        super().begin(step)
        self._ranks.begin(step)

    def end(self) -> None:
        self._ranks.end()
        super().end()

    def check(self) -> None:
        self._ranks.check()

    def settle(self, step: int) -> None:
        self._ranks.settle(step)

    def close(self) -> None:
        self._ranks.close()

    def largest(self, value: float, device: torch.device) -> float:
        return self._ranks.largest(value, device)

    def computing(self) -> AbstractContextManager[None]:
        """Within it a micro-batch is computed, the next of the step."""
        spans = self._ranks.spans
        assert isinstance(spans, MicroSpans)
        return spans.computing()

    def send(self, x: Tensor) -> None:
        """To the next stage, from the last to rank 0."""
        self._ranks.send(x, self._after)

    def receive(self, x: Tensor) -> None:
        """x has what the stage before sends, on rank 0 the last."""
        self._ranks.receive(x, self._before)

    def _meet(self, x: Tensor) -> None:
        """Once around: NCCL makes a communicator with the first call between two ranks, which no step is to wait for,
        and for which they find each other in the store."""
        if not self.stage.first:
            self.receive(x)
        self.send(x)
        if self.stage.first:
            self.receive(x)
