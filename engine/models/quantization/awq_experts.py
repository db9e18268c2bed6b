"""A mixture's experts as AWQ checkpoints hold them: one by one, three packed layers each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from engine.checkpoints.awq_settings import ROLES, expert_of
from engine.config.specs import InvalidInput
from engine.kernels.products.codes import Codes, joined
from engine.models.expert_weights import held_by_experts
from engine.models.quantization.awq_linear import AwqLinear, codes_of
from engine.models.quantization.coded_experts import CodedExperts
from engine.models.routing import holds_experts

Shapes = Mapping[str, tuple[int, ...]]
Layer = dict[tuple[int, str], str]  # what a checkpoint calls the packed layer of an expert and a role


class AwqExperts(nn.ModuleList):
    """What a checkpoint is read into, in the place of a layer's experts; `ready` makes what computes of it."""

    def __init__(self, own: Any, names: Layer, group: int) -> None:
        experts = [nn.ModuleDict() for _ in range(own.num_experts)]
        with torch.device("meta"):
            for (expert, role), name in names.items():
                experts[expert][name.rpartition(".")[2]] = AwqLinear(*sizes(own, role), group)
        super().__init__(experts)
        self._own = (own,)  # not a part of this one: it holds no weights

    def ready(self, dtype: torch.dtype) -> CodedExperts:
        """What computes of these codes, for tokens of that dtype."""
        made: dict[str, list[Codes]] = {"gate": [], "up": [], "down": []}
        for expert in self:
            for name, linear in expert.named_children():
                assert isinstance(linear, AwqLinear)
                made[ROLES[name]].append(codes_of(linear))
        gate_up = joined([part for both in zip(made["gate"], made["up"], strict=True) for part in both])
        down = joined(made["down"])
        assert gate_up is not None
        assert down is not None, "one checkpoint's codes are of one kind"
        return CodedExperts(self._own[0], gate_up, down, dtype)


def sizes(own: Any, role: str) -> tuple[int, int]:
    """The inputs and outputs of an expert's gates, of what these gate, or of what follows."""
    hidden, columns = own.down_proj.shape[1:]
    return (columns, hidden) if role == "down" else (hidden, columns)


def packed_experts(model: nn.Module, shapes: Shapes) -> Iterator[tuple[str, Any, Layer]]:
    """The path of each layer's experts that a checkpoint holds packed, the module, and what it calls theirs. Raises
    InvalidInput where they are not all there, or the model here holds them otherwise."""
    layers = defaultdict[str, Layer](dict)
    for name in shapes:
        if name.endswith(".qweight") and (found := expert_of(name)) is not None:
            layer, expert, role = found
            layers[layer][expert, role] = name.removesuffix(".qweight")
    for path, part in list(model.named_modules()):
        number = next((name for name in path.split(".") if name.isdigit()), "")
        if not holds_experts(path, part) or number not in layers:
            continue
        names = layers.pop(number)
        held = held_by_experts(part)
        if held is None or held.in_turn:
            raise InvalidInput(
                f"the experts of layer {number} are AWQ, and the model holds them in a layout that AWQ is not run for; "
                "use the original model"
            )
        if more := [name for (expert, _), name in names.items() if expert >= part.num_experts]:
            raise InvalidInput(
                f"this checkpoint holds {more[0]}, and config.json tells of {part.num_experts} experts a layer; fetch "
                "the model again"
            )
        for expert in range(int(part.num_experts)):
            for role in ("gate", "up", "down"):
                if (expert, role) not in names:
                    raise InvalidInput(
                        f"layer {number}: expert {expert} has no AWQ weights for its {role} projection; fetch the "
                        "model again"
                    )
        yield path, part, names
    if layers:
        name = next(iter(next(iter(layers.values())).values()))
        raise InvalidInput(
            f"this checkpoint holds {name} as AWQ, which is no expert of the model here; use the original"
        )


def settle(module: nn.Module, dtype: torch.dtype, before: Callable[[], None]) -> None:
    """Gives each layer whose experts were read packed what computes of them; `before` is called before each, and may
    raise to stop."""
    for path in [path for path, part in module.named_modules() if isinstance(part, AwqExperts)]:
        before()
        part = module.get_submodule(path)
        assert isinstance(part, AwqExperts)
        module.set_submodule(path, part.ready(dtype))
        del part  # what it held is freed before the next
