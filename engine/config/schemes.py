"""The ways to hold a model's weights in fewer bits: their names, what they do and need, how many bytes they take.

No torch. How they are loaded is in `engine.models.quantization`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from math import ceil

BLOCK = 64  # weights that share a scale in nf4
MX_BLOCK = 32  # the same in MXFP4
DOUBLE_BLOCK = 256  # scales that share one in double quantization


@dataclass(frozen=True, slots=True)
class Quantization:
    """`bits` of a quantized weight, without its scales; 0: as the dtype says. `made` is "at load", or "beforehand" for
    checkpoints that were quantized with calibration. `library` must be installed to load it, from `remedy`.
    `experts_only`: it is of a mixture's experts, and what else there is stays as it was."""

    name: str
    title: str
    sentence: str
    bits: float
    made: str = ""
    library: str = ""
    remedy: str = ""
    experts_only: bool = False


_BITS = "at load", "bitsandbytes", "pip install bitsandbytes accelerate"
_TORCHAO = "at load", "torchao", "pip install 'batchscope[torchao]'"
_KINDS = (
    Quantization("none", "none", "weights as they were trained, in the precision chosen", 0),
    Quantization("int8", "int8", "LLM.int8(): 8-bit weights, outliers of the inputs in 16 bit", 8, *_BITS),
    Quantization(
        "int8-plain", "int8, no outliers", "8-bit weights and inputs, no outliers kept apart (threshold 0)", 8, *_BITS
    ),
    Quantization("nf4", "nf4", "4-bit NormalFloat of QLoRA, a scale every 64 weights", 4, *_BITS),
    Quantization("nf4-double", "nf4, double", "nf4 whose scales are quantized too, to 8 bit", 4, *_BITS),
    Quantization("awq", "AWQ", "4 bit, made beforehand with calibration: needs such a checkpoint", 4, "beforehand"),
    Quantization(
        "torchao-int8", "int8, torchao", "8-bit weights, a scale a row; inputs stay as they are", 8, *_TORCHAO
    ),
    Quantization(
        "mxfp4",
        "MXFP4",
        "4-bit floats, a power of two every 32: of a mixture's experts alone, as gpt-oss is published",
        4,
        "at load",
        experts_only=True,
    ),
)
SCHEMES = {q.name: q for q in _KINDS}
OF_LAYERS = tuple(q.name for q in _KINDS if not q.experts_only)  # those that every model can be held in
STORED = "awq", "mxfp4"  # those that checkpoints are read in


def missing(name: str) -> str:
    """Why a quantization cannot be used here, with the remedy; "" where nothing is missing."""
    scheme = SCHEMES[name]
    if scheme.library and find_spec(scheme.library) is None:
        return f"{scheme.library} is not installed: {scheme.remedy}"
    return ""


def quantized_bytes(name: str, shapes: Iterable[tuple[int, int]], item: int, group: int = 128) -> int:
    """Bytes that linear layers of these shapes (inputs, outputs) take, without their biases.

    `item` is the size of the dtype that the others are held in; `group` is AWQ's, -1 for a whole column. For AWQ it is
    the checkpoint's layout (int32 weights and zeros, float16 scales). Matched real tensors to the byte.
    """
    total = 0
    for inputs, outputs in shapes:
        weights = inputs * outputs
        match name:
            case "none" | "mxfp4":
                total += weights * item
            case "int8" | "int8-plain":
                total += weights + 4 * outputs
            case "nf4":
                total += weights // 2 + weights // 16 + 64
            case "nf4-double":
                total += weights // 2 + weights // BLOCK + 4 * ceil(weights / BLOCK / DOUBLE_BLOCK) + 1092
            case "awq":
                each = inputs if group == -1 else group
                total += weights // 2 + 5 * (weights // each) // 2
            case "torchao-int8":
                total += weights + 5 * outputs  # a float32 scale and an int8 zero a row, whatever the dtype
    return total
