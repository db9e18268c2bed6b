"""What layers keep that keep a state of a sequence, as the shapes of their weights and the config tell it. No torch.

A convolution over the last K tokens keeps these of each channel: its weights are `[channels, 1, K]`. A recurrence keeps
a matrix for each head, or one number for each that its decay A has, in float32: `A_log` says how many.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

WHOLE = ("falcon_h1",)  # model types whose layers attend and keep a state, all of them
_LAYER = re.compile(r"\.(\d+)\.")
_CONVOLUTION = re.compile(r"conv[^.]*\.weight$")
_ATTENDS = re.compile(r"\.(k_proj|qkv_proj|kv_a_proj_with_mqa)\.")
_SIDES = (
    ("linear_key_head_dim", "linear_value_head_dim"),
    ("mamba_d_head", "mamba_d_state"),
    ("mamba_head_dim", "ssm_state_size"),
    ("linear_head_dim", "linear_head_dim"),
)
FLOAT = 4  # bytes of a number of a recurrence's


@dataclass(frozen=True, slots=True)
class StoredStates:
    """`layers` that keep one, and how many `attend`; of a sequence, over all layers, the numbers that convolutions keep
    (`recent`, in the model's dtype) and recurrences (`carried`)."""

    layers: int = 0
    attend: int = 0
    recent: int = 0
    carried: int = 0

    def bytes(self, item: int) -> int:
        """Of a sequence, where a number of the model takes `item` bytes."""
        return self.recent * item + self.carried * FLOAT


def stored_states(config: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> StoredStates:
    """Of a checkpoint; none of a model whose layers all attend."""
    sides = next(((config[a], config[b]) for a, b in _SIDES if config.get(a) and config.get(b)), (0, 0))
    keep, attend, recent, carried = set[str](), set[str](), 0, 0
    for name, shape in shapes.items():
        if (found := _LAYER.search(name)) is None:
            continue
        if _CONVOLUTION.search(name) and len(shape) == 3 and shape[1] == 1:
            keep.add(found[1])
            recent += prod(shape)
        elif name.endswith("A_log"):
            keep.add(found[1])
            heads = prod(shape)
            carried += heads if sum(size > 1 for size in shape) > 1 else heads * prod(sides)
        elif _ATTENDS.search(name):
            attend.add(found[1])
    both = keep & attend if config.get("model_type") in WHOLE else set[str]()
    return StoredStates(len(keep), len(attend - keep | both), recent, carried) if keep else StoredStates()
