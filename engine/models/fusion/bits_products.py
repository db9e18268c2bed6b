"""Layers of one input that bitsandbytes quantized, as one product: rows below rows, in the layout that they have. Few
rows of x are multiplied with 4-bit weights by our own kernel, those of single layers too.

4-bit weights lie flat in blocks that never reach into another layer, and 8-bit ones have a scale a row, so what is
joined is what each layer held. Scales that are quantized too are kept less a mean of each layer's own, so they stay
apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.kernels.products.four_bits import BLOCK_K, CODES, FEW_ROWS, four_bit_matmul, table_of
from engine.kernels.silu_mul import Activation
from engine.models.fusion.joined_parameters import join_biases, join_parameters
from engine.models.fusion.parts import MARK, LeftAlone, Setting
from engine.models.packed_linear import HeldByLayers, JoinedProduct

FOUR, EIGHT = "Linear4bit", "Linear8bitLt"


@dataclass(frozen=True, slots=True)
class FourBits(HeldByLayers):
    """Packed codes uint8 `[weights / 2, 1]` of a matrix, their scales in `state`, a `QuantState`; in `table`
    what codes mean, where our kernel multiplies few rows."""

    weight: Tensor
    state: Any
    bias: Tensor | None
    table: Tensor | None

    def plain(self) -> Tensor:
        from bitsandbytes.functional import dequantize_4bit

        return dequantize_4bit(self.weight, self.state)

    def multiply(self, x: Tensor) -> Tensor:
        product = self._of_few_rows(x)
        if product is not None:
            return product
        from bitsandbytes import matmul_4bit

        return matmul_4bit(x, self.weight, quant_state=self.state, bias=self.bias)

    def gated(self, x: Tensor, activation: Activation) -> Tensor | None:
        return self._of_few_rows(x, activation)

    def _of_few_rows(self, x: Tensor, gate: Activation | None = None) -> Tensor | None:
        if self.table is None or x.numel() > FEW_ROWS * x.shape[-1]:
            return None
        return four_bit_matmul(x, self.weight, self.state.absmax, self.table, self.bias, gate=gate)


@dataclass(frozen=True, slots=True)
class EightBits(HeldByLayers):
    """`state.CB` int8 `[columns, depth]`, with a scale a row in `state.SCB`; a `MatmulLtState`."""

    state: Any
    bias: Tensor | None

    def plain(self) -> Tensor:
        weight: Tensor = self.state.CB * (self.state.SCB[:, None] / 127)
        return weight

    def multiply(self, x: Tensor) -> Tensor:
        from bitsandbytes import matmul

        return matmul(x, self.state.CB, state=self.state, bias=self.bias)


def is_of_bits(linear: Any, setting: Setting) -> bool:
    """Whether a layer is bitsandbytes' own, on the device and in the dtype that are asked for."""
    if not type(linear).__module__.startswith("bitsandbytes.") or "forward" in vars(linear):
        return False
    if linear.weight.device.type != setting.device.type:
        return False
    if type(linear).__name__ == FOUR:
        return linear.compute_dtype is setting.dtype and hasattr(linear.weight, "quant_state")
    return type(linear).__name__ == EIGHT and linear.state.CB is not None and not linear.state.has_fp16_weights


def is_single(part: Any, setting: Setting) -> bool:
    """Whether a layer that was joined with no other one is for our kernel."""
    if type(part).__name__ != FOUR or hasattr(type(part), MARK) or not is_of_bits(part, setting):
        return False
    state = part.weight.quant_state
    return part.in_features == state.shape[-1] and _table(state, part.weight, setting.dtype) is not None


def _table(state: Any, weight: Tensor, dtype: torch.dtype) -> Tensor | None:
    """The numbers of a matrix's codes, where our kernel multiplies it in that dtype; waits for the device."""
    if dtype not in (torch.float16, torch.bfloat16) or state.nested or state.absmax.dtype is not torch.float32:
        return None
    if getattr(state, "packing_format_for_cpu", False) or weight.dtype is not torch.uint8:
        return None
    if len(state.shape) != 2 or state.shape[1] % BLOCK_K or state.blocksize % BLOCK_K or len(state.code) != CODES:
        return None
    if state.absmax.numel() * state.blocksize != state.shape.numel():
        return None
    return table_of(tuple(state.code.tolist()), dtype, weight.device)


class BitsProduct(JoinedProduct):
    """Of layers whose weights become views of the joined ones. Raises LeftAlone where no layout holds all."""

    def __init__(self, linears: Sequence[Any]) -> None:
        kinds = {type(linear).__name__ for linear in linears}
        if len(kinds) > 1 or len({linear.in_features for linear in linears}) > 1:
            raise LeftAlone("the layers are of several kinds or widths")
        if len({None if linear.bias is None else linear.bias.dtype for linear in linears}) > 1:
            raise LeftAlone("some have a bias that others lack")
        with torch.inference_mode(False), torch.no_grad():
            packed = _four(linears) if kinds == {FOUR} else _eight(linears)
        super().__init__(packed, [linear.out_features for linear in linears])


def _four(linears: Sequence[Any]) -> FourBits:
    from bitsandbytes.functional import QuantState

    states = [linear.weight.quant_state for linear in linears]
    first = states[0]
    if any(state.nested for state in states):
        raise LeftAlone("their scales are quantized too, around a mean of each layer's own")
    if len(linears) == 1:
        (linear,) = linears
        return FourBits(linear.weight.data, first, linear.bias, _table(first, linear.weight, linear.compute_dtype))
    if len({(state.blocksize, state.quant_type, state.dtype) for state in states}) > 1:
        raise LeftAlone("their codes are of several kinds")
    if any(getattr(state, "packing_format_for_cpu", False) for state in states):
        raise LeftAlone("their weights were laid out anew")
    if any(linear.in_features * linear.out_features % first.blocksize for linear in linears):
        raise LeftAlone("a block of theirs is no whole one")
    weight = join_parameters([linear.weight for linear in linears], [len(linear.weight) for linear in linears])
    absmax = torch.cat([state.absmax for state in states])
    for state, view in zip(states, absmax.split([len(state.absmax) for state in states])):
        state.absmax = view
    shape = torch.Size((sum(linear.out_features for linear in linears), linears[0].in_features))
    how = {"code": first.code, "blocksize": first.blocksize, "quant_type": first.quant_type, "dtype": first.dtype}
    joined = QuantState(absmax, shape, **how)
    return FourBits(weight, joined, join_biases(linears), _table(joined, weight, linears[0].compute_dtype))


def _eight(linears: Sequence[Any]) -> EightBits:
    from bitsandbytes import MatmulLtState

    states = [linear.state for linear in linears]
    if len({state.threshold for state in states}) > 1:
        raise LeftAlone("their outliers begin at several sizes")
    joined = MatmulLtState()
    joined.threshold, joined.has_fp16_weights, joined.is_training = states[0].threshold, False, False
    joined.CB, joined.SCB = (torch.cat([getattr(state, name) for state in states]) for name in ("CB", "SCB"))
    widths = [linear.out_features for linear in linears]
    for linear, codes, scales in zip(linears, joined.CB.split(widths), joined.SCB.split(widths)):
        linear.state.CB, linear.state.SCB = codes, scales
        linear.weight.data = codes
    return EightBits(joined, join_biases(linears))
