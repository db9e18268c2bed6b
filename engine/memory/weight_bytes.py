"""How many bytes a model's weights take once they are loaded, told from their shapes. No torch."""

from collections import Counter
from math import ceil, prod

from engine.checkpoints.info import TORCH_BYTES, ModelInfo
from engine.config.schemes import BLOCK, DOUBLE_BLOCK, MX_BLOCK, SCHEMES, quantized_bytes
from engine.kernels.cpu.compiler import compiles_here
from engine.kernels.products.coding import Coding

GROUPS = {"nf4": BLOCK, "nf4-double": BLOCK, "mxfp4": MX_BLOCK}  # of inputs, by which they must divide
GROUP = 128  # inputs that share a scale in an AWQ checkpoint that is still to be made
KERNEL_GROUPS = 16  # our kernel on a GPU takes multiples of this
GPU_GROUPS = 32  # that of experts takes multiples of this
TILE = 16, 64  # outputs and inputs that it takes at a time, for which there is room where there are fewer


def held_bytes(info: ModelInfo, quantization: str, dtype: str, kind: str) -> int:
    """Bytes of all weights on a device of this `kind` ("cpu" or "cuda"); `dtype` is that of all that is not quantized.
    "awq" of a model that is not AWQ yet is what such a checkpoint would take."""
    item = TORCH_BYTES[dtype]
    if quantization == "torchao-int8" and info.conv1d:  # it converts `nn.Linear` alone
        quantization = "none"
    shapes = Counter(info.linears).items()
    if quantization == "awq":
        linears = sum(count * awq_bytes(*shape, group_of(info), dtype, kind) for shape, count in shapes)
    elif kind == "cpu":
        linears = sum(count * _coded_bytes(quantization, *shape, dtype) for shape, count in shapes)
    else:
        linears = quantized_bytes(quantization, info.linears, item)
    others = (info.others - info.experts) * item + expert_bytes(info, quantization, dtype)
    packed = _multiplies(dtype) or dtype == "float32"
    if kind == "cpu" and packed and info.tied:  # laid out to be multiplied, the output layer is a copy
        linears += info.vocabulary * info.hidden * item
    return linears + others


def layers_share(info: ModelInfo, quantization: str, dtype: str, kind: str) -> float:
    """What a quantization leaves of the bytes of a model's layers, embedding and output layer left out."""
    ends = info.vocabulary * info.hidden * TORCH_BYTES[dtype] * (1 if info.tied and kind == "cuda" else 2)
    held, plain = (held_bytes(info, name, dtype, kind) - ends for name in (quantization, "none"))
    return held / plain if 0 < held <= plain else 1.0


def held_as(info: ModelInfo, quantization: str) -> str:
    """What is loaded where a quantization, or none, is asked for: a checkpoint that holds one is in that."""
    return info.stored_as or quantization if quantization == "none" else quantization


def expert_bytes(info: ModelInfo, quantization: str, dtype: str) -> int:
    """Bytes of a mixture's experts, on whatever device; `dtype` is that of those that are not quantized."""
    matrices = info.expert_matrices if quantizes_experts(info, quantization) else ()
    group, plain = group_of(info), info.experts - sum(map(prod, matrices))
    coded = sum(count * code_bytes(quantization, inputs, outputs, group) for inputs, outputs, count in matrices)
    return coded + plain * TORCH_BYTES[dtype]


def quantizes_experts(info: ModelInfo, quantization: str) -> bool:
    """Whether a mixture's experts are held in fewer bits too: `engine.models.quantization.experts_loader` has the
    rule."""
    if quantization == "awq":
        return info.quantized is not None and bool(info.expert_matrices)
    each = GROUPS.get(quantization, Coding.BYTES.word)
    matrices = info.expert_matrices if SCHEMES[quantization].made == "at load" else ()
    return bool(matrices) and not any(inputs % each for inputs, _, _ in matrices)


def group_of(info: ModelInfo) -> int:
    return info.quantized.group if info.quantized is not None else GROUP


def awq_stays_packed(inputs: int, group: int, dtype: str, kind: str) -> bool:
    """Whether an AWQ layer is multiplied as it is packed, or is dequantized once at load."""
    each = inputs if group == -1 else group
    if kind == "cuda":
        return dtype in ("bfloat16", "float16") and each > 0 and each % KERNEL_GROUPS == 0
    return _multiplies(dtype) and each > 0 and each % Coding.STEPS.word == 0


def experts_multiply(inputs: int, group: int, dtype: str, kind: str) -> bool:
    """Whether AWQ experts of so many inputs are multiplied as they are packed, or unpacked at each step."""
    each = inputs if group == -1 else group
    return each % GPU_GROUPS == 0 if kind == "cuda" else awq_stays_packed(inputs, group, dtype, kind)


def awq_bytes(inputs: int, outputs: int, group: int, dtype: str, kind: str) -> int:
    """Bytes of an AWQ layer as it runs on a device of this kind."""
    if not awq_stays_packed(inputs, group, dtype, kind):
        return inputs * outputs * TORCH_BYTES[dtype]
    scales = 4 * inputs * outputs // (inputs if group == -1 else group)  # a scale and a zero in a word
    if kind == "cpu":
        return inputs * outputs // 2 + scales
    down, across = (-(-size // tile) for size, tile in zip((outputs, inputs), TILE))
    return down * across * TILE[0] * TILE[1] // 2 + scales


def _coded_bytes(quantization: str, inputs: int, outputs: int, dtype: str) -> int:
    """Bytes of a layer on a CPU. Our product has its tables once for all layers, and no zeros that are none."""
    stored = quantized_bytes(quantization, [(inputs, outputs)], TORCH_BYTES[dtype])
    if not _multiplies(dtype) or inputs % GROUPS.get(quantization, Coding.BYTES.word):
        return stored
    return stored if quantization in ("none", "mxfp4") else code_bytes(quantization, inputs, outputs)


def code_bytes(quantization: str, inputs: int, outputs: int, group: int = GROUP) -> int:
    """Bytes of a weight as `engine.kernels.products.codes` has it; `group` is AWQ's."""
    weights = inputs * outputs
    match quantization:
        case "nf4":
            return weights // 2 + 4 * weights // BLOCK
        case "nf4-double":
            return weights // 2 + weights // BLOCK + 8 * ceil(weights / BLOCK / DOUBLE_BLOCK) + 4 * outputs
        case "mxfp4":
            return weights // 2 + weights // MX_BLOCK
        case "awq":
            return weights // 2 + 4 * weights // (inputs if group == -1 else group)
    return weights + 4 * outputs


def _multiplies(dtype: str) -> bool:
    """Whether a CPU has our product of this dtype, as far as that can be told without compiling."""
    return dtype in ("float32", "bfloat16") and compiles_here()


def part_bytes(weights: int, embedding: int, ranks: int) -> int:
    """Of a model's weights, what each of several ranks holds: its part of all matrices, and the whole embedding."""
    return embedding + max(0, weights - embedding) // ranks
