"""Weights in fewer bits, as the compiled product reads them (`native/codes.h`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from engine.kernels.cpu.calls import computes, multiply, to_integers
from engine.kernels.cpu.large_pages import LargePages
from engine.kernels.cpu.library import function
from engine.kernels.cpu.structures import Scales
from engine.kernels.products.codes import Codes
from engine.kernels.products.coding import Coding

AT_ONCE = 1 << 16  # words that are shuffled: they stay near a core


@dataclass(frozen=True)
class PackedCodes:
    """`laid.codes` and `laid.scales` lie as `native/codes.h` has them."""

    laid: Codes
    columns: int
    depth: int
    group: int

    def unpack(self) -> Codes:
        """As they were."""
        laid = self.laid
        words = laid.codes.transpose(1, 2).reshape(-1, laid.codes.shape[1])[: self.columns]
        dtype = torch.int8 if laid.coding is Coding.BYTES else torch.uint8
        codes = _shuffled(words, laid.coding.swaps[::-1]).view(dtype)
        scales = laid.scales.transpose(1, 2).flatten(0, 1)[: self.columns]
        first = None if laid.first is None else laid.first[: self.columns]
        return replace(laid, codes=codes, scales=scales.contiguous(), first=first)

    @cached_property
    def scales(self) -> Scales:
        held = self.laid.scales, self.laid.table, self.laid.fine, self.laid.coarse, self.laid.first
        return Scales(*(None if x is None else x.data_ptr() for x in held), self.group)

    def product(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """x `[..., inputs]` times the weight, plus a bias `[outputs]`: `[..., outputs]`. The weight is exact, but where
        the processor multiplies bfloat16, and x is that, a table's entries are rounded to it."""
        laid, by = self.laid, None
        if laid.outliers is not None:
            x, by = to_integers(x, laid.outliers)
        return multiply(x, laid.codes, bias, self.columns, self.scales, laid.coding, by)


def pack_codes(codes: Codes, room: LargePages) -> PackedCodes:
    """In the layout that is multiplied."""
    panel = function("panel_width")()
    words = _shuffled(codes.codes.view(torch.int32), codes.coding.swaps)
    words = _padded(words, panel).view(-1, panel, words.shape[1]).transpose(1, 2)
    words = room.zeros(words.shape, words.dtype).copy_(words)
    scales = _padded(codes.scales, panel).view(-1, panel, codes.scales.shape[1]).transpose(1, 2)
    laid = room.zeros(scales.shape, scales.dtype).copy_(scales)
    first = None if codes.first is None else torch.nn.functional.pad(codes.first, (0, -codes.outputs % panel))
    whole = replace(codes, codes=words, scales=laid, first=first)
    return PackedCodes(whole, codes.outputs, codes.inputs, codes.group)


def multiplies(coding: Coding, inputs: int, group: int, dtype: torch.dtype) -> bool:
    """Whether the product serves such a weight with inputs of this dtype."""
    return computes(dtype) and not (inputs % coding.word or group % coding.word)


def _shuffled(words: Tensor, swaps: Sequence[tuple[int, int]]) -> Tensor:
    words = words.clone(memory_format=torch.contiguous_format)
    for some in words.view(-1).split(AT_ONCE):
        for by, at in swaps:
            differ = (some ^ some >> by) & at
            some ^= differ
            some ^= differ << by
    return words


def _padded(x: Tensor, to: int) -> Tensor:
    return torch.nn.functional.pad(x, (0, 0, 0, -len(x) % to))
