"""The prefix cache's lower tier through the engine: the same tokens as without, in less computing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, load_trace, measure, save_trace
from engine.trace import SwapEvent
from engine.trace.records.check import RecordCheck

GREEDY = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
APPS, TURNS, OPENING = 4, 3, 64
# Plain, with sliding windows in some layers, with experts and sinks, with positions that are learned.
NAMES = ("llama", "gemma3", "gpt-oss", "gpt2")


def told(engine: Engine, config: EngineConfig, params: SamplingParams = GREEDY) -> list[tuple[int, ...]]:
    """What four prompts with an opening each are answered, in turn and two at a time."""
    vocabulary = engine.card.vocabulary
    engine.begin(config)
    found = []
    for turn in range(TURNS):
        streams = [engine.submit([(7 + 5 * app) % vocabulary] * OPENING + [3, 4 + turn], params) for app in range(APPS)]
        found += [completion.token_ids for stream in streams for completion in stream.results(60)]
    return found


def config_of(engine: Engine, offload: bool, bytes_of: float = 1.0, **switches: Any) -> EngineConfig:
    """A pool that has room for the blocks of two such prompts and a half."""
    memory = int(22 * 8 * engine.card.kv_token_bytes * bytes_of)
    values: dict[str, Any] = {"mode": "chunked", "max_running": 2, "token_budget": 96, "block_size": 8}
    return EngineConfig(
        **values | {"kv_memory": memory, "prefix_caching": True, "offload_prefixes": offload} | switches
    )


@pytest.mark.parametrize(("name", "depth"), [(name, place % 2) for place, name in enumerate(NAMES)])
def test_what_comes_back_says_what_was_computed_again(
    name: str, depth: int, tiny_folder: Callable[[str], Path]
) -> None:
    with Engine(ModelSpec(str(tiny_folder(name)), dtype="float32", device="cpu"), threads=1) as engine:
        without = told(engine, config_of(engine, False, depth=depth))
        computed = measure(engine.trace).computed_tokens
        assert told(engine, config_of(engine, True, depth=depth)) == without
        found = measure(engine.trace)
        assert found.offloaded_tokens >= OPENING
        assert found.computed_tokens == computed - found.offloaded_tokens


@pytest.mark.parametrize(
    ("switches", "size"),
    [
        ({"kv_dtype": "int8", "graphs": False}, 33 / 128),
        ({"speculation": "draft"}, 2.0),
        ({"mode": "continuous", "preemption": "swap", "n": 2, "max_running": 4}, 1.0),
        ({"admission": "lpm", "cuda_graphs": False}, 1.0),
    ],
    ids=["codes", "drafts", "swap and samples", "longest prefix first"],
)
def test_beside_other_techniques_too(switches: dict[str, Any], size: float, demo: Engine, large_demo: Engine) -> None:
    engine = large_demo if "speculation" in switches else demo
    # Prompts in parts of other sizes differ by rounding, which may turn a code, and much later a token that was close.
    tokens = 8 if "kv_dtype" in switches else 24 if "preemption" in switches else 12
    params = GREEDY.with_(n=switches.pop("n", 1), max_tokens=tokens)
    switches["cuda_graphs"] = switches.pop("graphs", switches.get("cuda_graphs", True))
    said = [told(engine, config_of(engine, offload, size, **switches), params) for offload in (False, True)]
    assert said[0] == said[1]
    found = measure(engine.trace)
    assert found.offloaded_tokens >= OPENING
    assert (found.preemptions > 0) is ("preemption" in switches)


def test_a_run_begins_with_nothing_on_the_host_and_its_file_tells_all(demo: Engine, tmp_path: Path) -> None:
    config = config_of(demo, True)
    for _ in range(2):
        told(demo, config)
        events = [event for step in demo.trace.steps for event in step.swap_event.tolist()]
        assert events.index(SwapEvent.OFFLOADED) < events.index(SwapEvent.FOUND)
        assert demo.trace.header.host_blocks == 4 * demo.trace.header.blocks
    found = measure(demo.trace)
    moved = [step for step in demo.trace.steps if step.moved_blocks]
    assert found.swapped_blocks == sum(event != SwapEvent.FORGOTTEN for event in events)
    assert all((step.swapping > 0) is (step.moved_blocks > 0) for step in demo.trace.steps)
    assert found.swap_time == sum(step.swapping for step in moved)
    save_trace(demo.trace, tmp_path / "run.bsrun")
    again, check = load_trace(tmp_path / "run.bsrun"), RecordCheck()
    for record in again.records:
        check(record)
    assert measure(again).offloaded_tokens == found.offloaded_tokens == 8 * events.count(SwapEvent.FOUND)


def test_what_offloading_cannot_have_is_refused(demo: Engine) -> None:
    with pytest.raises(InvalidInput, match="offload_prefixes=True: keeps what the prefix cache forgets; switch"):
        EngineConfig(offload_prefixes=True)
    with pytest.raises(InvalidInput, match="mode 'disaggregated' copies no blocks; use one of continuous, chunked"):
        EngineConfig("disaggregated", prefix_caching=True, offload_prefixes=True)
    with pytest.raises(InvalidInput, match="or offload_prefixes"):
        EngineConfig(swap_memory=1 << 20)
    with pytest.raises(InvalidInput, match="swap_memory=100: a block takes"):
        demo.begin(EngineConfig(prefix_caching=True, offload_prefixes=True, swap_memory=100))
    size = 5 * 16 * demo.card.kv_token_bytes
    demo.begin(EngineConfig(prefix_caching=True, offload_prefixes=True, swap_memory=size))
    assert demo.trace.header.host_blocks == 5
