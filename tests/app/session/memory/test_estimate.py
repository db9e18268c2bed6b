"""The memory that a model would lie in: that of the card which would be taken."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

import resources
from app.models.fit.breakdown import bills
from app.quality.subject import examine
from app.session.memory import estimate
from engine import EngineConfig, ModelSpec, Parallel
from engine.checkpoints import ModelEntry, Place, inspect_model
from engine.core import Card
from engine.memory import TAKEN, DeviceMemory, fits

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
    assert free is None or (room.free, room.runtime) == (free * GIB - TAKEN, TAKEN)


def test_driver_and_libraries_are_counted_once_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a model has is what the card says is free but for them; with a model of ours there they are taken already,
    and without any model it is all that is free."""
    monkeypatch.setattr(estimate, "nvidia_driver", lambda: True)
    monkeypatch.setattr(estimate, "cards", lambda: [card(9, (8, 6))])
    spec = ModelSpec("demo", device="cuda")
    found = estimate.estimate(spec)
    assert found.fit == fits(inspect_model("demo"), DeviceMemory("cuda", 9 * GIB - TAKEN, 24 * GIB))[0]
    assert estimate.needed_and_free(spec) == (found.weights, 9 * GIB - TAKEN)
    assert estimate.needed_and_free(ModelSpec("demo", device="cpu"))[0] > estimate.RUNTIME
    assert estimate.empty("cuda").free == 9 * GIB
    beside, alone = (bills(inspect_model("demo"), "auto", "cuda", held, 8, 64) for held in (GIB, 0))
    assert (beside.room.free, alone.room.free) == (10 * GIB, 9 * GIB - TAKEN)
    assert examine(spec).need(()) == examine(spec).needed, "which is held against what is free but for them"


def test_of_a_model_in_the_cache_as_much_is_known_as_of_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    cached = ModelEntry("someone/stories", "", Place.CACHE, resources.path("models/stories-5m"))
    monkeypatch.setattr("engine.checkpoints.catalog.cached_models", lambda: [cached])
    needed, _ = estimate.needed_and_free(ModelSpec("someone/stories", device="cpu"))
    assert needed == estimate.needed_and_free(ModelSpec("demo", device="cpu"))[0]
    assert estimate.needed_and_free(ModelSpec("someone/else", device="cpu"))[0] == 0


def test_a_prefill_worker_holds_the_weights_once_more() -> None:
    whole, apart = (
        estimate.estimate(ModelSpec("demo", device="cpu"), EngineConfig(mode)) for mode in ("chunked", "disaggregated")
    )
    assert apart.weights == 2 * whole.weights > 0


def test_the_machines_memory_is_known_without_psutil(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as lacking:
        lacking.setitem(sys.modules, "psutil", None)  # as where it is not installed
        lacking.setattr("engine.core.machine.system.psutil", None)
        room = estimate.room("cpu")
    assert 0 < room.free < room.total


def test_what_is_split_over_gpus_takes_a_part_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "nvidia_driver", lambda: True)
    monkeypatch.setattr(estimate, "cards", lambda: [card(9, (8, 6)), card(9, (8, 6))])
    one, two = (estimate.estimate(ModelSpec("demo", device="cuda", parallel=Parallel(n))) for n in (1, 2))
    on_cpu = estimate.estimate(ModelSpec("demo", device="cpu", parallel=Parallel(2)))
    assert one.weights / 2 < two.weights < 0.8 * one.weights, "each has the embedding"
    assert one.facts[0] == two.facts[0], "a token's keys and values are on both"
    assert (one.cards, two.cards, on_cpu.cards) == (2, 2, 0)
    assert on_cpu.weights > one.weights, "ranks on a CPU have one memory, and float32 there"
