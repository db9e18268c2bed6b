"""KV blocks to host memory and back, beside a plain copy of as many bytes: what swap and offloaded prefixes take."""

from __future__ import annotations

from functools import partial

import torch

from engine.bench.gpu.report import Bench, columns
from engine.runner.host_blocks import PinnedBlocks

LAYERS, BLOCK = 32, (8, 16, 128)  # of Llama-3.1-8B in bfloat16: K and V together 64 KiB a block and layer
TINY = 2, (2, 4, 8)
POOL, COPIED = 256, (1, 8, 64)
SHARE = 0.8  # of the plain copy, of 64 blocks


def host_copies(bench: Bench) -> None:
    """Blocks lie scattered in the pool, and together on the host, as after a while of both."""
    layers, shape = TINY if bench.rehearsal else (LAYERS, BLOCK)
    device, pinned = bench.watch.device, bench.watch.device.type == "cuda"
    dtype = torch.float32 if bench.rehearsal else torch.bfloat16
    caches = [torch.zeros(POOL, *shape, dtype=dtype, device=device) for _ in range(2 * layers)]
    host = PinnedBlocks(caches, POOL)
    table = bench.table(
        "KV blocks of Llama-3.1-8B to pinned host memory and back, a plain copy beside them",
        columns("blocks 6d | tokens 6d | MB 8.1f | out ms 7.3f | back ms 7.3f | GB/s 6.1f | of a copy 9.0%"),
    )
    for count in COPIED:
        size = count * host.block_bytes
        there = torch.empty(size, dtype=torch.uint8, pin_memory=pinned)
        here = torch.empty(size, dtype=torch.uint8, device=device)
        out = [(7 * i % POOL, i) for i in range(count)]
        back = [(at, block) for block, at in out]
        leaving, coming = (
            bench.watch.seconds(partial(copy, pairs)) for copy, pairs in ((host.out, out), (host.back, back))
        )
        plain = bench.watch.seconds(partial(here.copy_, there, non_blocking=True))
        share = plain / max(leaving, coming)
        table.add(count, count * shape[1], size / 1e6, 1e3 * leaving, 1e3 * coming, size / coming / 1e9, share)
    bench.goal(f"KV of {count * shape[1]:,} tokens to the host and back, of a plain copy", SHARE, share)
