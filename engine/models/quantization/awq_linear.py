"""Linear layers whose weights AWQ packed to 4 bits, and the forms they run in.

On a GPU in float16 or bfloat16 their codes are laid out for our Triton kernel, on a CPU in bfloat16 for ATen's int4
product. Elsewhere they become dense linears, once, at load.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.kernels.products.awq_matmul import awq_matmul
from engine.memory.weight_bytes import awq_stays_packed
from engine.models.quantization.awq_layout import COLUMNS, dequantize, unpack
from engine.models.quantization.awq_tiles import dequantize_tiles, tiled
from engine.models.quantization.passing_weight import multiply

INT4_MIDDLE = 8  # the code that it takes for 0
INT4_BLOCKS = (64, 32)  # outputs that it lays side by side, by the width of the processor's vectors
INT4_ROWS = 80  # up to which it is faster than unpacking for oneDNN's product: measured with AVX-512 (64 to 80)


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


class Int4Linear(nn.Module):
    """An AWQ linear in bfloat16 on a CPU: scales are rounded to bfloat16, codes are as stored. For many rows, as of
    prefill, the weights are unpacked at each call, where `packed` is laid out as we know it."""

    def __init__(self, linear: AwqLinear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.group = linear.in_features, linear.out_features, linear.group
        codes, zeros = unpack(linear.qweight, linear.qzeros)
        scales = linear.scales.to(torch.bfloat16)
        # The product reads a weight as (code - 8) * scale + offset; with this offset, code = zero still means 0.
        offsets = ((INT4_MIDDLE - zeros.float()) * scales.float()).to(torch.bfloat16)
        self.register_buffer("scales", torch.stack([scales, offsets], -1).contiguous())
        self.register_buffer(
            "packed", torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.t().to(torch.int32).contiguous(), 1)
        )
        self.bias = linear.bias
        self.block = 0  # how many outputs lie side by side; 0: laid out otherwise, so never unpacked
        for block in INT4_BLOCKS:
            if self.out_features % block == 0 and torch.equal(self._codes(block), codes.to(torch.bfloat16)):
                self.block = block

    packed: Tensor
    scales: Tensor

    def _codes(self, block: int) -> Tensor:
        """The codes [in_features, out_features] in bfloat16: a block's first half is in the low bits, by inputs."""
        packed = self.packed.view(-1, self.in_features, block // 2).transpose(0, 1)
        codes = torch.empty(self.in_features, len(self.packed) // block, block, dtype=torch.bfloat16)
        codes[..., : block // 2] = packed & 15
        codes[..., block // 2 :] = packed >> 4
        return codes.flatten(1)

    def _weight(self) -> Tensor:
        """The weight [in_features, out_features]: code less zero is exact, so it is rounded once."""
        scales, offsets = self.scales.unbind(-1)
        # For a scale of 0 any zero will do.
        zeros = (INT4_MIDDLE - offsets.float() / scales.float()).nan_to_num().round().to(torch.bfloat16)
        weight = self._codes(self.block)
        # Strided scales would cost ten times as much.
        weight.unflatten(0, (-1, self.group)).sub_(zeros[:, None]).mul_(scales.contiguous()[:, None])
        return weight

    def forward(self, x: Tensor) -> Tensor:
        if self.block and x.numel() > INT4_ROWS * self.in_features:
            return multiply(x, self._weight().t(), self.bias)
        rows = x.reshape(-1, self.in_features).contiguous()
        out = torch.ops.aten._weight_int4pack_mm_for_cpu(rows, self.packed, self.group, self.scales)
        out = out if self.bias is None else out.add_(self.bias)
        return out.view(*x.shape[:-1], self.out_features)


def dense(linear: AwqLinear, dtype: torch.dtype) -> nn.Linear:
    """The same layer with its weights unpacked: exact in float32, rounded once in other dtypes."""
    with torch.device("meta"):
        plain = nn.Linear(linear.in_features, linear.out_features, bias=False, dtype=dtype)
    plain.weight = nn.Parameter(linear.weight_in(dtype), requires_grad=False)
    plain.register_parameter("bias", linear.bias)
    return plain


def stays_packed(linear: AwqLinear, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether this layer keeps to 4 bits on a device in a dtype, or takes a dense layer's memory."""
    sizes = (linear.in_features, linear.out_features, linear.group)
    return awq_stays_packed(*sizes, str(dtype).removeprefix("torch."), device.type)


def ready(linear: AwqLinear, dtype: torch.dtype) -> nn.Module:
    """The form in which a loaded layer runs where its tensors are, for activations of `dtype`."""
    if not stays_packed(linear, linear.qweight.device, dtype):
        return dense(linear, dtype)
    return TiledAwqLinear(linear) if linear.qweight.is_cuda else Int4Linear(linear)


def make_ready(model: nn.Module, dtype: torch.dtype, before: Callable[[], None] = lambda: None) -> None:
    """Puts each AWQ layer of a loaded model in the form it runs in, one at a time, freeing what it held before.
    `before` is called before each, and may raise to stop; the model is then of no use."""
    for name in [name for name, _ in model.named_modules()]:
        part = model.get_submodule(name)
        if isinstance(part, AwqLinear):
            before()
            model.set_submodule(name, ready(part, dtype))
