"""How much memory a step takes beyond the weights and the KV pool."""

import os

import torch

from engine.checkpoints.info import MLP_WIDTHS
from engine.config.specs import EngineConfig
from engine.core.setup.rehearsal import Rehearsal
from engine.memory.live_bytes import LiveBytes
from engine.memory.rules import step_bytes
from engine.models.loading import LoadedModel
from engine.trace.records import Roof

FEW = 64  # tokens of the smaller of two steps that are played on a CPU
WORTH = 0.15  # seconds that playing them may take


def activation_bytes(rehearsal: Rehearsal, model: LoadedModel, config: EngineConfig, roof: Roof | None) -> int:
    """Bytes that one step takes at the most beyond weights and pool: prompts in every slot, of the token budget in all.

    On a GPU as its allocator tells it of that step, with what that takes of the driver beyond the tensors; of stages,
    through which it goes in parts, also of a prompt of so many tokens, which is one part. On a CPU two
    steps of few tokens are played, what their tensors hold is added up operation by operation, and the line through
    both is read at the budget, which gives what the whole step would in a fraction of its time; of a small model the
    whole step is played. Where even few tokens take long, as `roof` tells, see `computed_bytes`.
    """
    rows, length = rehearsal.fill(config.token_budget)
    if not rows:
        return 0
    if model.device.type == "cuda":
        whole = [(rows, length)] + [rehearsal.fill(config.token_budget, 1)] * (len(model.stage_layers) > 0)
        return max(_allocated(rehearsal, model.device, *step) for step in whole)
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


def _allocated(rehearsal: Rehearsal, device: torch.device, rows: int, length: int) -> int:
    """What such a step takes of a GPU that has played it before."""
    rehearsal.prefill(rows, length)
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    live, held = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    torch.cuda.reset_peak_memory_stats(device)
    rehearsal.prefill(rows, length)
    torch.cuda.synchronize(device)
    most_held = torch.cuda.max_memory_reserved(device)
    return max(0, torch.cuda.max_memory_allocated(device) - live, most_held - held)


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
