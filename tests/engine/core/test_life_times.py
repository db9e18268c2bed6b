"""Of two models that are loaded one after the other the first is gone, with its pool, before the second is read."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.nn import Module

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, Workload
from engine.compare.host import LocalHost
from engine.compare.lane import Lane
from engine.compare.race import Race
from engine.compare.sweep import Sweep
from engine.core.setup import runner_factory
from engine.models import loading
from engine.quality.measure import work
from engine.workloads import demo_workload
from tests.engine.tiny_models import _llama_like, save_tiny_model

SMALL = EngineConfig(max_running=2, token_budget=64)
SHORT = demo_workload(2, SamplingParams(max_tokens=2, temperature=0))


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """What of earlier models is still there each time that weights are about to be read."""
    made: list[weakref.ref[Any]] = []
    found: list[list[str]] = []

    def watched(make: Callable[..., Any]) -> Callable[..., Any]:
        def remembered(*args: Any) -> Any:
            if make is read_weights:
                found.append([type(thing).__name__ for ref in made if (thing := ref()) is not None])
            thing = make(*args)
            made.extend(map(weakref.ref, [thing, *(thing.modules() if isinstance(thing, Module) else ())]))
            return thing

        return remembered

    read_weights = loading.read_weights
    monkeypatch.setattr(loading, "read_weights", watched(read_weights))
    monkeypatch.setattr(runner_factory, "make_runner", watched(runner_factory.make_runner))
    gc.disable()
    try:
        yield found
    finally:
        gc.enable()


@pytest.fixture
def lanes(tiny_folder: Callable[[str], Path]) -> list[Lane]:
    return [Lane(SMALL, ModelSpec(str(tiny_folder(name)))) for name in ("llama", "qwen3", "llama")]


def test_of_plain_reloads(found: list[list[str]], lanes: list[Lane]) -> None:
    kept = []
    for lane in lanes:
        with Engine(lane.spec, SMALL, threads=1) as engine:
            kept.append((engine, engine.submit("a b", SHORT.arrivals[0].params)))
            kept[-1][1].result()
        engine.close()
        with pytest.raises(InvalidInput, match="closed"):
            engine.begin(SMALL)
    assert found == [[], [], []]


@pytest.mark.parametrize("compare", [Race, lambda load, lanes: Sweep(load, lanes, sizes=(1, 2))])
def test_of_comparisons(
    found: list[list[str]], lanes: list[Lane], compare: Callable[[Workload, list[Lane]], Race | Sweep]
) -> None:
    told: list[object] = []  # as the command line and the window keep it
    with LocalHost(threads=1) as host:
        compare(SHORT, lanes).play(host, told.append, threading.Event())
    assert told
    assert found == [[], [], []]


def test_of_quality_also_behind_a_row_that_failed(found: list[list[str]], lanes: list[Lane], tmp_path: Path) -> None:
    save_tiny_model(_llama_like("Llama", vocab_size=3080), tmp_path)
    specs = [{"source": source} for source in (lanes[0].spec.source, str(tmp_path), lanes[0].spec.source)]
    asked = {"original": specs[0], "specs": specs[1:], "text": "prose", "tokens": 64, "window": 64}
    told = work(asked, lambda progress: None)
    assert ["no quantization of this model" in row["error"] for row in told["rows"]] == [True, False]
    assert found == [[], [], []]


def test_of_one_that_refers_to_itself(found: list[list[str]], lanes: list[Lane]) -> None:
    """As modules of libraries do: only a collection frees it."""
    for lane in lanes[:2]:
        with Engine(lane.spec, SMALL, threads=1) as engine:
            module = engine.model.module
            module.__dict__["itself"] = module
            del module
    assert found == [[], []]
