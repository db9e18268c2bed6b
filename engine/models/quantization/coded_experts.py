"""A mixture's experts whose weights are codes: one weight of all experts' outputs, one expert's below another's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from engine.kernels.products.codes import Codes, joined
from engine.models.expert_weights import BIASES, WEIGHTS, Biases, in_halves, own_layout
from engine.models.routing import ALL, FIRST, all_experts, first_expert, holds_experts

_BEFORE: ContextVar[Callable[[], None]] = ContextVar("before", default=lambda: None)
CODES = "coded"  # an attribute of a parameter that a quantizer left: what its numbers mean


class CodedExperts(nn.Module):
    """Computed by the model's own code, expert by expert, with weights that are made numbers anew for each call: what
    our kernels are proved against, and what computes where there are none, slowly. So much memory as one expert takes
    is taken."""

    gate_up_bias: nn.Parameter | None
    down_bias: nn.Parameter | None

    def __init__(self, own: Any, gate_up: Codes, down: Codes, dtype: torch.dtype) -> None:
        super().__init__()
        own_biases = [getattr(own, name, None) for name in BIASES]
        self.in_turn = own_biases[0] is not None  # `own` holds all as `own_layout` says
        for name, bias in zip(("gate_up_bias", "down_bias"), own_biases, strict=True):
            ours = in_halves(bias, 1).flatten(1) if bias is not None and name == "gate_up_bias" else bias
            self.register_parameter(name, None if ours is None else nn.Parameter(ours.detach(), requires_grad=False))
        self.num_experts, self.gate_up, self.down = int(own.num_experts), gate_up, down
        self.hidden, self.columns, self.dtype = gate_up.inputs, down.inputs, dtype  # that of its tokens
        self.first_expert, self.all_experts = first_expert(own), all_experts(own)
        for name in (*WEIGHTS, *(BIASES if self.in_turn else ())):
            if hasattr(own, name):
                delattr(own, name)
            own.register_buffer(name, None)
        for name in (FIRST, ALL):  # it is asked for one expert at a time, its only one
            if hasattr(own, name):
                delattr(own, name)
        own.num_experts = 1
        self._own = (own,)  # not a part of this one: it holds no weights

    @property
    def biases(self) -> Biases | None:
        """Ours, where there are any."""
        if self.gate_up_bias is None or self.down_bias is None:
            return None
        return self.gate_up_bias, self.down_bias

    @property
    def matrix(self) -> int:
        """How many weights there are."""
        return 3 * self.num_experts * self.hidden * self.columns

    def extra_weights(self) -> dict[str, Tensor]:
        """What is no parameter."""
        both = {"gate_up": self.gate_up, "down": self.down}
        return {f"{name}_{part}": tensor for name, codes in both.items() for part, tensor in codes.held.items()}

    def dense(self, expert: int, dtype: torch.dtype) -> dict[str, Tensor]:
        """One expert's weights, `[1, 2 * columns, hidden]` and `[1, hidden, columns]`, and its biases, by their names,
        as its model holds them."""

        def of(codes: Codes) -> Tensor:
            outputs = codes.outputs // self.num_experts
            return codes.rows(expert * outputs, (expert + 1) * outputs).numbers().to(dtype)[None]

        held = dict(zip(WEIGHTS, (of(self.gate_up), of(self.down))))
        if self.biases is not None:
            held |= {name: bias[expert : expert + 1].to(dtype) for name, bias in zip(BIASES, self.biases)}
        return {name: own_layout(x, name) for name, x in held.items()} if self.in_turn else held

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        out = torch.zeros_like(hidden_states)
        captured = hidden_states.is_cuda and torch.cuda.is_current_stream_capturing()
        here = range(self.num_experts)
        ids = top_k_index - self.first_expert
        asked = here if captured else [expert for expert in ids.unique().tolist() if expert in here]
        for expert in asked:
            sent = ids == expert
            by = torch.where(sent, top_k_weights, 0).sum(-1, keepdim=True)
            # Where a graph is captured nobody may ask which tokens are sent here: all are computed, others by 0.
            rows = slice(None) if captured else sent.any(-1)
            given = hidden_states[rows], torch.zeros_like(ids[rows, :1]), by[rows]
            out[rows] += functional_call(self._own[0], self.dense(expert, hidden_states.dtype), given)
        return out


@contextmanager
def before_each(told: Callable[[], None]) -> Iterator[None]:
    """`told` is called before each expert that is `coded` within, and may raise to stop."""
    reset = _BEFORE.set(told)
    try:
        yield
    finally:
        _BEFORE.reset(reset)


def coded(weight: Iterable[Tensor], code: Callable[[Tensor], Codes]) -> nn.Parameter:
    """What takes the place of experts' weights, each `[outputs, inputs]`, while a model is read: their codes, which are
    made expert by expert."""
    made = []
    for one in weight:
        _BEFORE.get()()
        made.append(code(one))
    whole = joined(made)
    assert whole is not None, "one quantizer's codes are of one kind"
    parameter = nn.Parameter(whole.codes, requires_grad=False)
    setattr(parameter, CODES, whole)
    return parameter


def settle(module: nn.Module, dtype: torch.dtype, before: Callable[[], None]) -> None:
    """Gives each layer's experts whose weights became codes the module that knows what these mean; `before` is called
    before each, and may raise to stop."""
    for path, part in list(module.named_modules()):
        held: list[Any] = [getattr(part, name, None) for name in WEIGHTS]
        if holds_experts(path, part) and all(hasattr(weight, CODES) for weight in held):
            before()
            gate_up, down = (getattr(weight, CODES).to(weight.device) for weight in held)
            module.set_submodule(path, CodedExperts(part, gate_up, down, dtype))
