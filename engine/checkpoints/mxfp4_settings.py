"""What config and tensors' names say of a checkpoint whose experts are MXFP4. No torch."""

from collections.abc import Mapping
from typing import Any

from engine.config.checks import InvalidInput
from engine.config.schemes import MX_BLOCK

METHOD = "mxfp4"
PACKED = "gate_up_proj_blocks", "down_proj_blocks"  # uint8 [experts, outputs, groups, 16], two codes in a byte
Shapes = Mapping[str, tuple[int, ...]]


def holds_mxfp4(config: Mapping[str, Any]) -> bool:
    """Whether a config.json tells of it."""
    stored = config.get("quantization_config")
    return isinstance(stored, Mapping) and str(stored.get("quant_method", "")).lower() == METHOD


def packed_matrix(name: str, shape: tuple[int, ...]) -> tuple[int, int, int] | None:
    """(inputs, outputs, how many) of a tensor of a layer's experts; None of other tensors."""
    if name.rpartition(".")[2] not in PACKED or len(shape) != 4:
        return None
    experts, outputs, groups, _ = shape
    return groups * MX_BLOCK, outputs, experts


def check_packed(shapes: Shapes, model_type: str) -> None:
    """Raises InvalidInput for a checkpoint without packed experts, and for ones that are packed in another way."""
    found = [name for name in shapes if name.rpartition(".")[2] in PACKED]
    if not found:
        raise InvalidInput(
            f"model type {model_type!r}: config.json says MXFP4, but no experts are packed as gpt-oss has them "
            f"({PACKED[0]}); use the original model"
        )
    for name in found:
        shape, scales = shapes[name], shapes.get(f"{name.removesuffix('blocks')}scales")
        if len(shape) != 4 or shape[3] != MX_BLOCK // 2 or scales != shape[:3]:
            raise InvalidInput(
                f"the MXFP4 weights {name} are {list(shape)} and their scales {list(scales or ())}: groups of "
                f"{MX_BLOCK} have {MX_BLOCK // 2} bytes and a scale; fetch the model again"
            )
