"""The itemised bill of the device's memory."""

import os

import torch

from engine.core import machine
from engine.core.setup.card import card_of
from engine.models.loading import LoadedModel
from engine.trace.records import MemoryBreakdown


def bill_of(
    model: LoadedModel,
    kv_pool: int,
    activations: int,
    runtime: int,
    graphs: int = 0,
    draft: int = 0,
    worker: int = 0,
    states: int = 0,
) -> MemoryBreakdown:
    """What the device's memory holds after load and warm-up; of a model that is split over GPUs that of rank 0.
    `runtime`: what this process holds on a CPU besides weights, pool and activations; on a GPU it is asked of the
    driver. `draft`: the weights of a draft model; `worker`: those that a prefill worker holds; `states`: those of
    layers that keep one of each request.

    The pool counts with its whole size: on a CPU its pages come only when they are written to. Where the items are
    more than there is, as with a pool larger than the memory, later ones are cut.
    """
    weights = model.card.weight_bytes + worker
    if model.device.type == "cuda":
        weights = model.held_bytes
        torch.cuda.empty_cache()  # what steps took: `activations` counts it
        free, total = torch.cuda.mem_get_info(model.device)
        card = card_of(model.device)
        ours = (card.held_by(os.getpid()) if card else 0) or torch.cuda.memory_reserved(model.device)
        runtime = max(0, ours - weights - draft - kv_pool - states - graphs)
    else:
        total, free = machine.memory()
        ours = machine.resident() + weights - model.held_bytes  # that of other ranks
    bill = {"weights": weights, "draft": draft, "kv_pool": kv_pool, "states": states, "activations": activations}
    bill |= {"graphs": graphs, "runtime": runtime, "other": max(0, total - free - ours)}
    left = total
    for item, size in bill.items():
        bill[item] = min(size, left)
        left -= bill[item]
    return MemoryBreakdown(total, **bill, free=left)
