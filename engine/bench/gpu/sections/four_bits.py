"""Products with the large model's layers in nf4: bitsandbytes', and those of our kernel, by the tiling that ships and
by a few others."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.bench.gpu.report import Bench, Table, columns
from engine.bench.gpu.sections.quantized import LINEARS
from engine.bench.gpu.stopwatch import one_after_another, sets_beyond_cache
from engine.config.schemes import BLOCK, missing
from engine.kernels.dependent_launch import interpreted, step_of
from engine.kernels.products.four_bits import Tiling, four_bit_matmul, table_of, tiling

ROWS = (1, 8, 32)
TINY = ((256, 64),)  # inputs and outputs of a rehearsal's layer
MOST = 16  # sets of a layer's weights
DTYPE = torch.float16 if interpreted else torch.bfloat16  # the interpreter's bfloat16 is wrong (Triton 3.9)
WITHIN = 1e-2  # of its size: two roundings to bfloat16, of weights and of the product, are some 3e-3 together
# Outputs a tile, blocks a warp at once, warps, stages, by rows a tile; the shipped ones are measured before.
OTHERS = {
    8: ((16, 2, 4, 4), (32, 2, 8, 4), (32, 2, 4, 4), (64, 1, 4, 4), (32, 2, 4, 3), (16, 4, 4, 4)),
    32: ((32, 1, 8, 3), (64, 1, 8, 3), (32, 1, 4, 3), (64, 1, 4, 4), (16, 1, 8, 3)),
}

Weights = tuple[Tensor, Any]  # packed codes uint8 [weights / 2, 1] and their QuantState


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's weights, random, as often as no cache holds them."""

    inputs: int
    outputs: int
    sets: Sequence[Weights]

    @property
    def read(self) -> float:
        """Bytes of codes and scales."""
        return self.inputs * self.outputs * (1 / 2 + 4 / BLOCK)

    def expected(self, x: Tensor) -> Tensor:
        """The product with the first set, by the weights as bitsandbytes makes floats of them."""
        from bitsandbytes.functional import dequantize_4bit

        packed, state = self.sets[0]
        return x.float() @ dequantize_4bit(packed, state).float().t()


@dataclass(frozen=True, slots=True)
class Case:
    """A layer, rows of x and what their product with its first set should be."""

    layer: Layer
    x: Tensor
    expected: Tensor
    table: Tensor  # of the codes

    @property
    def usual(self) -> Tiling:
        return tiling(len(self.x), self.layer.outputs)

    def product(self, weights: Weights, tiles: Tiling) -> Tensor:
        """Launched as in a step of so many tokens: what it fetches before its input is there counts."""
        with step_of(len(self.x)):
            return four_bit_matmul(self.x, weights[0], weights[1].absmax, self.table, tiles=tiles)

    def others(self) -> list[Tiling]:
        block_m = self.usual.block_m
        return [tiles for each in OTHERS[block_m] if (tiles := Tiling(block_m, *each)) != self.usual]


def random_layer(bench: Bench, inputs: int, outputs: int) -> Layer:
    from bitsandbytes.functional import quantize_4bit

    bare = Layer(inputs, outputs, ())
    count = sets_beyond_cache(bench.watch, bare.read, 2 if bench.rehearsal else MOST)
    sets = []
    for _ in range(count):
        weight = torch.randn(outputs, inputs, device=bench.watch.device, dtype=DTYPE) / 64
        sets.append(quantize_4bit(weight, blocksize=BLOCK, compress_statistics=False, quant_type="nf4"))
    return replace(bare, sets=sets)


def products(bench: Bench) -> None:
    """Each layer's product at few rows, by both; then by other tilings, while there is time."""
    table = bench.table(
        "nf4 products of Llama-3.1-8B's layers, other layers' weights in the cache before each",
        columns(
            "rows 4d | inputs 7d | outputs 7d | bitsandbytes µs 15.1f | ours µs 8.1f | bound µs 8.1f | "
            "ours of copy 12.0% | bitsandbytes / ours 19.2f | results 24"
        ),
    )
    if lacking := missing("nf4"):
        table.say(f"not measured: {lacking}")
        return
    layers = [random_layer(bench, *shape) for shape in (TINY if bench.rehearsal else LINEARS)]
    codes = table_of(tuple(layers[0].sets[0][1].code.tolist()), DTYPE, bench.watch.device)
    cases = [_case(layer, rows, codes) for rows in ((2,) if bench.rehearsal else ROWS) for layer in layers]
    if not interpreted:
        _compile(cases)
    found: list[tuple[Case, dict[Tiling, float]]] = []
    for case in cases:
        if bench.fits(0 if bench.rehearsal else 1, table, f"{len(case.x)} rows of {case.layer.inputs}"):
            found.append((case, _compare(bench, table, case)))
    _try_tilings(bench, found)


def _case(layer: Layer, rows: int, codes: Tensor) -> Case:
    x = torch.randn(rows, layer.inputs, device=codes.device, dtype=DTYPE)
    return Case(layer, x, layer.expected(x), codes)


def _compile(cases: Sequence[Case]) -> None:
    """All tilings, of which each takes a core for seconds, side by side; a failure is told where it is timed."""
    first = {tiles: case for case in reversed(cases) for tiles in (case.usual, *case.others())}

    def launch(tiles: Tiling) -> None:
        with suppress(Exception):
            first[tiles].product(first[tiles].layer.sets[0], tiles)

    with ThreadPoolExecutor() as threads:
        list(threads.map(launch, first))


def _compare(bench: Bench, table: Table, case: Case) -> dict[Tiling, float]:
    """A row of the table: one product by both. Seconds of the shipped tiling."""
    from bitsandbytes import matmul_4bit

    def theirs(weights: Weights) -> Tensor:
        product: Tensor = matmul_4bit(case.x, weights[0], quant_state=weights[1])
        return product

    layer, before = case.layer, one_after_another(bench.watch, case.layer.sets, theirs)
    seconds, error = _timed(bench, table, case, case.usual)
    bound = layer.read / bench.watch.bandwidth
    times = 1e6 * before, seconds and 1e6 * seconds, 1e6 * bound
    results = "did not run" if seconds is None else "right" if error < WITHIN else f"WRONG by {error:.2g}"
    shares = seconds and bound / seconds, seconds and before / seconds
    table.add(len(case.x), layer.inputs, layer.outputs, *times, *shares, results)
    return {} if seconds is None else {case.usual: seconds}


def _timed(bench: Bench, table: Table, case: Case, tiles: Tiling) -> tuple[float | None, float]:
    """Seconds of our product, and by what share of its size it is off; None where it cannot be launched."""
    sets = case.layer.sets
    try:
        error = float((case.product(sets[0], tiles).float() - case.expected).norm() / case.expected.norm())
        return one_after_another(bench.watch, sets, lambda weights: case.product(weights, tiles)), error
    except Exception as failure:  # too large for this GPU's shared memory, say
        table.say(f"{tiles}: {type(failure).__name__}: {str(failure)[:100]}")
        return None, 0.0


def _try_tilings(bench: Bench, found: Sequence[tuple[Case, dict[Tiling, float]]]) -> None:
    table = bench.table(
        "Tilings of nf4 products: the fastest of those tried beside the shipped",
        columns("rows 4d | inputs 7d | outputs 7d | shipped µs 10.1f | best µs 9.1f | × faster 8.2f | tried 5d | 86"),
    )
    for case, times in found:
        if not times:
            continue
        for tiles in case.others()[: 1 if bench.rehearsal else None]:
            if not bench.rehearsal and bench.left < 1:
                table.say(f"{len(case.x)} rows of {case.layer.inputs}: not all tried, the section's time is over")
                break
            seconds, error = _timed(bench, table, case, tiles)
            if seconds is not None and error < WITHIN:
                times[tiles] = seconds
            elif seconds is not None:
                table.say(f"{tiles}: WRONG by {error:.2g}")
        best = min(times, key=times.__getitem__)
        shipped = times[case.usual]
        figures = 1e6 * shipped, 1e6 * times[best], shipped / times[best]
        table.add(len(case.x), case.layer.inputs, case.layer.outputs, *figures, len(times), str(best))
        table.rows[-1]["all"] = {str(tiles): 1e6 * seconds for tiles, seconds in times.items()}
    if not found:
        table.say("there was nothing to try")
