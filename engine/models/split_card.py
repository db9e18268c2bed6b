"""The card of a whole model of which each rank holds a part."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.checkpoints.info import ModelInfo
from engine.memory.rules import kv_token_bytes
from engine.trace.records import ModelCard


@dataclass(frozen=True, slots=True)
class StageFacts:
    """Of a stage's layers, as a card has them; `layer_kv` are pairs (kv_heads, head_dim)."""

    layer_kv: list[list[int]]
    windows: list[int]
    body_parameters: int
    expert_parameters: int
    head_parameters: int
    experts: int
    active_experts: int


def card_of_heads(card: ModelCard, info: ModelInfo, ranks: int) -> ModelCard:
    """Of whose heads rank 0, whose card is given, holds a part."""
    return replace(
        card,
        parameters=info.parameters,
        heads=card.heads * ranks,
        kv_heads=card.kv_heads * ranks,
        kv_token_bytes=card.kv_token_bytes * ranks,
        body_parameters=card.body_parameters * ranks,
        expert_parameters=card.expert_parameters * ranks,
        head_parameters=card.vocabulary * card.hidden,
    )


def card_of_stages(card: ModelCard, stages: Sequence[StageFacts], info: ModelInfo, item: int) -> ModelCard:
    """Of whose layers rank 0, whose card is given, holds some; `item`: bytes of a value of K and V."""
    windows = tuple(window for each in stages for window in each.windows)
    kv = [(heads, width) for each in stages for heads, width in each.layer_kv]
    return replace(
        card,
        parameters=info.parameters,
        layers=len(windows),
        windows=windows,
        kv_layers=len(kv),
        kv_token_bytes=kv_token_bytes(kv, item),
        body_parameters=sum(each.body_parameters for each in stages),
        expert_parameters=sum(each.expert_parameters for each in stages),
        head_parameters=stages[-1].head_parameters,
        experts=max(each.experts for each in stages),
        active_experts=max(each.active_experts for each in stages),
    )
