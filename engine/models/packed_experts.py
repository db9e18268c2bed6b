"""Mixtures of experts on a CPU whose weights are held in the layout that our kernels multiply, and what decides where
each token goes.

transformers sorts tokens by their experts in torch, reads the counts, and multiplies expert by expert: no such step can
be recorded. Each module is proved against the one whose place it takes, on noise; what is not proved stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from engine.kernels.cpu import calls as native
from engine.kernels.cpu.codes import multiplies
from engine.kernels.cpu.experts import GATES, MOST, ExpertWeights, padding, route
from engine.kernels.cpu.large_pages import LargePages
from engine.kernels.silu_mul import Activation
from engine.models.expert_weights import held, held_by_experts
from engine.models.fusion.kernels import kernels_for
from engine.models.fusion.mixtures import ROUNDED, drawn, kind_of_router, may_be, near, told
from engine.models.fusion.parts import Setting
from engine.models.quantization.coded_experts import CodedExperts
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
        return self.weights.held

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        return self.weights(hidden_states, top_k_index, top_k_weights, self.activation, self._tally, self.first_expert)

    __call__ = forward  # hooks are not heard, as of a packed linear layer


class CompiledRouter(nn.Module):
    """A softmax over a linear layer, `each` experts of which a token is sent to; `whole`: by weights that are 1
    together, of this dtype."""

    def __init__(
        self, weight: nn.Parameter, bias: nn.Parameter | None, each: int, whole: bool, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.bias = bias
        self.weight, self.each, self.whole, self.dtype = weight, each, whole, dtype

    def forward(self, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        return route(x, self.weight, self.each, self.whole, self.dtype, self.bias)

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
    make = _coded(part) if isinstance(part, CodedExperts) else _plain(part)
    if make is None:
        return None
    experts, hidden, dtype, pack = make
    given = drawn(Setting(dtype, torch.device("cpu")), hidden, experts, first=first_expert(part))
    expected = told(part, *given)
    if not isinstance(expected, Tensor):
        return None
    weights = pack(room)
    made = (PackedExperts(weights, activation, part) for activation in GATES if may_be(part, activation))
    return next((one for one in made if near(one(*given), expected, ROUNDED)), None)


Packing = tuple[int, int, torch.dtype, Callable[[LargePages], ExpertWeights]]  # experts, hidden, and how they are laid


def _plain(part: nn.Module) -> Packing | None:
    found = held_by_experts(part)
    if found is None or not _computes((found.down, found.gate_up)):
        return None
    experts, hidden, _ = found.down.shape
    return experts, hidden, found.down.dtype, partial(ExpertWeights.of, found.gate_up, found.down, biases=found.biases)


def _coded(part: CodedExperts) -> Packing | None:
    codes, dtype = (part.gate_up, part.down), part.dtype
    kernels = kernels_for("cpu", dtype)
    if kernels is None or kernels.on_gpu or any(one.codes.device.type != "cpu" for one in codes):
        return None
    served = all(multiplies(one.coding, one.inputs, one.group, dtype) for one in codes)
    if not served or not part.down.can_have(padding(part.columns)):
        return None
    pack = partial(ExpertWeights.of_codes, *codes, part.num_experts, biases=part.biases)
    return part.num_experts, part.hidden, dtype, pack


def _router(part: nn.Module) -> CompiledRouter | None:
    weights = held(part, "weight") or held(part, "weight", "bias")
    if weights is None or weights[0].dim() != 2 or not _computes(weights[:1]):
        return None
    weight, *bias = weights

    def of_logits(logits: Tensor, each: int, whole: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor] | None:
        if each > MOST or not native.computes(dtype):
            return None
        return route(logits, torch.eye(len(weight), dtype=logits.dtype), each, whole, dtype)[1:]

    kind = kind_of_router(part, weights, Setting(weight.dtype, weight.device), of_logits)
    made = [nn.Parameter(x, requires_grad=False) for x in weights]
    return None if kind is None else CompiledRouter(made[0], made[1] if bias else None, *kind)
