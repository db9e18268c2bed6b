"""What every runner does with a step: prepare, forward, sample. How rows and cache are laid out is its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config import EngineConfig
from engine.decoding.sampler import Sampler
from engine.models.attention import Batch, Timer
from engine.models.launched import Clock, Launched, to_device
from engine.models.loading import LoadedModel
from engine.plan import Row, StepPlan
from engine.trace.records import Kind


@dataclass(slots=True)
class Inputs:
    """What the model is given: `ids` and `positions` `[sequences, tokens]`, which tokens' logits it keeps, the batch.

    `sampling` are the rows that sample; `picked` is where each one's logits are among those kept, None when they are
    in that order already.
    """

    ids: Tensor
    positions: Tensor
    keep: Tensor | int
    batch: Batch
    sampling: list[Row]
    picked: Tensor | None = None


class Runner(ABC):
    """One model and its KV cache. A sampled token is also kept on the device by slot, so that the next step can be
    launched before it is read."""

    def __init__(self, model: LoadedModel, config: EngineConfig) -> None:
        self.model = model
        self._device = model.device
        self._last_token = torch.zeros(config.max_running, dtype=torch.long, device=self._device)
        self._sampler = Sampler(config.max_running, model.card.vocabulary, self._device)

    @property
    def graphs(self) -> tuple[int, ...]:
        """The numbers of rows for which decode steps are captured as CUDA graphs."""
        return ()

    @property
    def graphs_off(self) -> str:
        """Why there are none; empty where there are, or where there could not be any."""
        return ""

    def capture(self, report: Callable[[int, int], None]) -> None:  # noqa: B027
        """Captures what is replayed later; `report` hears how many captures are done, of how many. May raise what
        `report` raises."""

    @abstractmethod
    def _prepare(self, plan: StepPlan) -> Inputs:
        """Lays out the step's rows, and the cache for them."""

    def launch(self, plan: StepPlan) -> Launched:
        """Starts a step; returns before the device is done (on a CPU, when it is)."""
        begun = Clock()
        launched = Launched(plan, begun)
        with torch.inference_mode(), self._current_device():
            inputs = self._prepare(plan)
            timer = Timer() if self._device.type == "cpu" else None
            prepared = Clock()
            logits = self.model.module(
                input_ids=inputs.ids,
                position_ids=inputs.positions,
                use_cache=False,
                logits_to_keep=inputs.keep,
                batch=inputs.batch,
                timer=timer,
            ).logits.flatten(0, 1)
            forwarded = Clock()
            if timer is not None:
                launched.attention = timer.seconds
            for row in plan.rows:
                # A fed row's branch began when its own last token was sampled.
                if row.first == row.reused and row.kind is Kind.PREFILL and not row.fed:
                    self._sampler.begin(row.branch)
            if inputs.sampling:
                if inputs.picked is not None:
                    logits = logits.index_select(0, inputs.picked)
                sampled = self._sampler(logits, [row.branch for row in inputs.sampling])
                self._last_token.index_copy_(0, self._tensor([row.slot for row in inputs.sampling]), sampled.tokens)
                launched.keep(sampled)
        done = Clock()
        launched.seconds = {"prepare": prepared - begun, "forward": forwarded - prepared, "sample": done - forwarded}
        return launched

    def _current_device(self) -> AbstractContextManager[object]:
        """Triton launches on the thread's current GPU, which need not be the model's."""
        return torch.cuda.device(self._device) if self._device.type == "cuda" else nullcontext()

    def _feed(self, ids: Tensor, at: Sequence[int], slots: Sequence[int]) -> None:
        """Puts the slots' last tokens at these places of the flat `ids`: they were sampled but not read yet."""
        if at:
            ids[self._tensor(at)] = self._last_token[self._tensor(slots)]

    def _tensor(self, values: Sequence[int], dtype: torch.dtype = torch.long) -> Tensor:
        return to_device(values, self._device, dtype)


def known_ids(row: Row) -> list[int]:
    """The row's token ids; a token that is still being sampled is 0 for now."""
    tokens = row.branch.tokens
    if not row.fed:
        return tokens[row.first : row.first + row.count]
    return tokens[row.first : row.first + row.count - 1] + [0]
