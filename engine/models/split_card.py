"""The card of a whole model of which each rank holds a part."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.checkpoints.info import ModelInfo
from engine.trace.records import ModelCard


@dataclass(frozen=True, slots=True)
class StageFacts:
    """What a stage tells rank 0 of its layers, as a card has it."""

    windows: list[int]
    body_parameters: int
    expert_parameters: int
    head_parameters: int
    experts: int
    active_experts: int


def facts_of(card: ModelCard) -> StageFacts:
    """Of the card of a stage's own part."""
    counts = card.body_parameters, card.expert_parameters, card.head_parameters, card.experts, card.active_experts
    return StageFacts(list(card.windows), *counts)


def card_of_heads(card: ModelCard, info: ModelInfo, ranks: int) -> ModelCard:
    """Of whose heads rank 0, whose card is given, holds a part."""
    return replace(
        card,
        parameters=info.parameters,
        heads=card.heads * ranks,
        kv_heads=card.kv_heads * ranks,
        body_parameters=card.body_parameters * ranks,
        expert_parameters=card.expert_parameters * ranks,
        head_parameters=card.vocabulary * card.hidden,
    )


def card_of_stages(card: ModelCard, stages: Sequence[StageFacts], info: ModelInfo) -> ModelCard:
    """Of whose layers rank 0, whose card is given, holds some."""
    windows = tuple(window for each in stages for window in each.windows)
    return replace(
        card,
        parameters=info.parameters,
        layers=len(windows),
        windows=windows,
        body_parameters=sum(each.body_parameters for each in stages),
        expert_parameters=sum(each.expert_parameters for each in stages),
        head_parameters=stages[-1].head_parameters,
        experts=max(each.experts for each in stages),
        active_experts=max(each.active_experts for each in stages),
    )
