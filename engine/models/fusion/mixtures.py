"""Mixtures of experts: what decides where each token goes, and what the experts make of it. Each part is proved, on
noise, against the one whose place it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from engine.kernels.products.expert_codes import ExpertCodes, serves, table_for
from engine.kernels.products.gemv import DTYPES, gemv, is_row
from engine.kernels.silu_mul import Activation
from engine.memory.allocator import ran_out
from engine.models.expert_weights import Biases, held, held_by_experts
from engine.models.fusion.parts import TOLERANCE, FusedPart, LeftAlone, Setting, Use, subclass
from engine.models.quantization.coded_experts import CodedExperts
from engine.models.routing import COUNTS_ITSELF, all_experts, first_expert, in_order, tally_of

EXPERTS, ROUTER = "experts", "router"
NO_WEIGHT = 1e-6  # of an expert that is as good as any other
SCALES = 0.01, 0.1, 1.0, 3.0, 10.0  # of a proof's tokens: what gates gate is squared, and may leave float16
ROUNDED = 2  # times as often as other parts: products, biases, gates, what they gate, and what comes of all
CLAMPED = 1.702, 7.0  # what the `CLAMPED` activation is told of
TIMES = 0, 1, 3  # an expert, that experts are proved with more tokens: many are cut otherwise, but in float32
Weight = Tensor | ExpertCodes
Route = Callable[[Tensor, int, bool, torch.dtype], tuple[Tensor, Tensor] | None]  # as `engine.kernels.routing`'s


def drawn(setting: Setting, hidden: int, experts: int, times: int = 1, first: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens of noise, where they are sent of the experts from `first` on, and by which weights; of more than two of
    these one has no token."""
    scales = torch.tensor(SCALES, device=setting.device).repeat(2 * times)[:, None]
    x, random = setting.draw(len(scales), hidden, seed=1) * scales, torch.Generator().manual_seed(4)
    x = x.to(setting.dtype)
    order = torch.rand(len(x), experts, generator=random)
    order[:, -1] = 2.0
    ids, weights = order.argsort()[:, :2] + first, torch.rand(len(x), min(experts, 2), generator=random)
    return x, ids.to(x.device), weights.to(x)


def told(part: nn.Module, *given: Tensor) -> Any:
    """What a module gives; None where it takes something else. Raises where memory does not suffice."""
    try:
        return part(*given)
    except Exception as error:  # a model's own code, which need not know such arguments
        if ran_out(error):
            raise
        return None


def near(made: Tensor, expected: Any, times: int = 1) -> bool:
    """Whether no value is further off than roundings of its row's largest, and so many `times`; zeros prove nothing."""
    if not isinstance(expected, Tensor) or made.dtype is not expected.dtype or made.shape != expected.shape:
        return False
    off, most = ((x.float().abs()).amax(-1) for x in (made.float() - expected.float(), expected))
    return bool(expected.any()) and bool((off <= times * TOLERANCE[made.dtype] * most).all())


def may_be(part: nn.Module, activation: Activation) -> bool:
    """Whether experts can have this activation, as far as they tell: noise need not reach its bounds."""
    own = part._own[0] if isinstance(part, CodedExperts) else part
    bounds = getattr(own, "alpha", None), getattr(own, "limit", None)
    return bounds == CLAMPED if activation is Activation.CLAMPED else True


def kind_of_router(
    part: nn.Module, layer: Sequence[Tensor], setting: Setting, route: Route
) -> tuple[int, bool, torch.dtype] | None:
    """How many experts it sends a token to, whether by weights that are 1 together, and their dtype, if it is
    `route` of the logits of a linear `layer`, its weight and perhaps a bias; else None, as where `route` computes no
    such thing."""
    weight, bias = layer[0], layer[1] if len(layer) > 1 else None
    x = torch.cat([setting.draw(8, weight.shape[1], seed=5), setting.draw(8, weight.shape[1], seed=6) / 8])
    found = told(part, x)
    if not isinstance(found, tuple) or len(found) != 3 or any(not isinstance(one, Tensor) for one in found):
        return None
    logits, weights, ids = found
    each, experts = ids.shape[-1], len(weight)
    if logits.dtype is not x.dtype or logits.shape != (len(x), experts) or weights.dtype not in TOLERANCE:
        return None
    if ids.dtype is not torch.long or not ids.shape == weights.shape == (len(x), each) or each > experts:
        return None
    if ids.amin() < 0 or ids.amax() >= experts or not near(nn.functional.linear(x, weight, bias), logits):
        return None
    for whole in (True, False):
        routed = route(logits, each, whole, weights.dtype)
        if routed is None:
            return None
        by, chosen = routed
        same = (logits.gather(1, chosen) == logits.gather(1, ids)) | (weights < NO_WEIGHT)
        if same.all() and near(by, weights):
            return each, whole, weights.dtype
    return None


def fused_experts(part: nn.Module, setting: Setting) -> FusedPart:
    compute, own = setting.kernels.experts, type(part).forward
    assert compute is not None
    weights_of = _weights_of(part, setting.dtype)
    *weights, biases = weights_of(part)
    (experts, hidden, _), first, whole = weights[1].shape, first_expert(part), all_experts(part)
    tried = TIMES[:1] if setting.dtype is torch.float32 else TIMES
    cases = [drawn(setting, hidden, experts, max(1, times * experts), first) for times in tried]
    expected = [told(part, *given) for given in cases]

    def right(activation: Activation) -> bool:
        return all(
            near(compute(*given, *weights, activation, first=first, whole=whole, biases=biases), out, ROUNDED)
            for given, out in zip(cases, expected)
        )

    activation = next((one for one in Activation if may_be(part, one) and right(one)), None)
    if activation is None:
        raise LeftAlone("its experts compute something else")
    use, ordered = Use(), in_order(own)

    def forward(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        x, ids, by = ordered(args, kwargs)
        if not setting.serves(x):
            return own(self, x, ids, by)
        use.served = True
        *held, biases = weights_of(self)
        counted = tally_of(self, len(x))
        return compute(x, ids, by, *held, activation, *counted, first=first, whole=whole, biases=biases)

    fused = subclass(part, forward, EXPERTS, use)
    setattr(fused.cls, COUNTS_ITSELF, True)
    return fused


def _weights_of(part: nn.Module, dtype: torch.dtype) -> Callable[[Any], tuple[Weight, Weight, Biases | None]]:
    """What tells the weights and biases of a module like this one. Raises LeftAlone where they are none of ours."""
    if isinstance(part, CodedExperts):
        codes = part.gate_up, part.down
        if not all(serves(one) for one in codes):
            raise LeftAlone("its codes are none of those that our kernel multiplies")
        (gates, downs), experts = (table_for(one, dtype) for one in codes), part.num_experts
        return lambda self: (
            *(ExpertCodes(self.gate_up, experts, gates), ExpertCodes(self.down, experts, downs)),
            self.biases,
        )
    found = held_by_experts(part)
    if found is None or found.in_turn or found.down.dtype is not dtype:
        raise LeftAlone("its weights are not laid out as ours")
    return lambda self: (self.gate_up_proj, self.down_proj, None)


def fused_router(part: nn.Module, setting: Setting) -> FusedPart:
    route, own, use = setting.kernels.route, type(part).forward, Use()
    assert route is not None
    weights = held(part, "weight") or held(part, "weight", "bias")
    if weights is None or weights[0].dim() != 2 or weights[0].dtype is not setting.dtype:
        raise LeftAlone("it holds more than a linear layer")
    kind, biased = kind_of_router(part, weights, setting, route), len(weights) > 1
    if kind is None:
        raise LeftAlone("it routes in another way than ours")

    def forward(self: Any, hidden_states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if not setting.serves(hidden_states):
            return own(self, hidden_states)
        use.served = True
        x = hidden_states.reshape(-1, hidden_states.shape[-1])
        single = is_row(x) and x.dtype in DTYPES
        bias = self.bias if biased else None
        logits = gemv(x, self.weight, bias) if single else nn.functional.linear(x, self.weight, bias)
        return logits, *route(logits, *kind)

    return subclass(part, forward, ROUTER, use)
