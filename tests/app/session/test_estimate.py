"""The memory that a model would lie in: that of the card which would be taken."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.session import estimate
from engine import ModelSpec, Parallel
from engine.core import Card

GIB = 1 << 30


def card(free: int, capability: tuple[int, int], display: int = 0) -> Card:
    told: dict[str, Any] = {
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(free=free * GIB, total=24 * GIB),
        "nvmlDeviceGetCudaComputeCapability": capability,
        "nvmlDeviceGetDisplayActive": display,
    }
    answers = {question: lambda handle, told=answer: told for question, answer in told.items()}
    return Card(SimpleNamespace(NVMLError=OSError, **answers), None)


@pytest.mark.parametrize(
    ("device", "cards", "kind", "free", "display"),
    [
        ("auto", [card(9, (8, 6), display=1)], "cuda", 9, True),
        ("auto", [card(9, (7, 5)), card(5, (8, 9))], "cuda", 5, False),
        ("cuda:1", [card(9, (8, 6)), card(5, (8, 9))], "cuda", 5, False),
        ("auto", [card(9, (7, 5))], "cpu", None, False),
        ("auto", [], "cpu", None, False),
        ("cpu", [card(9, (8, 6))], "cpu", None, False),
    ],
)
def test_the_room_is_the_memory_of_the_card_that_would_be_taken(
    monkeypatch: pytest.MonkeyPatch, device: str, cards: list[Card], kind: str, free: int | None, display: bool
) -> None:
    monkeypatch.setattr(estimate, "nvidia_driver", lambda: True)
    monkeypatch.setattr(estimate, "cards", lambda: cards)
    room = estimate.room(device)
    assert (room.kind, room.display) == (kind, display)
    assert free is None or room.free == free * GIB


def test_what_is_split_over_gpus_takes_a_part_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "nvidia_driver", lambda: True)
    monkeypatch.setattr(estimate, "cards", lambda: [card(9, (8, 6)), card(9, (8, 6))])
    one, two = (estimate.estimate(ModelSpec("demo", device="cuda", parallel=Parallel(n))) for n in (1, 2))
    on_cpu = estimate.estimate(ModelSpec("demo", device="cpu", parallel=Parallel(2)))
    assert one.weights / 2 < two.weights < 0.8 * one.weights, "each has the embedding"
    assert one.facts[0] == two.facts[0], "a token's keys and values are on both"
    assert (one.cards, two.cards, on_cpu.cards) == (2, 2, 0)
    assert on_cpu.weights > one.weights, "ranks on a CPU have one memory, and float32 there"
