"""A model's rotary embedding whose cosines and sines one kernel computes, proved as the other parts are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from engine.models.fusion.parts import TOLERANCE, FusedPart, LeftAlone, Setting, Use, subclass

POSITIONS = (0, 1, 2, 7, 100, 1000)
CHANGING = ("dynamic", "longrope")  # kinds whose frequencies follow from the positions of a step


def fused_angles(rotary: nn.Module, setting: Setting) -> FusedPart:
    """The frequencies, one set or one by layer type, are buffers of the part, read when they are used."""
    own: Callable[..., Any] = type(rotary).forward
    angles, use = setting.kernels.angles, Use()
    kinds = getattr(rotary, "rope_type", "default")
    if any(kind in CHANGING for kind in (kinds.values() if isinstance(kinds, dict) else [kinds])):
        raise LeftAlone("its frequencies change with the positions")
    assert angles is not None

    def computed(
        self: nn.Module, layer_type: tuple[str, ...], positions: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        prefix = "".join(f"{name}_" for name in layer_type)
        frequencies, scale = getattr(self, f"{prefix}inv_freq"), getattr(self, f"{prefix}attention_scaling")
        return angles(positions, frequencies, scale, True, dtype)

    proved: dict[tuple[str, ...], torch.dtype] = {}
    positions = torch.tensor([POSITIONS], device=setting.device)
    names = [name.removesuffix("inv_freq").rstrip("_") for name, _ in rotary.named_buffers()]
    for layer_type in [(name,) if name else () for name in names if "original" not in name]:
        expected = own(rotary, setting.draw(1, 1, 1), positions, *layer_type)
        made = computed(rotary, layer_type, positions, expected[0].dtype)
        if len(expected) == 2 and all(map(_equal, made, expected)):
            proved[layer_type] = expected[0].dtype
    if not proved:
        raise LeftAlone("our angles are not its own")

    def forward(self: nn.Module, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> Any:
        layer_types = () if layer_type is None else (layer_type,)
        if layer_types not in proved or not setting.serves(x) or position_ids.dtype is not torch.long:
            return own(self, x, position_ids, *layer_types)
        if position_ids.dim() == 3 and not position_ids.stride(0):  # of text, height and width alike
            position_ids = position_ids[0]
        use.served = True
        return computed(self, layer_types, position_ids, proved[layer_types])

    return subclass(rotary, forward, "angles", use)


def _equal(made: Tensor, expected: Tensor) -> bool:
    tolerance = TOLERANCE[made.dtype]
    alike = made.shape == expected.shape and made.dtype is expected.dtype
    return alike and torch.allclose(made.float(), expected.float(), rtol=tolerance, atol=tolerance)
