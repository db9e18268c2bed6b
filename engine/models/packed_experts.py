"""Mixtures of experts on a CPU whose weights are held in the layout that our kernels multiply, and what decides where
each token goes.

transformers sorts tokens by their experts in torch, reads the counts, and multiplies expert by expert: no such step can
be recorded. Each module is proved against the one whose place it takes, on noise; what is not proved stays.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from engine.kernels.cpu import calls as native
from engine.kernels.cpu.experts import GATES, MOST, ExpertWeights, route
from engine.kernels.cpu.large_pages import LargePages
from engine.kernels.silu_mul import Activation
from engine.models.fusion.kernels import kernels_for
from engine.models.fusion.parts import TOLERANCE, Setting
from engine.models.plain_weights import is_plain
from engine.models.routing import holds_experts

EXPERTS, ROUTERS = "experts", ("gate", "router")  # what a layer calls them
NO_WEIGHT = 1e-6  # of an expert that is as good as any other


class PackedExperts(nn.Module):
    """Those of a layer. Results differ from transformers' by rounding only: it rounds what each expert gives."""

    counts_itself = True
    _tally: Tensor | None = None

    def __init__(self, weights: ExpertWeights, activation: Activation) -> None:
        super().__init__()
        self.num_experts, self.weights, self.activation = weights.experts, weights, activation

    def extra_weights(self) -> dict[str, Tensor]:
        """What is no parameter."""
        return {"packed_gate_up": self.weights.gate_up, "packed_down": self.weights.down}

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        return self.weights(hidden_states, top_k_index, top_k_weights, self.activation, self._tally)

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


def _held(part: nn.Module, *names: str) -> list[Tensor] | None:
    """The weights of these names, if they are plain, of a dtype and a width that are computed, and all that there is;
    else None."""
    held = dict(part.named_parameters()) | dict(part.named_buffers())
    weights = [held.pop(name, None) for name in names]
    found = [x.detach() for x in weights if x is not None and is_plain(x) and x.device.type == "cpu"]
    if held or len(found) < len(names) or len({x.dtype for x in found}) > 1:
        return None
    kernels = kernels_for("cpu", found[0].dtype)
    return found if kernels is not None and not kernels.on_gpu and found[0].shape[-1] % 2 == 0 else None


def _experts(part: nn.Module, room: LargePages) -> PackedExperts | None:
    held = _held(part, "gate_up_proj", "down_proj")
    if held is None or any(x.dim() != 3 for x in held):
        return None
    gate_up, down = held
    experts, hidden, columns = down.shape
    if gate_up.shape != (experts, 2 * columns, hidden):
        return None
    x, random = Setting(down.dtype, down.device).magnitudes(hidden), torch.Generator().manual_seed(4)
    order = torch.rand(len(x), experts, generator=random)
    order[:, -1] = 2.0  # one has no token, where there are more than two
    given = x, order.argsort()[:, :2], torch.rand(len(x), min(experts, 2), generator=random).to(x.dtype)
    expected = _told(part, *given)
    if not isinstance(expected, Tensor):
        return None
    weights = ExpertWeights.of(gate_up, down, room)
    made = (PackedExperts(weights, activation) for activation in GATES)
    return next((one for one in made if _near(one(*given), expected)), None)


def _router(part: nn.Module) -> CompiledRouter | None:
    held = _held(part, "weight")
    if held is None or held[0].dim() != 2:
        return None
    (weight,) = held
    setting = Setting(weight.dtype, weight.device)
    x = torch.cat([setting.draw(8, weight.shape[1], seed=5), setting.draw(8, weight.shape[1], seed=6) / 8])
    told = _told(part, x)
    if not isinstance(told, tuple) or len(told) != 3 or any(not isinstance(one, Tensor) for one in told):
        return None
    logits, weights, ids = told
    if not (logits.dtype is x.dtype and logits.shape == (len(x), len(weight)) and native.computes(weights.dtype)):
        return None
    each, experts = ids.shape[-1], len(weight)
    if ids.dtype is not torch.long or not ids.shape == weights.shape == (len(x), each) or each > min(MOST, experts):
        return None
    if ids.amin() < 0 or ids.amax() >= experts:
        return None
    for whole in (True, False):
        _, by, chosen = route(logits, torch.eye(experts, dtype=x.dtype), each, whole, weights.dtype)
        same = (logits.gather(1, chosen) == logits.gather(1, ids)) | (weights < NO_WEIGHT)
        if same.all() and _near(by, weights):
            made = CompiledRouter(nn.Parameter(weight, requires_grad=False), each, whole, weights.dtype)
            return made if _near(made(x)[0], logits) else None
    return None


def _told(part: nn.Module, *given: Tensor) -> Any:
    """What a module gives; None where it takes something else."""
    try:
        return part(*given)
    except Exception:  # a model's own code, which need not know such arguments
        return None


def _near(made: Tensor, expected: Tensor) -> bool:
    """Whether no value is further off than roundings of its row's largest; zeros prove nothing."""
    if made.dtype is not expected.dtype or made.shape != expected.shape or not expected.any():
        return False
    off, most = ((x.float().abs()).amax(-1) for x in (made.float() - expected.float(), expected))
    return bool((off <= TOLERANCE[made.dtype] * most).all())
