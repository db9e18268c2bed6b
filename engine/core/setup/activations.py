"""How much memory a step takes beyond the weights and the KV pool."""

import os
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from engine.checkpoints.info import MLP_WIDTHS
from engine.config.specs import EngineConfig
from engine.core.setup.rehearsal import Rehearsal
from engine.memory.rules import step_bytes
from engine.models.loading import LoadedModel
from engine.trace.records import Roof

FEW = 64  # tokens of the smaller of two steps that are played on a CPU
WORTH = 0.15  # seconds that playing them may take


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors that operations under it make: `live` now, and at the `peak`."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        held = {storage.data_ptr() for storage in _storages((args, kwargs))}
        out = func(*args, **(kwargs or {}))
        for storage in _storages(out):
            self._count(storage, held)
        return out

    def _count(self, storage: torch.UntypedStorage, held: set[int]) -> None:
        place, size = storage.data_ptr(), storage.nbytes()
        if not size or place in held or place in self._known:
            return
        self._known.add(place)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, place, size)

    def _forget(self, place: int, size: int) -> None:
        self._known.discard(place)
        self.live -= size


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    """Of all tensors but packed weights, which have none."""
    for value in tree_iter(values):
        if isinstance(value, Tensor) and value.layout is torch.strided:
            yield value.untyped_storage()


def activation_bytes(rehearsal: Rehearsal, model: LoadedModel, config: EngineConfig, roof: Roof | None) -> int:
    """Bytes that one step takes at the most beyond weights and pool: prompts in every slot, of the token budget in all.

    On a GPU as its allocator tells it of that step, with what that takes of the driver beyond the tensors. On a CPU two
    steps of few tokens are played, what their tensors hold is added up operation by operation, and the line through
    both is read at the budget, which gives what the whole step would in a fraction of its time; of a small model the
    whole step is played. Where even few tokens take long, as `roof` tells, see `computed_bytes`.
    """
    rows, length = rehearsal.fill(config.token_budget)
    if not rows:
        return 0
    if model.device.type == "cuda":
        rehearsal.prefill(rows, length)
        torch.cuda.synchronize(model.device)
        torch.cuda.empty_cache()
        live, held = torch.cuda.memory_allocated(model.device), torch.cuda.memory_reserved(model.device)
        torch.cuda.reset_peak_memory_stats(model.device)
        rehearsal.prefill(rows, length)
        torch.cuda.synchronize(model.device)
        most_held = torch.cuda.max_memory_reserved(model.device)
        return max(0, torch.cuda.max_memory_allocated(model.device) - live, most_held - held)
    tokens = rows * length
    rate = roof.operations / (2 * max(model.card.body_parameters, 1)) if roof is not None else 0.0  # tokens a second
    if min(tokens, 3 * FEW) > WORTH * rate or os.environ.get("TRITON_INTERPRET") == "1":
        return computed_bytes(model, tokens, rows)
    if tokens <= max(3 * FEW, WORTH / 6 * rate):
        return measured_bytes(rehearsal, rows, length)
    small = max(1, min(rows, round(rows * FEW / tokens)))
    few = max(1, min(length, FEW // small))
    more = (2 * small, few) if 2 * small <= rows else (small, min(length, 2 * few))
    points = [(r * n, measured_bytes(rehearsal, r, n)) for r, n in ((small, few), more)]
    (t0, low), (t1, high) = points
    return round(low + max(0, high - low) / (t1 - t0) * (tokens - t0))


def measured_bytes(rehearsal: Rehearsal, rows: int, length: int) -> int:
    """The most that the tensors of one step hold, on a CPU: `rows` prompts of `length` tokens. What a library takes and
    gives back within one operation is not seen."""
    with LiveBytes() as counter:
        rehearsal.prefill(rows, length)
    return counter.peak


def computed_bytes(model: LoadedModel, tokens: int, rows: int) -> int:
    """An estimate from shapes alone: see `step_bytes`."""
    card, config = model.card, model.module.config.get_text_config()
    widths = next((v for k in MLP_WIDTHS if (v := getattr(config, k, None))), 0)
    wide = max(map(int, widths if isinstance(widths, (list, tuple)) else (widths,)))  # some say one a layer
    if card.experts:
        wide = card.active_experts * (getattr(config, "moe_intermediate_size", None) or wide)
    return step_bytes(tokens, rows, card.hidden, card.head_dim, wide, card.vocabulary, model.dtype.itemsize)
