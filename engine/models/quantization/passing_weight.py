"""Products on a CPU with a weight that was unpacked for one call."""

import torch
from torch import Tensor
from torch.nn import functional


def wanted(dtype: torch.dtype) -> torch.dtype:
    """In which a weight is best unpacked for inputs of `dtype`. Where the processor has no products of bfloat16 (AVX2)
    torch's own take six times as long as those of float32, and 120 times with a weight whose inputs are its rows."""
    if dtype is torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return torch.float32
    return dtype


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x [..., inputs] times weight [outputs, inputs], transposed, plus the bias, in x's dtype; sums are float32. The
    bias is of x's dtype, the weight of that too or of the one that is `wanted`."""
    dtype = wanted(x.dtype)
    if dtype is not x.dtype:
        return multiply(x.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)).to(x.dtype)
    if dtype is torch.float32 and torch.backends.mkldnn.is_available():
        # oneDNN takes it as it lies, in 0.4 to 0.9 of the time of `functional.linear`.
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return functional.linear(x, weight, bias)
