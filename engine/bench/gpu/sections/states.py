"""What a token of each sequence takes through a layer that keeps a state, beside the bytes of the states, and the same
by transformers' own operations."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.bench.gpu.report import Bench, columns
from engine.bench.gpu.stopwatch import Stopwatch, one_after_another, sets_beyond_cache
from engine.kernels.dependent_launch import interpreted
from engine.kernels.recurrence import Recurrence, Sequences
from engine.kernels.state_steps import convolution, delta_rule

SHAPE, TINY = (16, 32, 128, 4), (2, 4, 16, 4)  # groups, heads, width and taps, of Qwen3.5-9B
ROWS = (1, 8, 64, 256)
MOST = 8  # layers
DTYPE = torch.float16 if interpreted else torch.bfloat16  # the interpreter's bfloat16 is wrong (Triton 3.9)


def states(bench: Bench) -> None:
    """Each state is read and written once: what memory does at the most."""
    groups, heads, width, taps = shape = TINY if bench.rehearsal else SHAPE
    size = heads * width * width * 4
    table = bench.table(
        f"states of Qwen3.5-9B's layers, {size / 2**20:.1f} MiB a sequence, other layers' in the cache before each",
        columns(
            "rows 4d | convolution µs 14.1f | delta rule µs 13.1f | bound µs 8.1f | of copy 8.0% | torch µs 8.1f | "
            "of torch 8.2f"
        ),
    )
    for rows in (2,) if bench.rehearsal else ROWS:
        if not bench.fits(0 if bench.rehearsal else 0.5, table, f"{rows} rows"):
            return
        layers = sets_beyond_cache(bench.watch, rows * size, 2 if bench.rehearsal else MOST)
        convolved, seconds, by_torch = _seconds(bench.watch, rows, shape, layers)
        read = rows * (2 * size + (2 * groups + 3 * heads) * width * DTYPE.itemsize)
        bound = read / bench.watch.bandwidth
        times = 1e6 * convolved, 1e6 * seconds, 1e6 * bound, bound / seconds, 1e6 * by_torch, seconds / by_torch
        table.add(rows, *times)


def _seconds(watch: Stopwatch, rows: int, shape: tuple[int, int, int, int], layers: int) -> tuple[float, float, float]:
    """Of the convolution, the rule, and the rule by torch."""
    from transformers.models.qwen3_5.modeling_qwen3_5 import torch_recurrent_gated_delta_rule as recurrent

    groups, heads, width, taps = shape
    sides = [groups * width, groups * width, heads * width]

    def drawn(*size: int, dtype: torch.dtype = DTYPE) -> Tensor:
        return torch.randn(*size, device=watch.device).to(dtype)

    decay, bias, norm = (drawn(n, dtype=torch.float32).abs() for n in (heads, heads, width))
    fixed = Recurrence(decay, bias, norm, groups, 1e-6)
    weight, slots = drawn(taps, sum(sides), dtype=torch.float32), torch.randperm(rows, device=watch.device).int()
    whose, mixed, gate, few = (
        Sequences(slots, slots),
        drawn(rows, sum(sides)),
        drawn(rows, sides[2]),
        drawn(rows, heads),
    )

    def by_torch(held: Tensor) -> None:
        q, k, v = (x.view(rows, 1, -1, width) for x in mixed.split(sides, dim=-1))
        given, at = few[:, None].float(), slots.long()
        before = held.index_select(0, at)
        _, after = recurrent(
            q, k, v, g=-given.abs(), beta=given.sigmoid(), initial_state=before, output_final_state=True
        )
        held.index_copy_(0, at, after)

    recent = [drawn(rows + 1, taps, sum(sides)).mT for _ in range(layers)]
    kept = [drawn(rows + 1, heads, width, width, dtype=torch.float32) for _ in range(layers)]
    return (
        one_after_another(watch, recent, lambda held: convolution(mixed, held, weight, None, True, whose)),
        one_after_another(watch, kept, lambda held: delta_rule(mixed, gate, few, few, held, fixed, whose)),
        one_after_another(watch, kept, by_torch),
    )
