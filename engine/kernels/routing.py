"""Triton kernel for what decides which experts a token is sent to: a softmax over all, of which some are kept."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import jit, launch, next_power_of_two, tl


@jit
def route_kernel(
    ids: tl.tensor,  # int64 [tokens, EACH]
    weights: tl.tensor,  # [tokens, EACH]
    logits: tl.tensor,
    stride: tl.tensor,
    EXPERTS: tl.constexpr,
    LANES: tl.constexpr,
    EACH: tl.constexpr,
    KEPT: tl.constexpr,  # a power of two from EACH on
    WHOLE: tl.constexpr,
) -> None:
    await_inputs()
    token = tl.program_id(0).to(tl.int64)
    lane, place = tl.arange(0, LANES), tl.arange(0, KEPT)
    score = tl.load(logits + token * stride + lane, mask=lane < EXPERTS, other=float("-inf")).to(tl.float32)
    share = tl.exp(score - tl.max(score, axis=0))
    share = share / tl.sum(share, axis=0)
    share = tl.where(share == share, share, 0.0)  # what fills a captured step up may be no number
    left = tl.where(lane < EXPERTS, share, -1.0)
    kept = tl.zeros([KEPT], tl.float32)
    chosen = tl.zeros([KEPT], tl.int64)
    for i in tl.static_range(0, EACH):
        best = tl.argmax(left, axis=0)
        kept = tl.where(place == i, tl.max(left, axis=0), kept)
        chosen = tl.where(place == i, best.to(tl.int64), chosen)
        left = tl.where(lane == best, -1.0, left)
    if WHOLE:
        kept = kept / tl.sum(kept, axis=0)
    tl.store(ids + token * EACH + place, chosen, mask=place < EACH)
    tl.store(weights + token * EACH + place, kept, mask=place < EACH)


def route(logits: Tensor, each: int, whole: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The `each` likeliest experts of every token by a float32 softmax over logits [tokens, experts], the likeliest
    first, of equals the first: weights of `dtype`, 1 together if `whole`, and ids int64, both [tokens, each]."""
    tokens, count = logits.shape
    weights = torch.empty(tokens, each, dtype=dtype, device=logits.device)
    ids = torch.empty(tokens, each, dtype=torch.int64, device=logits.device)
    sizes = count, next_power_of_two(count), each, next_power_of_two(each), whole
    if tokens:
        launch(route_kernel, (tokens,), (ids, weights, logits, logits.stride(0), *sizes), num_warps=1)
    return weights, ids
