"""Products with the large model's layers in nf4: bitsandbytes', those of the kernel that ships, and the same kernel's
with the decoder that looks codes up in shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.bench.gpu.four_bits_lookup import beside_tables, lookup_table
from engine.bench.gpu.quantized import LINEARS
from engine.bench.gpu.report import Bench, Table, columns
from engine.bench.gpu.stopwatch import one_after_another, sets_beyond_cache
from engine.config.schemes import BLOCK, missing
from engine.kernels.attention.tilings import device_facts
from engine.kernels.dependent_launch import interpreted
from engine.kernels.products import four_bits
from engine.kernels.products.four_bits import BLOCK_K, Tiling, four_bit_matmul, table_of

ROWS = (1, 8, 32)
TINY = ((256, 64),)  # inputs and outputs of a rehearsal's layer
MOST = 16  # sets of a layer's weights
DTYPE = torch.float16 if interpreted else torch.bfloat16  # the interpreter's bfloat16 is wrong (Triton 3.9)
WITHIN = 1e-2  # of its size: two roundings to bfloat16, of weights and of the product, are some 3e-3 together
# Outputs a tile, blocks at once, warps, stages, programs side by side; the shipped ones are measured before.
OTHERS = ((64, 4, 4, 4, 4), (64, 8, 4, 3, 3), (128, 2, 4, 4, 4), (128, 4, 8, 3, 2), (256, 2, 8, 3, 2))

Weights = tuple[Tensor, Any]  # packed codes uint8 [weights / 2, 1] and their QuantState
Decoder = Callable[[Tiling], tuple[four_bits.Table, Tiling]]
Found = dict[tuple[int, int, str], dict[Tiling, float]]  # by rows, number of the layer and decoder: seconds


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


def random_layer(bench: Bench, inputs: int, outputs: int) -> Layer:
    from bitsandbytes.functional import quantize_4bit

    bare = Layer(inputs, outputs, ())
    count = sets_beyond_cache(bench.watch, bare.read, 2 if bench.rehearsal else MOST)
    sets = []
    for _ in range(count):
        weight = torch.randn(outputs, inputs, device=bench.watch.device, dtype=DTYPE) / 64
        sets.append(quantize_4bit(weight, blocksize=BLOCK, compress_statistics=False, quant_type="nf4"))
    return replace(bare, sets=sets)


def decoders(numbers: tuple[float, ...], device: torch.device) -> dict[str, Decoder]:
    """Each decoder's table, with the tiling that it makes of one. The interpreter runs no assembly: there the shipped
    one stands for both."""

    def shipped(tiles: Tiling) -> tuple[four_bits.Table, Tiling]:
        return table_of(numbers, DTYPE, device), tiles

    def lookup(tiles: Tiling) -> tuple[four_bits.Table, Tiling]:
        return lookup_table(numbers, DTYPE, device, tiles.num_warps), beside_tables(tiles)

    return {"shipped": shipped, "lookup": shipped if interpreted else lookup}


def products(bench: Bench) -> None:
    """Each layer's product at few rows, by each of the three; then other tilings, while there is time."""
    table = bench.table(
        "nf4 products of Llama-3.1-8B's layers, other layers' weights in the cache before each; lookup is a candidate",
        columns(
            "rows 4d | inputs 7d | outputs 7d | bitsandbytes µs 15.1f | shipped µs 10.1f | lookup µs 9.1f | "
            "bound µs 8.1f | shipped of copy 15.0% | lookup of copy 14.0% | "
            "bitsandbytes / shipped 22.2f | shipped / lookup 16.2f | results 30"
        ),
    )
    if lacking := missing("nf4"):
        table.say(f"not measured: {lacking}")
        return
    layers = [random_layer(bench, *shape) for shape in (TINY if bench.rehearsal else LINEARS)]
    ways = decoders(tuple(layers[0].sets[0][1].code.tolist()), bench.watch.device)
    found: Found = {}
    for rows in (2,) if bench.rehearsal else ROWS:
        for number, layer in enumerate(layers):
            if bench.fits(0 if bench.rehearsal else 4, table, f"{rows} rows of {layer.inputs}"):
                _compare(bench, table, layer, rows, ways, found, number)
    _try_tilings(bench, layers, ways, found)


def _compare(
    bench: Bench, table: Table, layer: Layer, rows: int, ways: dict[str, Decoder], found: Found, number: int
) -> None:
    """A row of the table: one layer's product by each of the three."""
    from bitsandbytes import matmul_4bit

    def theirs(weights: Weights) -> Tensor:
        product: Tensor = matmul_4bit(x, weights[0], quant_state=weights[1])
        return product

    x = _random_rows(bench, layer, rows)
    usual = four_bits.tiling(rows, layer.inputs // BLOCK_K, device_facts(bench.watch.device)[0])
    before = one_after_another(bench.watch, layer.sets, theirs)
    case, wrong = Case(layer, x, layer.expected(x)), []
    taken: dict[str, float | None] = {}
    for name, decoder in ways.items():
        way = decoder(usual)
        seconds, error = _timed(bench, table, case, name, way)
        taken[name] = seconds
        if seconds is None:
            wrong.append(f"{name} did not run")
            continue
        found[rows, number, name] = {way[1]: seconds}
        if not error < WITHIN:
            wrong.append(f"{name} is WRONG by {error:.2g}")
    shipped, lookup = taken["shipped"], taken["lookup"]
    bound = layer.read / bench.watch.bandwidth
    times = *(each and 1e6 * each for each in (before, shipped, lookup)), 1e6 * bound
    shares = shipped and bound / shipped, lookup and bound / lookup
    ratios = shipped and before / shipped, shipped and lookup and shipped / lookup
    table.add(rows, layer.inputs, layer.outputs, *times, *shares, *ratios, ", ".join(wrong) or "right")


def _random_rows(bench: Bench, layer: Layer, rows: int) -> Tensor:
    return torch.randn(rows, layer.inputs, device=bench.watch.device, dtype=DTYPE)


def _timed(
    bench: Bench, table: Table, case: Case, name: str, way: tuple[four_bits.Table, Tiling]
) -> tuple[float | None, float]:
    """Seconds of a product by our kernel, and by what share of its size it is off; None where it cannot be launched."""
    floats, tiles = way

    def ours(weights: Weights) -> Tensor:
        return four_bit_matmul(case.x, weights[0], weights[1].absmax, floats, tiles=tiles)

    try:
        error = float((ours(case.layer.sets[0]).float() - case.expected).norm() / case.expected.norm())
        return one_after_another(bench.watch, case.layer.sets, ours), error
    except Exception as failure:  # too large for this GPU's shared memory, say
        table.say(f"{name}, {tiles}: {type(failure).__name__}: {str(failure)[:100]}")
        return None, 0.0


def _try_tilings(bench: Bench, layers: Sequence[Layer], ways: dict[str, Decoder], found: Found) -> None:
    """Each decoder by some other tilings. All layers have their turn at one before the next is compiled."""
    table = bench.table(
        "Tilings of nf4 products: the fastest of those tried beside the shipped",
        columns(
            "rows 4d | inputs 7d | outputs 7d | decoder 8 | shipped µs 10.1f | best µs 9.1f | × faster 8.2f | "
            "tried 5d | 94"
        ),
    )
    for rows in dict.fromkeys(rows for rows, _, _ in found):
        usual, tried = {key: next(iter(times)) for key, times in found.items() if key[0] == rows}, 0
        xs = [_random_rows(bench, layer, rows) for layer in layers]
        cases = [Case(layer, x, layer.expected(x)) for layer, x in zip(layers, xs)]
        for block_n, *others in OTHERS[:1] if bench.rehearsal else OTHERS:
            for (_, number, name), first in usual.items():
                if not bench.rehearsal and bench.left < 4:
                    break
                way = ways[name](Tiling(first.block_m, block_n, *others))
                seconds, error = _timed(bench, table, cases[number], name, way)
                if seconds is not None and error < WITHIN:
                    found[rows, number, name][way[1]] = seconds
                elif seconds is not None:
                    table.say(f"{name}, {way[1]}: WRONG by {error:.2g}")
                tried += 1
        if not tried:
            table.say(f"{rows} rows: no others tried, the section's time is over")
            continue
        for key, first in usual.items():
            times, layer = found[key], layers[key[1]]
            best = min(times, key=times.__getitem__)
            figures = 1e6 * times[first], 1e6 * times[best], times[first] / times[best]
            table.add(rows, layer.inputs, layer.outputs, key[2], *figures, len(times), str(best))
            table.rows[-1]["all"] = {str(tiles): 1e6 * seconds for tiles, seconds in times.items()}
    if not found:
        table.say("there was nothing to try")
