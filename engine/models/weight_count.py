"""A model's weights: how many there are, which of them multiply tokens, and the bytes that they are really held in."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.checkpoints.info import ACTIVE, EXPERTS
from engine.models.quantization.coded_experts import CodedExperts


@dataclass(frozen=True, slots=True)
class WeightCount:
    """Numbers of weights, however many a byte holds, as the model's card has them. `parameters`: every one of them, a
    tied one once; `body_parameters`: in matrices that the layers multiply tokens with, all experts counted;
    `expert_parameters`: those of them that belong to experts, of whom a token is sent to `active_experts` of `experts`;
    `head_parameters`: of the output layer, tied to the embedding or not, which only tokens go through whose logits are
    wanted. `bytes_per_weight`: of the body, as it is held, scales included."""

    parameters: int
    body_parameters: int
    head_parameters: int
    expert_parameters: int
    experts: int
    active_experts: int
    bytes_per_weight: float


def count_weights(module: PreTrainedModel) -> WeightCount:
    """Matrices are told by their shape: linear layers of any kind, and every other parameter of two dimensions or more
    that is no embedding and no bias."""
    head: Any = module.get_output_embeddings()
    head_weight = getattr(head, "weight", None)
    total = body = expert = stored = 0
    seen: set[int] = set()
    for path, part in module.named_modules():
        linear = _is_linear(part)
        tied = linear and id(next(part.parameters(recurse=False), None)) in seen
        if linear and not tied:
            matrix = int(part.in_features) * int(part.out_features)
            held = _bytes(tensor for name, tensor in _weights(part) if name != "bias")
            total += matrix
            if part is not head:
                body, stored = body + matrix, stored + held
                expert += matrix if "experts" in path.split(".") else 0
        if isinstance(part, CodedExperts):
            total, body, expert = (count + part.matrix for count in (total, body, expert))
            stored += _bytes(tensor for name, tensor in _weights(part) if not name.endswith("bias"))
        for name, parameter in part.named_parameters(recurse=False):
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            if linear and name != "bias":
                continue
            total += parameter.numel()
            if parameter.dim() < 2 or isinstance(part, nn.Embedding) or part is head or name.endswith("bias"):
                continue
            if parameter is head_weight:
                continue
            body += parameter.numel()
            stored += parameter.nbytes
            expert += parameter.numel() if "experts" in path.split(".") else 0
    config = module.config.get_text_config()
    experts = _first(config, EXPERTS) if expert else 0
    return WeightCount(
        parameters=total,
        body_parameters=body,
        head_parameters=int(head.in_features) * int(head.out_features) if _is_linear(head) else 0,
        expert_parameters=expert if experts else 0,
        experts=experts,
        active_experts=min(experts, _first(config, ACTIVE) or experts),
        bytes_per_weight=stored / body if body else 0.0,
    )


def held_bytes(module: nn.Module) -> int:
    """Bytes that a module's weights take in memory: parameters and buffers that a checkpoint holds, and what packing
    and quantizers keep beside them or instead, memory that several share counted once."""
    return _bytes(tensor for part in module.modules() for _, tensor in _weights(part))


def _bytes(tensors: Iterable[Tensor]) -> int:
    storages: dict[tuple[torch.device, int], int] = {}
    packed = 0
    for tensor in tensors:
        if tensor.layout is torch.strided:
            storage = tensor.untyped_storage()
            storages[tensor.device, storage.data_ptr()] = storage.nbytes()
        else:  # for oneDNN: its storage is not to be seen
            packed += tensor.nbytes
    return sum(storages.values()) + packed


def _is_linear(part: nn.Module) -> bool:
    return hasattr(part, "in_features") and hasattr(part, "out_features")


def _weights(part: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The plain tensors that a module itself holds of its weights, by the name of the attribute they belong to."""
    held: dict[str, object] = {**part._parameters}
    held |= {name: t for name, t in part._buffers.items() if name not in part._non_persistent_buffers_set}
    extra = getattr(part, "extra_weights", None)  # what our own layers keep that is neither
    if extra is not None:
        held |= extra()
    state = getattr(part, "state", None)  # bitsandbytes moves the 8-bit weights and their scales here
    if state is not None and hasattr(state, "SCB"):
        held |= {"CB": state.CB, "SCB": state.SCB}
    for name, value in held.items():
        for tensor in _plain(value):
            yield name, tensor


def _plain(value: object) -> Iterator[Tensor]:
    """The tensors that one is made of: a quantized one of its numbers, scales and tables."""
    if not isinstance(value, Tensor):
        return
    if hasattr(value, "__tensor_flatten__"):
        for name in value.__tensor_flatten__()[0]:
            yield from _plain(getattr(value, name))
        return
    yield value
    yield from _plain(getattr(value, "SCB", None))
    state = getattr(value, "quant_state", None)
    while state is not None:  # of bitsandbytes, nested where scales are quantized too
        for name in ("absmax", "code", "offset"):
            yield from _plain(getattr(state, name, None))
        state = getattr(state, "state2", None)


def widest_matrix(module: PreTrainedModel) -> tuple[int, int]:
    """The inputs and outputs of the largest linear layer but the head; (0, 0) where there is none."""
    head = module.get_output_embeddings()
    linears: list[Any] = [part for part in module.modules() if part is not head and _is_linear(part)]
    return max(((int(part.in_features), int(part.out_features)) for part in linears), key=prod, default=(0, 0))


def _first(config: object, names: tuple[str, ...]) -> int:
    return next((int(value) for name in names if (value := getattr(config, name, None))), 0)
