"""torchao: weights in int8 with a scale for each output, activations as they are."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from engine.kernels.cpu.codes import multiplies
from engine.kernels.products.codes import Codes
from engine.kernels.products.coding import Coding
from engine.models.quantization.coded_linear import CodedLinear
from engine.models.quantization.passing_weight import multiply, wanted


class CodesLinear(nn.Module):
    """A layer of bfloat16 whose codes are multiplied in float32, and the sums scaled: torchao multiplies in bfloat16,
    and on a processor that does not that took 1.5 times as long at one row, six times at 512."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        weight: Any = self.weight
        sums = multiply(x.float(), weight.qdata.float(), None) * weight.scale.float().t()
        return (sums if self.bias is None else sums + self.bias.float()).to(x.dtype)


def int8_codes(weight: Tensor) -> Codes:
    """A weight `[outputs, inputs]` as torchao rounds it."""
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    with torch.device("meta"):
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    quantize_(layer, Int8WeightOnlyConfig())
    return _codes_of(layer.weight)


def _codes_of(weight: Any) -> Codes:
    return Codes(Coding.BYTES, weight.qdata, weight.scale.float().view(-1, 1))


def settle(module: nn.Module, dtype: torch.dtype, before: Callable[[], None]) -> None:
    """Gives each int8 layer on a CPU the form in which inputs of `dtype` are best multiplied; `before` is called before
    each, and may raise to stop."""
    from torchao.quantization import Int8Tensor

    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is not nn.Linear:
                continue
            weight: Any = layer.weight
            if not isinstance(weight, Int8Tensor) or weight.device.type != "cpu":
                continue
            before()
            if multiplies(Coding.BYTES, layer.in_features, layer.in_features, dtype):
                setattr(parent, name, CodedLinear(_codes_of(weight), layer.bias))
            elif wanted(dtype) is not dtype:
                setattr(parent, name, CodesLinear(layer))
