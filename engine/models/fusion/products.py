"""Linear layers of one input as one product: queries, keys and values, gate and up, on a GPU. What quantizers packed is
joined in `awq_products` and `bits_products`. Of one row, dense products are our own kernel's, of the other layers too.

A layer keeps its weight, as rows of the joined one, so what reads or writes weights finds them where they were.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from engine.kernels.products.gemv import DTYPES, gemv, is_row
from engine.kernels.silu_mul import Activation
from engine.models.fusion.awq_products import AwqProduct, is_packed
from engine.models.fusion.bits_products import BitsProduct, is_of_bits, is_single
from engine.models.fusion.joined_parameters import join_biases, join_parameters
from engine.models.fusion.parts import TOLERANCE, FusedPart, LeftAlone, Setting, Use, subclass
from engine.models.packed_linear import SAME_INPUT, HeldByLayers, JoinedProduct
from engine.models.plain_weights import is_plain
from engine.models.quantization.awq_linear import TiledAwqLinear

KERNEL = "product"
PRODUCT, INDEX = "_product", "_index"  # attributes of the classes made here: it, and which of its layers this is


@dataclass(frozen=True, slots=True)
class Dense(HeldByLayers):
    """A weight `[columns, depth]` and its bias as they are: a layer's, or joined, of which the layers' are views."""

    weight: Tensor
    bias: Tensor | None

    def plain(self) -> Tensor:
        return self.weight

    def multiply(self, x: Tensor) -> Tensor:
        if is_row(x) and x.dtype in DTYPES:
            return gemv(x, self.weight, self.bias)
        return nn.functional.linear(x, self.weight, self.bias)

    def gated(self, x: Tensor, activation: Activation) -> Tensor | None:
        return gemv(x, self.weight, self.bias, gate=activation) if is_row(x) and x.dtype in DTYPES else None


class DenseProduct(JoinedProduct):
    """Of plain layers, whose weights become views of the joined one."""

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        widths = [linear.out_features for linear in linears]
        if len(linears) == 1:
            super().__init__(Dense(linears[0].weight, linears[0].bias), widths)
            return
        with torch.inference_mode(False), torch.no_grad():  # gradients may be asked for later
            weight = join_parameters([linear.weight for linear in linears], widths)
            super().__init__(Dense(weight, join_biases(linears)), widths)


def joinable(part: nn.Module, setting: Setting) -> list[list[Any]]:
    """The layers of a module that take the same input, by product: plain, packed by AWQ or by bitsandbytes."""
    found: Iterator[list[Any]] = ([getattr(part, name, None) for name in names] for names in SAME_INPUT)
    return [
        linears
        for linears in found
        if (all(_is_plain(each, setting) for each in linears) and _alike(linears))
        or all(is_packed(each, setting) for each in linears)
        or all(is_of_bits(each, setting) for each in linears)
    ]


def alone(part: nn.Module, setting: Setting) -> list[list[Any]]:
    """The layer itself, where it was not joined and few rows are multiplied with it faster: a plain one, of which one
    is, or bitsandbytes' own."""
    plain = setting.dtype in DTYPES and _is_plain(part, setting)
    return [[part]] if plain or is_single(part, setting) else []


def _is_plain(linear: Any, setting: Setting) -> bool:
    plain = type(linear) is nn.Linear and is_plain(linear.weight) and "forward" not in vars(linear)
    return plain and linear.weight.dtype is setting.dtype and linear.weight.device.type == setting.device.type


def _alike(linears: Sequence[Any]) -> bool:
    alike = {(linear.in_features, linear.bias is None) for linear in linears}
    return len(alike) == 1 and len(set(map(id, linears))) == len(linears)


def join(linears: Sequence[Any], setting: Setting) -> list[FusedPart]:
    """A class for each layer. Raises LeftAlone where the product is not what the layers compute."""
    # Few rows may have tiles of their own.
    drawn = [setting.draw(1, rows, linears[0].in_features) for rows in (1, 3, 40)]
    expected = [[linear(x) for linear in linears] for x in drawn]
    make = {nn.Linear: DenseProduct, TiledAwqLinear: AwqProduct}.get(type(linears[0]), BitsProduct)
    try:
        product = make(linears)
    except torch.OutOfMemoryError as error:  # a layer's weights lie there twice meanwhile
        raise LeftAlone("no memory is left to join them") from error
    for x, owns in zip(drawn, expected):
        for index, own in enumerate(owns):
            made = product.part(index, x)
            if (made.float() - own.float()).abs().max() > TOLERANCE[setting.dtype] * own.float().abs().max():
                raise LeftAlone("their product computes something else")
    return [_part(linear, product, index, setting) for index, linear in enumerate(linears)]


def _part(linear: nn.Module, product: JoinedProduct, index: int, setting: Setting) -> FusedPart:
    own: Callable[..., Tensor] = type(linear).forward
    use = Use()

    def forward(self: nn.Module, x: Tensor) -> Tensor:
        if not setting.serves(x):
            return own(self, x)
        use.served = True
        return product.part(index, x)

    fused = subclass(linear, forward, KERNEL, use)
    setattr(fused.cls, PRODUCT, product)
    setattr(fused.cls, INDEX, index)
    return fused
