"""Layers of one input that AWQ packed, as one product: outputs below outputs, in the layout that they have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.kernels.products.awq_matmul import OUTPUTS, awq_matmul, can_gate
from engine.kernels.silu_mul import Activation
from engine.models.fusion.joined_parameters import join_biases
from engine.models.fusion.parts import LeftAlone, Setting
from engine.models.packed_linear import HeldByLayers, JoinedProduct
from engine.models.quantization.awq_linear import TiledAwqLinear
from engine.models.quantization.awq_tiles import dequantize_tiles


@dataclass(frozen=True, slots=True)
class Awq(HeldByLayers):
    """The joined tensors, as `awq_tiles` tells them, of which the layers' own are views."""

    tiles: Tensor
    scales: Tensor
    bias: Tensor | None
    inputs: int

    def plain(self) -> Tensor:
        return dequantize_tiles(self.tiles, self.scales, self.inputs, torch.float16)

    def multiply(self, x: Tensor) -> Tensor:
        return awq_matmul(x, self.tiles, self.scales, self.bias)

    def gated(self, x: Tensor, activation: Activation) -> Tensor | None:
        if not can_gate(x.numel() // x.shape[-1], self.scales.shape[1]):
            return None
        return awq_matmul(x, self.tiles, self.scales, self.bias, gate=activation)


class AwqProduct(JoinedProduct):
    """Of layers whose packed tensors become views of the joined ones. Raises LeftAlone where no layout holds all."""

    def __init__(self, linears: Sequence[TiledAwqLinear]) -> None:
        if len({linear.in_features for linear in linears}) > 1:
            raise LeftAlone("the layers have inputs of several widths")
        if len({linear.group for linear in linears}) > 1:
            raise LeftAlone("their groups are of several sizes")
        if len({None if linear.bias is None else linear.bias.dtype for linear in linears}) > 1:
            raise LeftAlone("some have a bias that others lack")
        if any(linear.out_features % OUTPUTS for linear in linears):
            raise LeftAlone(f"some have outputs that are no multiple of {OUTPUTS}")
        widths = [linear.out_features for linear in linears]
        with torch.inference_mode(False), torch.no_grad():
            tiles = _join(linears, "tiles", 0, [width // OUTPUTS for width in widths])
            scales = _join(linears, "scales", 1, widths)
            packed = Awq(tiles, scales, join_biases(linears), linears[0].in_features)
        super().__init__(packed, widths)


def is_packed(linear: Any, setting: Setting) -> bool:
    """Whether a layer is AWQ's, and multiplied as it is packed."""
    return (
        type(linear) is TiledAwqLinear
        and "forward" not in vars(linear)
        and linear.tiles.device.type == setting.device.type
        and setting.dtype in (torch.float16, torch.bfloat16)
    )


def _join(linears: Sequence[TiledAwqLinear], name: str, dim: int, sizes: list[int]) -> Tensor:
    """The tensors of this name side by side, each of which becomes a view of its part."""
    joined = torch.cat([getattr(linear, name) for linear in linears], dim)
    for linear, view in zip(linears, joined.split(sizes, dim)):
        setattr(linear, name, view)
    return joined
