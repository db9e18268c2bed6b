"""What adapters add to the products of a model, row by row."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from torch import Tensor

from engine.kernels.cpu import calls as native
from engine.kernels.cpu.adapters import Laid, adapt, lay_out

Add = Callable[[Tensor, Tensor, Tensor], None]


class Adapters:
    """`names` in the order of their numbers, from 1. `ids` int64 `[tokens]`: of each token that is computed next the
    number of its adapter, 0 for none; None where nobody said. `bytes`: what all of them are held in."""

    def __init__(self, names: tuple[str, ...], ranks: tuple[int, ...]) -> None:
        self.names, self.ranks = names, ranks
        self.ids: Tensor | None = None
        self.bytes = 0


class Adapted:
    """Of layers of one input, which have one of the `widths` each of the columns of their product: `down` `[adapters,
    layers * rank, depth]`, the rows of each layer below each other, and `up` `[adapters, columns, rank]`, both of the
    model's dtype. Adapters that leave a layer as it is have zeros there."""

    def __init__(self, adapters: Adapters, down: Tensor, up: Tensor, widths: list[int]) -> None:
        self._adapters = adapters
        self._add, held = _way(down, up, widths)
        adapters.bytes += held

    def add(self, out: Tensor, x: Tensor) -> Tensor:
        """`out` `[..., columns]` of x `[..., depth]`, with what the rows' adapters add, which it is changed to."""
        ids = self._adapters.ids
        if ids is not None and out.numel():
            if not out.is_contiguous():
                out = out.contiguous()
            if len(ids) != out.numel() // out.shape[-1]:
                raise RuntimeError(
                    f"a layer with adapters has {out.numel() // out.shape[-1]} rows of {len(ids)} tokens"
                )
            self._add(out, x, ids)
        return out


def _way(down: Tensor, up: Tensor, widths: list[int]) -> tuple[Add, int]:
    """How it is computed where these lie, and the bytes of what is read then."""
    if down.device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        from engine.kernels.products import adapters as on_gpu

        tiled = on_gpu.lay_out(down, up, widths)
        return lambda out, x, ids: on_gpu.adapt(out, x, tiled, ids), tiled.bytes
    if native.computes(down.dtype):
        laid: Laid = lay_out(down, up, widths)
        return lambda out, x, ids: adapt(out, x, laid, ids), laid.down.nbytes + laid.up.nbytes
    return _by_torch(down, up, widths), down.nbytes + up.nbytes


def _by_torch(down: Tensor, up: Tensor, widths: list[int]) -> Add:
    rank = up.shape[2]

    def add(out: Tensor, x: Tensor, ids: Tensor) -> None:
        rows, values = out.view(-1, out.shape[-1]), x.reshape(-1, x.shape[-1])
        for number in torch.unique(ids).tolist():
            if number:
                these = (ids == number).nonzero()[:, 0]
                low = (values[these] @ down[number - 1].T).split(rank, -1)
                parts = up[number - 1].split(widths)
                rows[these] += torch.cat([each @ part.T for each, part in zip(low, parts, strict=True)], -1)

    return add
