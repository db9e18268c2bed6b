"""How inputs are split over programs where a product's outputs fill too few of them for the GPU: each stores its sums,
which are added up in a fixed order."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.jit import constant, jit, tl

MERGED_M = constant(4)  # rows, and parts, that a program which adds up parts reads at a time
MERGED_PARTS = constant(8)
MOST_PARTS = 16  # of few tiles: on an H200 products in 24 parts took 1.0 to 1.1 of the time


@jit
def store_product(out, sums, total, bias, place, rows, outputs, part):  # type: ignore[no-untyped-def]
    """A tile's product `total`, with the bias, in `out` [rows, outputs]; or, where there are sums, what this part adds
    to it, in `sums` [parts, rows, outputs]. `place`: the tile's rows and columns, and which of these there are."""
    m, n, filled, within = place
    at = m.to(tl.int64)[:, None] * outputs + n[None, :]
    mask = filled[:, None] & within[None, :]
    if sums is None:
        if bias is not None:
            total += tl.load(bias + n, mask=within, other=0.0).to(tl.float32)[None, :]
        tl.store(out + at, total, mask=mask)
    else:
        tl.store(sums + part * (rows.to(tl.int64) * outputs) + at, total, mask=mask)


@jit
def add_parts(out, sums, bias, count, size, stride, parts, n, within):  # type: ignore[no-untyped-def]
    """A tile's sums, `parts` of them that lie `size` apart, added up in their order into `count` rows of `out`; rows of
    both lie `stride` apart."""
    for first_m in range(0, count, MERGED_M):
        m = first_m + tl.arange(0, MERGED_M)
        mask = (m < count)[:, None] & within[None, :]
        at = m.to(tl.int64)[:, None] * stride + n[None, :]
        source = sums + at
        total = tl.zeros(at.shape, tl.float32)
        for first in range(0, parts, MERGED_PARTS):
            for i in tl.static_range(MERGED_PARTS):
                stored = (m < tl.where(i < parts - first, count, 0))[:, None] & within[None, :]
                # Past the multiprocessor's own cache, which other programs' stores do not reach.
                total += tl.load(source, mask=stored, other=0.0, cache_modifier=".cg")
                source += size
        if bias is not None:
            total += tl.load(bias + n, mask=within, other=0.0).to(tl.float32)[None, :]
        tl.store(out + at, total, mask=mask)


def parts(programs: int, blocks: int, at_once: int) -> int:
    """Over how many programs to split the inputs, of `blocks` blocks, where `programs` tiles cover the outputs.

    As many as run `at_once`, since one program above that would make the GPU wait for it; but from `MOST_PARTS` on no
    more than half of these need, as adding parts up takes longer than they save.
    """
    return max(1, min(at_once // programs, blocks, max(MOST_PARTS, at_once // 2 // programs)))


_arrived: dict[torch.device, Tensor] = {}  # on each device, where launches run one after another


def arrivals(device: torch.device, tiles: int) -> Tensor:
    """Counts of at least so many tiles, all zero, as launches leave them."""
    kept = _arrived.get(device)
    if kept is None or len(kept) < tiles:
        kept = torch.zeros(max(1024, tiles), dtype=torch.int32, device=device)
        if not (kept.is_cuda and torch.cuda.is_current_stream_capturing()):  # else only that graph sets them to zero
            _arrived[device] = kept
    return kept
