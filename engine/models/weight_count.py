"""Which of a model's weights multiply tokens: what a step has to read and to compute is counted from them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedModel

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k")


@dataclass(frozen=True, slots=True)
class WeightCount:
    """Numbers of weights. `body`: in matrices that the layers multiply tokens with, all experts counted; `expert`:
    those of `body` that belong to experts, of whom a token is sent to `active` of `experts`; `head`: of the output
    layer, tied to the embedding or not, which only tokens go through whose logits are wanted. `bytes_per_weight`: of
    the body, as it is stored."""

    body: int
    head: int
    expert: int
    experts: int
    active: int
    bytes_per_weight: float


def count_weights(module: PreTrainedModel) -> WeightCount:
    """Matrices are told by their shape: every parameter of two dimensions or more that is no embedding and no bias.
    Call it before the linear layers are packed."""
    head = module.get_output_embeddings()
    head_weight = getattr(head, "weight", None)
    body = expert = stored = 0
    for path, part in module.named_modules():
        if isinstance(part, nn.Embedding) or part is head:
            continue
        for name, parameter in part.named_parameters(recurse=False):
            if parameter.dim() < 2 or name.endswith("bias") or parameter is head_weight:
                continue
            count = parameter.numel()
            if name == "weight" and isinstance(part, nn.Linear):  # a quantizer's may hold several weights in a byte
                count = part.in_features * part.out_features
            body += count
            stored += parameter.numel() * parameter.element_size()
            if any(piece == "experts" for piece in path.split(".")):
                expert += count
    config = module.config.get_text_config()
    experts = _first(config, EXPERTS) if expert else 0
    return WeightCount(
        body=body,
        head=0 if head_weight is None else head_weight.numel(),
        expert=expert if experts else 0,
        experts=experts,
        active=min(experts, _first(config, ACTIVE) or experts),
        bytes_per_weight=stored / body if body else 0.0,
    )


def widest_matrix(module: PreTrainedModel) -> tuple[int, int]:
    """The inputs and outputs of the largest linear layer but the head; (0, 0) where there is none."""
    head = module.get_output_embeddings()
    shapes = [
        (int(part.in_features), int(part.out_features))
        for part in module.modules()
        if part is not head and hasattr(part, "in_features") and hasattr(part, "out_features")
    ]
    return max(shapes, key=lambda shape: shape[0] * shape[1], default=(0, 0))


def _first(config: object, names: tuple[str, ...]) -> int:
    return next((int(value) for name in names if (value := getattr(config, name, None))), 0)
