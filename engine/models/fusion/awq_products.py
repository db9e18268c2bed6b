"""Layers of one input that AWQ packed, as one product: their columns side by side, in the layout that they have."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.kernels.products.awq_matmul import awq_matmul
from engine.models.fusion.joined_parameters import join_biases
from engine.models.fusion.parts import LeftAlone, Setting
from engine.models.packed_linear import HeldByLayers, JoinedProduct
from engine.models.quantization.awq_layout import COLUMNS, dequantize
from engine.models.quantization.awq_linear import AwqLinear, stays_packed

GPU = torch.device("cuda")


@dataclass(frozen=True, slots=True)
class Awq(HeldByLayers):
    """The joined tensors, as `awq_layout` tells them, of which the layers' own are views."""

    qweight: Tensor
    qzeros: Tensor
    scales: Tensor
    bias: Tensor | None

    def plain(self) -> Tensor:
        return dequantize(self.qweight, self.qzeros, self.scales, self.scales.dtype)

    def multiply(self, x: Tensor) -> Tensor:
        return awq_matmul(x, self.qweight, self.qzeros, self.scales, self.bias)


class AwqProduct(JoinedProduct):
    """Of layers whose packed tensors become views of the joined ones. Raises LeftAlone where no layout holds all."""

    def __init__(self, linears: Sequence[AwqLinear]) -> None:
        if len({linear.in_features for linear in linears}) > 1:
            raise LeftAlone("the layers have inputs of several widths")
        if len({linear.group for linear in linears}) > 1:
            raise LeftAlone("their groups are of several sizes")
        if len({None if linear.bias is None else linear.bias.dtype for linear in linears}) > 1:
            raise LeftAlone("some have a bias that others lack")
        widths = [linear.out_features for linear in linears]
        with torch.inference_mode(False), torch.no_grad():
            qweight, qzeros = (_join(linears, name, COLUMNS) for name in ("qweight", "qzeros"))
            packed = Awq(qweight, qzeros, _join(linears, "scales", 1), join_biases(linears))
        super().__init__(packed, widths)


def is_packed(linear: Any, setting: Setting) -> bool:
    """Whether a layer is AWQ's, and multiplied as it is packed."""
    if type(linear) is not AwqLinear or "forward" in vars(linear):
        return False
    return linear.qweight.device.type == setting.device.type and stays_packed(linear, GPU, setting.dtype)


def _join(linears: Sequence[AwqLinear], name: str, columns: int) -> Tensor:
    """Columns beside columns, `columns` of the outputs in an element."""
    joined = torch.cat([getattr(linear, name) for linear in linears], dim=1)
    for linear, view in zip(linears, joined.split([linear.out_features // columns for linear in linears], dim=1)):
        setattr(linear, name, view)
    return joined
