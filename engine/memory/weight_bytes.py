"""How many bytes a model's weights take once they are loaded, told from their shapes. No torch."""

from functools import cache
from pathlib import Path

from engine.checkpoints.info import TORCH_BYTES, ModelInfo
from engine.config.schemes import BLOCK, quantized_bytes
from engine.kernels.cpu.compiler import compiles_here

GROUP = 128  # inputs that share a scale in an AWQ checkpoint that is still to be made
INT4_GROUPS, INT4_OUTPUTS = (32, 64, 128, 256), 16  # what ATen's int4 product on a CPU takes: these groups, multiples
KERNEL_GROUPS = 16  # our kernel on a GPU takes multiples of this
TILE = 16, 64  # outputs and inputs that it takes at a time, for which there is room where there are fewer
FUSED_OUTPUTS = 32  # outputs that bitsandbytes' 4-bit kernel for CPUs takes at a time


def held_bytes(info: ModelInfo, quantization: str, dtype: str, kind: str) -> int:
    """Bytes of all weights on a device of this `kind` ("cpu" or "cuda"); `dtype` is that of all that is not quantized.
    "awq" of a model that is not AWQ yet is what such a checkpoint would take."""
    item = TORCH_BYTES[dtype]
    if quantization == "torchao-int8" and info.conv1d:  # it converts `nn.Linear` alone
        quantization = "none"
    if quantization == "awq":
        linears = sum(awq_bytes(inputs, outputs, group_of(info), dtype, kind) for inputs, outputs in info.linears)
    elif quantization in ("nf4", "nf4-double") and dtype == "bfloat16" and kind == "cpu" and has_bfloat16_products():
        linears = sum(_fused_bytes(quantization, inputs, outputs, item) for inputs, outputs in info.linears)
    else:
        linears = quantized_bytes(quantization, info.linears, item)
    packed = dtype == "float32" or (dtype == "bfloat16" and compiles_here())
    if kind == "cpu" and packed and info.tied:  # laid out to be multiplied, the output layer is a copy
        linears += info.vocabulary * info.hidden * item
    return linears + info.others * item


def group_of(info: ModelInfo) -> int:
    return info.quantized.group if info.quantized is not None else GROUP


def awq_stays_packed(inputs: int, outputs: int, group: int, dtype: str, kind: str) -> bool:
    """Whether an AWQ layer is multiplied as it is packed, or is dequantized once at load."""
    each = inputs if group == -1 else group
    if kind == "cuda":
        return dtype in ("bfloat16", "float16") and each % KERNEL_GROUPS == 0
    return dtype == "bfloat16" and each in INT4_GROUPS and outputs % INT4_OUTPUTS == 0


def awq_bytes(inputs: int, outputs: int, group: int, dtype: str, kind: str) -> int:
    """Bytes of an AWQ layer as it runs on a device of this kind."""
    if not awq_stays_packed(inputs, outputs, group, dtype, kind):
        return inputs * outputs * TORCH_BYTES[dtype]
    scales = inputs * outputs // (inputs if group == -1 else group)
    if kind == "cpu":  # ATen holds a scale and an offset as bfloat16
        return inputs * outputs // 2 + 4 * scales
    down, across = (-(-size // tile) for size, tile in zip((outputs, inputs), TILE))
    return down * across * TILE[0] * TILE[1] // 2 + 4 * scales  # a scale and a zero in a word


def _fused_bytes(quantization: str, inputs: int, outputs: int, item: int) -> int:
    """The layout that bitsandbytes' fused kernel asks for has scales in bfloat16, and none that are quantized too."""
    if outputs % FUSED_OUTPUTS or inputs % BLOCK:
        return quantized_bytes(quantization, [(inputs, outputs)], item)
    weights = inputs * outputs
    return weights // 2 + weights // BLOCK * 2 + (68 if quantization == "nf4-double" else 64)


@cache
def has_bfloat16_products() -> bool:
    """Whether this machine's processor multiplies bfloat16 (AVX-512), for which bitsandbytes has a kernel."""
    try:
        return "avx512_bf16" in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split()
    except OSError:
        return False


def part_bytes(weights: int, embedding: int, ranks: int) -> int:
    """Of a model's weights, what each of several ranks holds: its part of all matrices, and the whole embedding."""
    return embedding + max(0, weights - embedding) // ranks
