"""Weights in fewer bits, as whatever multiplies them takes them up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor

from engine.kernels.products.coding import Coding

SHARED = 256  # scales that share one, where they are codes themselves


@dataclass(frozen=True)
class Codes:
    """A weight `[outputs, inputs]`, row by row. `codes`: uint8 `[outputs, inputs / 2]`, two in a byte, the lower bits
    first; of BYTES int8 `[outputs, inputs]`. `scales` `[outputs, inputs / group]`: of STEPS int32, float16's bits and
    above them the zero; of ENTRIES float32; of ENTRIES_TWICE uint8; of POWERS uint8, exponents of two and 127; of BYTES
    float32 `[outputs, 1]`. `table` float32 `[16]`, of entries; `fine` float32 `[256]`, of scales, `coarse` float32
    `[..., 2]`: what the entries of each 256 scales, row after row, are times, and what is added, and `first` int32
    `[outputs]`: which of all these scales a row's first is. `outliers`: inputs are rounded to 8 bits row by row, but
    those that are as large; 0: all are; None: none is."""

    coding: Coding
    codes: Tensor
    scales: Tensor
    table: Tensor | None = None
    fine: Tensor | None = None
    coarse: Tensor | None = None
    first: Tensor | None = None
    outliers: float | None = None

    @property
    def outputs(self) -> int:
        return len(self.codes)

    @property
    def inputs(self) -> int:
        return self.codes.shape[1] * 8 // self.coding.bits

    @property
    def group(self) -> int:
        return self.inputs // self.scales.shape[1]

    @property
    def held(self) -> dict[str, Tensor]:
        """What lies in memory for this weight alone."""
        own = {"packed": self.codes, "scales": self.scales, "coarse": self.coarse, "first": self.first}
        return {name: tensor for name, tensor in own.items() if tensor is not None}

    def numbers(self) -> Tensor:
        """The weight `[outputs, inputs]` in float32, exact."""
        scales = self._float_scales()[..., None]
        if self.coding is Coding.BYTES:
            return (self.codes.float()[:, None] * scales).flatten(1)
        table = torch.arange(16.0, device=self.codes.device) if self.table is None else self.table
        both = torch.stack([table.repeat(16), table.repeat_interleave(16)], 1)  # of a byte, looked up at once
        found = torch.nn.functional.embedding(self.codes.int(), both).view(self.outputs, -1, self.group)
        if self.coding is Coding.STEPS:
            found -= (self.scales >> 16)[..., None]
        return found.mul_(scales).flatten(1)

    def _float_scales(self) -> Tensor:
        if self.coding is Coding.STEPS:
            return (self.scales & 0xFFFF).to(torch.int16).view(torch.float16).float()
        if self.coding is Coding.POWERS:
            return powers_of_two(self.scales)
        if self.coding is not Coding.ENTRIES_TWICE:
            return self.scales
        assert self.fine is not None
        assert self.coarse is not None
        assert self.first is not None
        at = self.first[:, None] + torch.arange(self.scales.shape[1], device=self.scales.device)
        times, plus = self.coarse[at // SHARED].unbind(-1)
        return self.fine[self.scales.int()] * times + plus

    def rows(self, begin: int, end: int) -> Codes:
        """These outputs alone."""
        first = None if self.first is None else self.first[begin:end]
        return replace(self, codes=self.codes[begin:end], scales=self.scales[begin:end], first=first)

    def with_more(self, parts: int, outputs: int, inputs: int = 0) -> Codes:
        """Each of so many equal parts of the outputs with so many more, whose weights are 0, and all of them with more
        inputs that are 0, if they `can_have` these."""
        if not outputs and not inputs:
            return self
        assert self.can_have(inputs)
        groups = 0 if self.scales.shape[1] == 1 else inputs // self.group
        pad = torch.nn.functional.pad

        def longer(x: Tensor, wider: int = 0) -> Tensor:
            rows = x.reshape(parts, -1, x[0].numel())
            return pad(rows, (0, wider, 0, outputs)).flatten(0, 1)

        first = None if self.first is None else longer(self.first).flatten()
        codes = longer(self.codes, inputs * self.coding.bits // 8)
        return replace(self, codes=codes, scales=longer(self.scales, groups), first=first)

    def can_have(self, inputs: int) -> bool:
        """Whether so many inputs can follow: those that are scaled together are then as many as before, or all."""
        return not inputs or self.scales.shape[1] == 1 or (self.first is None and inputs % self.group == 0)

    def to(self, device: torch.device) -> Codes:
        """The same on a device."""
        names = "codes", "scales", "table", "fine", "coarse", "first"
        moved = {name: tensor.to(device) for name in names if (tensor := getattr(self, name)) is not None}
        return replace(self, **moved)


def powers_of_two(exponents: Tensor) -> Tensor:
    """float32 of exponents uint8 that are 127 more, which is how float32 has them; but for 0, which is no number there
    and here 2⁻¹²⁷."""
    bits = exponents.int()
    return torch.where(bits == 0, 0x00400000, bits << 23).view(torch.float32)


def joined(parts: Sequence[Codes]) -> Codes | None:
    """Their outputs one after another; None where they cannot be held as one."""
    first = parts[0]
    if len({(part.coding, part.inputs, part.group, part.outliers) for part in parts}) > 1:
        return None
    if any(not _same(getattr(part, name), getattr(first, name)) for part in parts for name in ("table", "fine")):
        return None
    codes, scales = (torch.cat([getattr(part, name) for part in parts]) for name in ("codes", "scales"))
    coarse = [part.coarse for part in parts if part.coarse is not None]
    if not coarse:
        return replace(first, codes=codes, scales=scales)
    before = accumulate((SHARED * len(part) for part in coarse), initial=0)
    firsts = [part.first + at for part, at in zip(parts, before) if part.first is not None]
    return replace(first, codes=codes, scales=scales, coarse=torch.cat(coarse), first=torch.cat(firsts))


def _same(a: Tensor | None, b: Tensor | None) -> bool:
    return a is b or (a is not None and b is not None and torch.equal(a, b))
