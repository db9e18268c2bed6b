"""Host memory for preempted requests and offloaded prefixes: how many blocks, and how long copies take."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch

from engine.config.specs import EngineConfig, InvalidInput
from engine.core import machine
from engine.core.setup.kv_budget import rank_token_bytes
from engine.runner.host_blocks import HostBlocks
from engine.runner.runner import Runner, on_gpu_path
from engine.scheduler.block_pool import blocks_for
from engine.scheduler.host_memory.swap_cost import SwapCost
from engine.trace.records import ModelCard, Roof
from engine.trace.work import Weights

SHARE = 4  # without a size that was asked for, at most one part in so many of what is free
PINNED = 4 << 30  # bytes, and at most so many where it is pinned, which takes a second for some GiB
MEASURED = 16  # blocks of the larger of two copies
ROUNDS = 5  # of which the fastest counts
POOLS = 4  # for offloaded prefixes as much as so many pools


@dataclass(frozen=True, slots=True)
class HostMemory:
    """`blocks` of it, none where nothing is copied there; `cost` decides between swap and recompute, None where all is
    swapped; `rate` in bytes a second."""

    blocks: int = 0
    cost: SwapCost | None = None
    rate: float = 0.0


def prepare_host_memory(runner: Runner, config: EngineConfig, blocks: int, roof: Roof | None) -> HostMemory:
    """Gives a runner with a pool of so many blocks the host memory that its config asks for, and measures it. Raises
    InvalidInput where there is not so much."""
    if not config.uses_host:
        return HostMemory()
    size = sum(cache[0].numel() * cache.itemsize for cache in runner.block_caches)
    free, wanted, own = machine.memory()[1], config.swap_memory, size
    if runner.model.ranks is not None:  # each keeps its part of a block: `size` is that of all
        parts = rank_token_bytes(runner.model, config, None)
        size = size * sum(parts) // parts[0]
    if wanted is not None and not size <= wanted <= free:
        raise InvalidInput(
            f"swap_memory={wanted:,}: a block takes {size:,} bytes, and {free:,} bytes of host memory are free; give "
            f"something between, or None"
        )
    count = wanted // size if wanted is not None else _most(runner, config, blocks, size, free)
    if count < 1:
        asked = f"preemption={config.preemption!r}" if config.swaps else "offload_prefixes=True"
        raise InvalidInput(f"{asked}: no host memory is free for a block of {size:,} bytes")
    runner.keep_host_blocks(count)
    assert runner.host_blocks is not None
    call, block = _seconds(runner.host_blocks, runner.model.device, min(blocks, count, MEASURED))
    cost = swap_cost(call, block, runner.model.card, roof) if config.preemption == "auto" else None
    return HostMemory(count, cost, own / block)


def _most(runner: Runner, config: EngineConfig, blocks: int, size: int, free: int) -> int:
    """Blocks for all that can be preempted: nobody is admitted while one that was preempted waits. And for prefixes."""
    context, needed = runner.model.card.context, POOLS * blocks if config.offload_prefixes else 0
    if config.swaps:
        needed += config.slots * blocks_for(context, config.block_size) if context else blocks
    limit = min(free // SHARE, PINNED) if on_gpu_path(runner.model.device) else free // SHARE
    return min(needed, limit // size)


def swap_cost(call: float, block: float, card: ModelCard, roof: Roof | None) -> SwapCost | None:
    """From the seconds of a copy and of each block of it; None without a roof to tell what computing takes."""
    if roof is None:
        return None
    weights = Weights.of(card)
    token = 2 * (weights.dense + weights.expert * weights.share) / roof.operations
    return SwapCost(call, block, token, 4 * card.heads * card.head_dim * card.layers / roof.operations)


def _seconds(host: HostBlocks, device: torch.device, most: int) -> tuple[float, float]:
    """Of a copy in itself, and of each block of it: the line through the times of one block and of `most`."""
    one, many = (min(_copied(host, device, n) for _ in range(ROUNDS)) for n in (1, most))
    block = max((many - one) / max(most - 1, 1), 1e-9) if most > 1 else one
    return max(one - block, 0.0), block


def _copied(host: HostBlocks, device: torch.device, count: int) -> float:
    """Seconds of the slower way of so many blocks: out, or back to where they were."""
    pairs, taken = [(i, i) for i in range(count)], []
    for copy in (host.out, host.back):
        begun = time.perf_counter()
        with torch.inference_mode():
            copy(pairs)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - begun)
    return max(taken)
