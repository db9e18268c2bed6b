"""AWQ's products of a large model's layers: by the bytes that they read, beside dense ones, and by other tilings."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear

from engine.bench.gpu.report import Bench, columns
from engine.bench.gpu.sections.decode import free_device_memory
from engine.bench.gpu.sections.quantized import GROUP, LINEARS
from engine.bench.gpu.stopwatch import one_after_another, sets_beyond_cache
from engine.bench.rounding import round_to_nearest
from engine.kernels.dependent_launch import interpreted, step_of
from engine.kernels.products.awq_matmul import Tiling, awq_matmul, tiling
from engine.models.quantization.awq_tiles import tiled

GOAL = 0.7  # of the copy bandwidth
ROWS = (1, 8, 16, 32, 64, 128)
FEW = 16  # rows up to which the packed weights are what a product costs
TINY = ((128, 64),)  # inputs and outputs of a rehearsal's layer
COMPILING = 5.0  # seconds
MOST = 16  # sets of a layer's weights
# By rows a tile; the shipped ones are measured before. Of those that spill no register on sm_90 (Triton 3.6).
OTHERS = {
    8: ((16, 4, 4, 2, 4), (32, 2, 2, 2, 4), (16, 4, 4, 2, 5), (32, 4, 4, 1, 4), (16, 2, 2, 2, 4), (16, 4, 4, 1, 6)),
    16: ((32, 4, 4, 2, 3), (64, 1, 4, 2, 4), (16, 4, 4, 2, 4), (32, 2, 2, 2, 4), (64, 1, 4, 1, 4)),
    32: ((32, 4, 4, 1, 3), (64, 1, 4, 2, 3), (32, 2, 2, 1, 4), (64, 1, 4, 1, 4), (128, 1, 4, 1, 3)),
    64: ((64, 1, 4, 1, 3), (64, 1, 4, 2, 3), (128, 1, 8, 1, 3), (128, 1, 4, 1, 3), (32, 1, 4, 2, 3)),
    128: ((64, 1, 4, 1, 3), (64, 1, 8, 1, 3), (128, 1, 8, 1, 3), (32, 1, 4, 1, 3)),
}

Weights = tuple[Tensor, Tensor]  # tiles, and scales with zeros


@dataclass(frozen=True, slots=True)
class Case:
    """Rows of x and a layer's weights, as often as no cache holds them."""

    x: Tensor
    outputs: int
    sets: Sequence[Weights]

    @property
    def name(self) -> tuple[int, int, int]:
        return len(self.x), self.x.shape[1], self.outputs

    @property
    def usual(self) -> Tiling:
        return tiling(len(self.x), self.outputs, GROUP)

    def others(self) -> list[Tiling]:
        """Of all rows in a tile; of many also of half of them."""
        most = next(most for most in OTHERS if len(self.x) <= most)
        sizes = (most, most // 2) if most > 32 else (most,)
        return [cut for rows in sizes for each in OTHERS[rows] if (cut := Tiling(rows, *each)) != self.usual]

    def product(self, weights: Weights, cut: Tiling | None = None) -> Tensor:
        """Launched as in a step of so many tokens: what it fetches before its input is there counts."""
        with step_of(len(self.x)):
            return awq_matmul(self.x, *weights, cut=cut)


def products(bench: Bench) -> None:
    """Each layer's product at few and at more rows; then by other tilings, while there is time."""
    watch = bench.watch
    table = bench.table(
        "AWQ's product of Llama-3.1-8B's layers, other layers' weights in the cache before each",
        columns(
            "rows 4d | inputs 7d | outputs 7d | µs 8.1f | bound µs 8.1f | of copy 8.0% | dense µs 8.1f | "
            "dense of copy 13.0% | × dense 8.2f"
        ),
    )
    reached, found = [], []
    dtype = torch.float16 if bench.rehearsal else watch.dtype  # of float32 there is no such product
    for inputs, outputs in TINY if bench.rehearsal else LINEARS:
        read = inputs * outputs / 2 + inputs / GROUP * outputs * 4
        sets = sets_beyond_cache(watch, read, 2 if bench.rehearsal else MOST)
        weights = [torch.randn(outputs, inputs, device=watch.device, dtype=dtype) / 64 for _ in range(sets)]
        packed = [tiled(*round_to_nearest(weight, GROUP)) for weight in weights]
        for rows in ROWS[:2] if bench.rehearsal else ROWS:
            if not bench.fits(0 if bench.rehearsal else 1, table, f"{rows} rows of {inputs}"):
                continue
            case = Case(torch.randn(rows, inputs, device=watch.device, dtype=dtype), outputs, packed)
            seconds = one_after_another(watch, packed, case.product)
            dense = one_after_another(watch, weights, partial(linear, case.x))
            bound = read / watch.bandwidth
            share = weights[0].nbytes / watch.bandwidth / dense
            ours = 1e6 * seconds, 1e6 * bound, bound / seconds
            table.add(*case.name, *ours, 1e6 * dense, share, dense / seconds)
            found.append((case, seconds))
            if rows <= FEW:
                reached.append(bound / seconds)
        del weights
        free_device_memory()
    if reached:
        what = f"of the copy bandwidth over the packed bytes: AWQ's product, worst of up to {FEW} rows"
        bench.goal(what, GOAL, min(reached))
    _try_tilings(bench, found)
    del found
    free_device_memory()


def _try_tilings(bench: Bench, found: Sequence[tuple[Case, float]]) -> None:
    table = bench.table(
        "Tilings of AWQ's products: the fastest of those tried beside the shipped",
        columns("rows 4d | inputs 7d | outputs 7d | shipped µs 10.1f | best µs 9.1f | × faster 8.2f | tried 5d | 86"),
    )
    if not interpreted:
        _compile(bench, [case for case, _ in found])
    for case, shipped in sorted(found, key=lambda each: -len(each[0].x)):  # of many rows the least is known
        times = {case.usual: shipped}
        right = case.product(case.sets[0]).float()
        for cut in case.others()[: 1 if bench.rehearsal else None]:
            if not bench.rehearsal and bench.left < 1:
                table.say(f"{len(case.x)} rows of {case.x.shape[1]}: not all tried, the section's time is over")
                return
            try:
                torch.testing.assert_close(case.product(case.sets[0], cut).float(), right, rtol=0.02, atol=0.02)
                times[cut] = one_after_another(bench.watch, case.sets, partial(case.product, cut=cut))
            except Exception as error:  # wrong, or too large for this GPU's shared memory
                table.say(f"{cut}: {type(error).__name__}: {str(error)[:100]}")
        best = min(times, key=times.__getitem__)
        table.add(*case.name, 1e6 * shipped, 1e6 * times[best], shipped / times[best], len(times), str(best))
        table.rows[-1]["all"] = {str(cut): 1e6 * seconds for cut, seconds in times.items()}


def _compile(bench: Bench, cases: Sequence[Case]) -> None:
    """All tilings, of which each takes a core for seconds, side by side, where there is time to try them."""
    first = {cut: case for case in reversed(cases) for cut in case.others()}

    def launch(cut: Tiling) -> None:
        with suppress(Exception):  # told where it is timed
            first[cut].product(first[cut].sets[0], cut)

    if bench.left > COMPILING:
        with ThreadPoolExecutor() as threads:
            list(threads.map(launch, first))
