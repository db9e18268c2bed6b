"""Mixtures of experts on a CPU whose weights are held in the layout that our kernels multiply, and what decides where
each token goes.

transformers sorts tokens by their experts in torch, reads the counts, and multiplies expert by expert: no such step can
be recorded. Each module is proved against the one whose place it takes, on noise; what is not proved stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from engine.kernels.cpu import calls as native
from engine.kernels.cpu.experts import GATES, MOST, ExpertWeights, route
from engine.kernels.cpu.large_pages import LargePages
from engine.kernels.silu_mul import Activation
from engine.models.fusion.kernels import kernels_for
from engine.models.fusion.mixtures import drawn, held, held_by_experts, kind_of_router, near, told
from engine.models.fusion.parts import Setting
from engine.models.routing import all_experts, first_expert, holds_experts

EXPERTS, ROUTERS = "experts", ("gate", "router")  # what a layer calls them


class PackedExperts(nn.Module):
    """Those of a layer. Results differ from transformers' by rounding only: it rounds what each expert gives."""

    counts_itself = True
    _tally: Tensor | None = None

    def __init__(self, weights: ExpertWeights, activation: Activation, part: nn.Module) -> None:
        super().__init__()
        self.num_experts, self.weights, self.activation = weights.experts, weights, activation
        self.first_expert, self.all_experts = first_expert(part), all_experts(part)

    def extra_weights(self) -> dict[str, Tensor]:
        """What is no parameter."""
        return {"packed_gate_up": self.weights.gate_up, "packed_down": self.weights.down}

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        return self.weights(hidden_states, top_k_index, top_k_weights, self.activation, self._tally, self.first_expert)

    __call__ = forward  # hooks are not heard, as of a packed linear layer


class CompiledRouter(nn.Module):
    """A softmax over a linear layer, `each` experts of which a token is sent to; `whole`: by weights that are 1
    together, of this dtype."""

    def __init__(self, weight: nn.Parameter, each: int, whole: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight, self.each, self.whole, self.dtype = weight, each, whole, dtype

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        return route(x, self.weight, self.each, self.whole, self.dtype)

    __call__ = forward


def pack_experts(module: nn.Module) -> None:
    """Replaces the experts of a module on a CPU, and what routes tokens to them, where our kernels are proved to
    compute the same. The weights that were packed are freed, layer by layer. With Triton's interpreter on they stay, as
    on a GPU."""
    room, refused = LargePages(), set[type]()
    for path in [path for path, part in module.named_modules() if holds_experts(path, part)]:
        block = module.get_submodule(path.rpartition(".")[0])
        for name in (EXPERTS, *ROUTERS):
            part = getattr(block, name, None)
            if not isinstance(part, nn.Module) or type(part) in refused:
                continue
            with torch.no_grad():
                made = _experts(part, room) if name == EXPERTS else _router(part)
            if made is None:
                refused.add(type(part))
            else:
                setattr(block, name, made)


def _computes(weights: Sequence[Tensor]) -> bool:
    """Whether our kernels compute with such weights on a CPU, of such a width."""
    kernels = kernels_for("cpu", weights[0].dtype)
    on_cpu = all(x.device.type == "cpu" for x in weights)
    return on_cpu and kernels is not None and not kernels.on_gpu and weights[0].shape[-1] % 2 == 0


def _experts(part: nn.Module, room: LargePages) -> PackedExperts | None:
    held_there = held_by_experts(part)
    if held_there is None or not _computes(held_there):
        return None
    gate_up, down = held_there
    experts, hidden, _ = down.shape
    given = drawn(Setting(down.dtype, down.device), hidden, experts, first=first_expert(part))
    expected = told(part, *given)
    if not isinstance(expected, Tensor):
        return None
    weights = ExpertWeights.of(gate_up, down, room)
    made = (PackedExperts(weights, activation, part) for activation in GATES)
    return next((one for one in made if near(one(*given), expected)), None)


def _router(part: nn.Module) -> CompiledRouter | None:
    weights = held(part, "weight")
    if weights is None or weights[0].dim() != 2 or not _computes(weights):
        return None
    (weight,) = weights

    def of_logits(logits: Tensor, each: int, whole: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        if each > MOST or not native.computes(dtype):
            return None
        return route(logits, torch.eye(len(weight), dtype=logits.dtype), each, whole, dtype)[1:]

    kind = kind_of_router(part, weight, Setting(weight.dtype, weight.device), of_logits)
    return None if kind is None else CompiledRouter(nn.Parameter(weight, requires_grad=False), *kind)
