"""A model that is split over the cards that are here, each rank on one of its own, by heads or by layers: one card's
tokens, replayed graphs, times by the devices' clocks, and endings.

With TRITON_INTERPRET=1 ranks walk through the same on a CPU, over gloo, where graphs are planned but not captured.
"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, Parallel, SamplingParams, Submission
from engine.trace import Kind
from tests.engine.tiny_models import random_prompts

pytest.importorskip("triton")
CARDS = torch.cuda.device_count()
INTERPRETED = not CARDS and os.environ.get("TRITON_INTERPRET") == "1"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(CARDS < 2 and not INTERPRETED, reason="what is split over GPUs needs two of them"),
]

DEVICE, NEW = ("cuda", 20) if CARDS else ("cpu", 4)
GREEDY = SamplingParams(max_tokens=NEW, temperature=0, ignore_eos=True)
PATIENCE = 100  # seconds
CLOCKS = 2e-4  # seconds that the clocks of two devices may be held apart
CONFIG = EngineConfig("continuous", 8, 256, block_size=16)
CONFIGS = {
    "continuous": CONFIG,
    "one step behind, prefixes kept": EngineConfig("continuous", 8, 256, block_size=4, depth=1, prefix_caching=True),
    "chunked": EngineConfig("chunked", 8, 24, block_size=16, depth=1),
    "no graphs": EngineConfig("continuous", 8, 256, block_size=16, cuda_graphs=False),
    "drafted": EngineConfig("continuous", 8, 256, block_size=16, speculation="ngram"),
}


def open_engine(folder: Path, parallel: Parallel) -> Engine:
    spec = ModelSpec(str(folder), dtype="float32", device=DEVICE, parallel=parallel)
    return Engine(spec, CONFIG, threads=None if CARDS else 1)


def said(engine: Engine, config: EngineConfig) -> list[list[int]]:
    engine.begin(config)
    prompts = random_prompts((3, 17, 1, 41) if CARDS else (3, 1), seed=7)
    ways = [GREEDY, GREEDY.with_(frequency_penalty=1.5)]
    streams = engine.submit_many([Submission(prompt, ways[i % 2]) for i, prompt in enumerate(prompts)])
    found = [stream.result(PATIENCE) for stream in streams]
    assert [completion.error for completion in found] == [""] * len(found)
    return [list(completion.token_ids) for completion in found]


@pytest.fixture(scope="module")
def one(tiny_folder: Callable[[str], Path]) -> Iterator[Engine]:
    with open_engine(tiny_folder("llama"), Parallel()) as engine:
        yield engine


@pytest.fixture(scope="module")
def two(tiny_folder: Callable[[str], Path]) -> Iterator[Engine]:
    with open_engine(tiny_folder("llama"), Parallel(2)) as engine:
        yield engine


@pytest.fixture(scope="module")
def stages(tiny_folder: Callable[[str], Path]) -> Iterator[Engine]:
    with open_engine(tiny_folder("llama"), Parallel(pipeline=2)) as engine:
        yield engine


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("way", ["two", "stages"])
def test_in_float32_two_cards_say_what_one_says(
    way: str, name: str, one: Engine, request: pytest.FixtureRequest
) -> None:
    split: Engine = request.getfixturevalue(way)
    assert said(split, CONFIGS[name]) == said(one, CONFIGS[name])
    header = split.trace.header
    assert bool(header.graphs) == CONFIGS[name].cuda_graphs, header.graphs_off


def test_each_stage_tells_when_it_computed_each_micro_batch(stages: Engine) -> None:
    said(stages, CONFIG)
    header = stages.trace.header
    assert header.rank_devices == (("cuda:0", "cuda:1") if CARDS else ("cpu", "cpu"))
    assert (header.ranks_meet, header.rank_layers) == ("NCCL" if CARDS else "gloo", (1, 1))
    steps = [step for step in stages.trace.steps if step.rows and (step.kind == Kind.DECODE).all()]
    told = [step for step in steps if len(step.rank_bytes)]
    assert len(told) > len(steps) / 2
    for step in told:
        assert step.graph
        begun, ended = (getattr(step, name).reshape(2, -1) for name in ("micro_begun", "micro_ended"))
        assert begun.shape[1] == min(2, step.rows)
        assert (begun[1] > ended[0] - CLOCKS).all(), "a stage computes what the one before has computed"
        assert (begun[:, 1:] >= ended[:, :-1]).all(), "one after another"
        assert begun.min() > 0
        assert ended.max() < step.ended - step.started + CLOCKS
        assert (step.rank_communicating > 0).all()
        spent = step.rank_computing + step.rank_communicating + step.rank_waiting
        assert (spent < step.ended - step.started + CLOCKS).all()


def test_each_card_tells_what_it_exchanged_in_a_step_that_was_replayed(two: Engine) -> None:
    said(two, CONFIG)
    header = two.trace.header
    assert header.rank_devices == (("cuda:0", "cuda:1") if CARDS else ("cpu", "cpu"))
    assert header.ranks_meet == ("NCCL" if CARDS else "gloo")
    assert header.interconnect is not None
    assert header.interconnect.rate_at(1 << 20) > header.interconnect.rate_at(4096) > 0
    steps = [step for step in two.trace.steps if step.rows and (step.kind == Kind.DECODE).all()]
    told = [step for step in steps if len(step.rank_bytes)]
    assert len(told) > len(steps) / 2
    for step in told:
        assert step.graph
        assert (step.rank_computing > 0).all()
        assert (step.rank_communicating > 0).all()
        assert (step.rank_computing + step.rank_communicating + step.rank_waiting < step.ended - step.started).all()


@pytest.mark.parametrize("split", [{"tensor": 2}, {"pipeline": 2}], ids=["two", "stages"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_gone_or_hangs_ends_the_engine_by_its_name(
    how: signal.Signals, split: dict[str, int], tiny_folder: Callable[[str], Path]
) -> None:
    """Rank 0's GPU spins in a sum, or for logits, and hears of it by its communicator's end."""
    with open_engine(tiny_folder("llama"), Parallel(**split, timeout=10.0 if CARDS else 2.0)) as engine:
        assert engine.model.ranks is not None
        pid = engine.model.ranks.others[0].child.pid
        stream = engine.submit([5, 6, 7], GREEDY.with_(max_tokens=400))
        next(iter(stream))
        os.kill(pid, how)
        assert f"rank 1 (process {pid})" in stream.result(PATIENCE).error


@pytest.mark.skipif(not CARDS, reason="ranks on a CPU are as many as one likes")
def test_more_ranks_than_cards_are_refused_with_their_number(tiny_folder: Callable[[str], Path]) -> None:
    for parallel in (Parallel(2 * CARDS), Parallel(pipeline=2 * CARDS)):
        with pytest.raises(InvalidInput, match=f"each rank takes a GPU of its own, and this machine has {CARDS}"):
            open_engine(tiny_folder("llama"), parallel)
