"""The end of a product whose first outputs are gates and whose others are what these gate: act(gate) * up, without a
launch of its own. A program has as many of the ones as of the others; both are rounded as if they had been stored.
"""

from __future__ import annotations

from engine.kernels.jit import jit, tl
from engine.kernels.silu_mul import Activation, act, gated


@jit
def outputs_of(program, outputs, BLOCK_N: tl.constexpr, GATE: tl.constexpr):  # type: ignore[no-untyped-def]
    """[BLOCK_N] which outputs a program computes, and whether they are there; of a gated product gates come first."""
    lanes = tl.arange(0, BLOCK_N)
    if GATE is None:
        n = program * BLOCK_N + lanes
        return n, n < outputs
    else:
        HALF: tl.constexpr = BLOCK_N // 2
        gate = program * HALF + lanes % HALF
        return gate + lanes // HALF * (outputs // 2), gate < outputs // 2


@jit
def store_product(out, product, program, m, rows, outputs, GATE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Stores a program's product float32 [BLOCK_N, rows] into out [rows, outputs], of the rows `m` that there are; of a
    gated one [BLOCK_N / 2, rows], with gates and what they gate rounded as if they had been stored."""
    BLOCK_N: tl.constexpr = product.shape[0]
    if GATE is not None:
        HALF: tl.constexpr = BLOCK_N // 2
        width = outputs // 2
        n = program * HALF + tl.arange(0, HALF)
        rounded = product.to(out.dtype.element_ty).to(tl.float32)
        gate, up = rounded.reshape(2, HALF, product.shape[1]).permute(1, 2, 0).split()
        product = act(gate, GATE).to(out.dtype.element_ty).to(tl.float32) * gated(up, GATE)
    else:
        width = outputs
        n = program * BLOCK_N + tl.arange(0, BLOCK_N)
    place = out + m.to(tl.int64)[None, :] * width + n[:, None]
    tl.store(place, product, mask=(n < width)[:, None] & (m < rows)[None, :])


def gated_width(outputs: int, gate: Activation | None) -> int:
    """How many numbers of a row remain of so many outputs."""
    return outputs if gate is None else outputs // 2
