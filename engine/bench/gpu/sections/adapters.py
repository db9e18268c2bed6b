"""What adapters add to a large model's joined products, beside those products and the bytes that both read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn

from engine.bench.gpu.report import Bench, Table, columns
from engine.bench.gpu.stopwatch import one_after_another, sets_beyond_cache
from engine.kernels.dependent_launch import interpreted
from engine.kernels.products.adapters import Tiled, adapt, lay_out

ADAPTERS, RANK = 8, 16
LAYERS = {"q, k, v": (4096, (4096, 1024, 1024)), "gate, up": (4096, (14_336, 14_336)), "down": (14_336, (4096,))}
TINY = {"q, k, v": (128, (64, 32, 32))}
ROWS = (1, 16, 64, 512)
MOST = 8  # sets of a layer's matrices
DTYPE = torch.float16 if interpreted else torch.bfloat16  # the interpreter's bfloat16 is wrong (Triton 3.9)


def adapters(bench: Bench) -> None:
    """Rows of eight adapters in turn, and of one: few rows are bound by launches, many by the matrices of all."""
    table = bench.table(
        f"adapters of Llama-3.1-8B's layers, {ADAPTERS} of rank {RANK}, other layers' in the cache before each",
        columns(
            "layers 9 | rows 4d | adapters 8d | µs 8.1f | bound µs 8.1f | of copy 8.0% | product µs 10.1f | "
            "of product 10.2f"
        ),
    )
    for name, (depth, widths) in (TINY if bench.rehearsal else LAYERS).items():
        _layer(bench, table, name, depth, widths)


def _layer(bench: Bench, table: Table, name: str, depth: int, widths: Sequence[int]) -> None:
    device, rehearsal, total = bench.watch.device, bench.rehearsal, sum(widths)
    each = RANK * (len(widths) * depth + total) * DTYPE.itemsize  # bytes of one adapter

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, device=device, dtype=DTYPE) / 64

    count = sets_beyond_cache(bench.watch, ADAPTERS * each, 2 if rehearsal else MOST)
    lanes = ADAPTERS, len(widths) * RANK, depth
    sets = [lay_out(drawn(*lanes), drawn(ADAPTERS, total, RANK), list(widths)) for _ in range(count)]
    weight = drawn(total, depth)
    for rows, several in product((2,) if rehearsal else ROWS, (1, ADAPTERS)):
        if not bench.fits(0 if rehearsal else 0.3, table, f"{name}, {rows} rows"):
            return
        x, out, ids = drawn(rows, depth), drawn(rows, total), torch.arange(rows, device=device) % several + 1
        dense = bench.watch.seconds(partial(nn.functional.linear, x, weight))

        def add(one: Tiled, out: Tensor = out, x: Tensor = x, ids: Tensor = ids) -> None:
            adapt(out, x, one, ids)

        seconds = one_after_another(bench.watch, sets, add)
        read = min(rows, several) * each + rows * (depth + 2 * total) * DTYPE.itemsize
        bound = read / bench.watch.bandwidth
        times = 1e6 * seconds, 1e6 * bound, bound / seconds, 1e6 * dense, seconds / dense
        table.add(name, rows, several, *times)
