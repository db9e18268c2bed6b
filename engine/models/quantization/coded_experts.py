"""A mixture's experts whose weights are codes: one weight of all experts' outputs, one expert's below another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from engine.kernels.codes import Codes, joined
from engine.models.expert_weights import WEIGHTS
from engine.models.routing import holds_experts

_BEFORE: ContextVar[Callable[[], None]] = ContextVar("before", default=lambda: None)
CODES = "coded"  # an attribute of a parameter that a quantizer left: what its numbers mean


class CodedExperts(nn.Module):
    """Computed by the model's own code, with weights that are made numbers anew for each call: what our kernels are
    proved against, and what computes where there are none."""

    def __init__(self, own: Any, gate_up: Codes, down: Codes, dtype: torch.dtype) -> None:
        super().__init__()
        self.num_experts, self.gate_up, self.down = int(own.num_experts), gate_up, down
        self.hidden, self.columns, self.dtype = gate_up.inputs, down.inputs, dtype  # that of its tokens
        for name in WEIGHTS:
            delattr(own, name)
            own.register_buffer(name, None)
        self._own = (own,)  # not a part of this one: it holds no weights

    @property
    def matrix(self) -> int:
        """How many weights there are."""
        return 3 * self.num_experts * self.hidden * self.columns

    def extra_weights(self) -> dict[str, Tensor]:
        """What is no parameter."""
        both = {"gate_up": self.gate_up, "down": self.down}
        return {f"{name}_{part}": tensor for name, codes in both.items() for part, tensor in codes.held.items()}

    def dense(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """`[experts, 2 * columns, hidden]` and `[experts, hidden, columns]`, made one after another: what an expert
        takes in between is little."""
        made = []
        for codes in (self.gate_up, self.down):
            outputs = codes.outputs // self.num_experts
            weight = codes.codes.new_empty((self.num_experts, outputs, codes.inputs), dtype=dtype)
            for expert, to in enumerate(weight):
                to.copy_(codes.rows(expert * outputs, (expert + 1) * outputs).numbers())
            made.append(weight)
        return made[0], made[1]

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        given = hidden_states, top_k_index, top_k_weights
        return functional_call(self._own[0], dict(zip(WEIGHTS, self.dense(hidden_states.dtype))), given)


@contextmanager
def before_each(told: Callable[[], None]) -> Iterator[None]:
    """`told` is called before each expert that is `coded` within, and may raise to stop."""
    reset = _BEFORE.set(told)
    try:
        yield
    finally:
        _BEFORE.reset(reset)


def coded(weight: Tensor, code: Callable[[Tensor], Codes]) -> nn.Parameter:
    """What takes the place of experts' weights `[experts, outputs, inputs]` while a model is read: their codes, which
    are made expert by expert."""
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
        gate_up, down = (getattr(getattr(part, name, None), CODES, None) for name in WEIGHTS)
        if holds_experts(path, part) and gate_up is not None and down is not None:
            before()
            module.set_submodule(path, CodedExperts(part, gate_up, down, dtype))
