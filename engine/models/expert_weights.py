"""The weights of a mixture's experts, as transformers holds them: those of a layer together."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from engine.models.plain_weights import is_plain

WEIGHTS = "gate_up_proj", "down_proj"
BIASES = "gate_up_proj_bias", "down_proj_bias"
Biases = tuple[Tensor, Tensor]  # [experts, 2 * columns], gates first, and [experts, hidden]


class HeldExperts(NamedTuple):
    """A layer's, as ours: `gate_up` `[experts, 2, columns, hidden]`, gates first, and `down` `[experts, hidden,
    columns]`, which are views; `biases`, where there are any. `in_turn`: the model holds them as `own_layout` says."""

    gate_up: Tensor
    down: Tensor
    biases: Biases | None = None
    in_turn: bool = False


def held(part: nn.Module, *names: str) -> list[Tensor] | None:
    """The weights of these names, if they are plain, of one dtype, and all that there is; else None."""
    rest = dict(part.named_parameters()) | dict(part.named_buffers())
    weights = [rest.pop(name, None) for name in names]
    found = [x.detach() for x in weights if x is not None and is_plain(x)]
    return None if rest or len(found) < len(names) or len({x.dtype for x in found}) > 1 else found


def held_by_experts(part: nn.Module) -> HeldExperts | None:
    """Those of a module that holds nothing else: `[experts, 2 * columns, hidden]` and `[experts, hidden, columns]`; or
    as gpt-oss has them, with biases and as `own_layout` says."""
    found = held(part, *WEIGHTS)
    if found is not None and all(x.dim() == 3 for x in found):
        gate_up, down = found
        experts, hidden, columns = down.shape
        if gate_up.shape == (experts, 2 * columns, hidden):
            return HeldExperts(gate_up.unflatten(1, (2, columns)), down)
    found = held(part, *WEIGHTS, *BIASES)
    if found is not None and [x.dim() for x in found] == [3, 3, 2, 2]:
        gate_up, down, *biases = found
        experts, columns, hidden = down.shape
        shapes = gate_up.shape, *(x.shape for x in biases)
        if shapes == ((experts, hidden, 2 * columns), (experts, 2 * columns), (experts, hidden)):
            both, of_down = in_halves(gate_up.transpose(1, 2), 1), down.transpose(1, 2)
            return HeldExperts(both, of_down, (in_halves(biases[0], 1).flatten(1), biases[1]), True)
    return None


def in_halves(x: Tensor, dim: int) -> Tensor:
    """`[..., 2, columns, ...]` of `[..., 2 * columns, ...]` where gates and what they gate come in turn; a view."""
    return x.unflatten(dim, (x.shape[dim] // 2, 2)).transpose(dim, dim + 1)


def own_layout(x: Tensor, name: str) -> Tensor:
    """Of a weight `[experts, outputs, inputs]`, or a bias `[experts, outputs]`, of ours, gates first, what gpt-oss has
    in its place: weights turned, `[experts, inputs, outputs]`, gates and what they gate in turn."""
    if name in (WEIGHTS[0], BIASES[0]):
        x = x.unflatten(1, (2, x.shape[1] // 2)).transpose(1, 2).flatten(1, 2)
    return x.transpose(1, 2) if name in WEIGHTS else x


def our_layout(weight: Tensor, name: str) -> Tensor:
    """The other way: of one expert's `[inputs, outputs]` `[outputs, inputs]`."""
    return in_halves(weight.t(), 0).flatten(0, 1) if name == WEIGHTS[0] else weight.t().contiguous()
