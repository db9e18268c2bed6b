"""What kernels of layers that keep a state of a sequence are told."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sequences:
    """Whose tokens are computed: of each the slot of its sequence, int32 `[tokens]`, and its position there, int64.
    Those of one sequence come one after another; at position 0 it has no state yet, whatever the slot holds."""

    slots: Tensor
    positions: Tensor


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The fixed part of a gated delta rule (https://arxiv.org/abs/2412.06464, section 3): `decay`, `bias` `[heads]` and
    `norm` `[value]`, float32; `groups` of heads that share queries and keys."""

    decay: Tensor
    bias: Tensor
    norm: Tensor
    groups: int
    eps: float
