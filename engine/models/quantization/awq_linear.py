"""Linear layers whose weights AWQ packed to 4 bits, and the forms they run in.

On a GPU in float16 or bfloat16 their codes are laid out for our Triton kernel, on a CPU for the compiled one. Elsewhere
they become dense linears, once, at load.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.kernels.cpu.codes import multiplies
from engine.kernels.products.awq_matmul import awq_matmul
from engine.kernels.products.codes import Codes
from engine.kernels.products.coding import Coding
from engine.memory.weight_bytes import awq_stays_packed
from engine.models.quantization.awq_layout import COLUMNS, dequantize, unpack
from engine.models.quantization.awq_tiles import dequantize_tiles, tiled
from engine.models.quantization.coded_linear import CodedLinear


class AwqLinear(nn.Module):
    """A linear layer as an AWQ checkpoint holds it; see `awq_layout`. `group` may be given as -1, for one scale a
    column; `bias` is the bias' dtype, None for none."""

    def __init__(self, in_features: int, out_features: int, group: int, bias: torch.dtype | None = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.group = in_features if group == -1 else group
        groups, words = in_features // self.group, out_features // COLUMNS
        self.register_buffer("qweight", torch.empty(in_features, words, dtype=torch.int32))
        self.register_buffer("qzeros", torch.empty(groups, words, dtype=torch.int32))
        self.register_buffer("scales", torch.empty(groups, out_features, dtype=torch.float16))
        self.bias = None if bias is None else nn.Parameter(torch.empty(out_features, dtype=bias), requires_grad=False)

    qweight: Tensor
    qzeros: Tensor
    scales: Tensor

    def weight_in(self, dtype: torch.dtype) -> Tensor:
        """The dense weight [out_features, in_features]; exact in float32."""
        return dequantize(self.qweight, self.qzeros, self.scales, dtype)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, group={self.group}"

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight_in(x.dtype), self.bias)


class TiledAwqLinear(nn.Module):
    """An AWQ linear in float16 or bfloat16 on a GPU; see `awq_tiles`."""

    def __init__(self, linear: AwqLinear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.group = linear.in_features, linear.out_features, linear.group
        tiles, scales = tiled(linear.qweight, linear.qzeros, linear.scales)
        self.register_buffer("tiles", tiles)
        self.register_buffer("scales", scales)
        self.bias = linear.bias

    tiles: Tensor
    scales: Tensor

    def weight_in(self, dtype: torch.dtype) -> Tensor:
        """The dense weight [out_features, in_features]; exact in float32."""
        return dequantize_tiles(self.tiles, self.scales, self.in_features, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return awq_matmul(x, self.tiles, self.scales, self.bias)


def codes_of(linear: AwqLinear) -> Codes:
    """The same weight, row by row."""
    codes, zeros = unpack(linear.qweight, linear.qzeros)
    by_rows = codes.t().contiguous()
    scales = linear.scales.view(torch.int16).to(torch.int32) & 0xFFFF | zeros.to(torch.int32) << 16
    return Codes(Coding.STEPS, by_rows[:, 0::2] | by_rows[:, 1::2] << 4, scales.t().contiguous())


def dense(linear: AwqLinear, dtype: torch.dtype) -> nn.Linear:
    """The same layer with its weights unpacked: exact in float32, rounded once in other dtypes."""
    with torch.device("meta"):
        plain = nn.Linear(linear.in_features, linear.out_features, bias=False, dtype=dtype)
    plain.weight = nn.Parameter(linear.weight_in(dtype), requires_grad=False)
    plain.register_parameter("bias", linear.bias)
    return plain


def stays_packed(linear: AwqLinear, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this layer keeps to 4 bits on a device in a dtype, or takes a dense layer's memory."""
    if device.type == "cpu":
        return multiplies(Coding.STEPS, linear.in_features, linear.group, dtype)
    sizes = (linear.in_features, linear.group)
    return awq_stays_packed(*sizes, str(dtype).removeprefix("torch."), device.type)


def ready(linear: AwqLinear, dtype: torch.dtype) -> nn.Module:
    """The form in which a loaded layer runs where its tensors are, for activations of `dtype`."""
    if not stays_packed(linear, linear.qweight.device, dtype):
        return dense(linear, dtype)
    return TiledAwqLinear(linear) if linear.qweight.is_cuda else CodedLinear(codes_of(linear), linear.bias)


def make_ready(model: nn.Module, dtype: torch.dtype, before: Callable[[], None] = lambda: None) -> None:
    """Puts each AWQ layer of a loaded model in the form it runs in, one at a time, freeing what it held before.
    `before` is called before each, and may raise to stop; the model is then of no use."""
    for name in [name for name, _ in model.named_modules()]:
        part = model.get_submodule(name)
        if isinstance(part, AwqLinear):
            before()
            model.set_submodule(name, ready(part, dtype))
