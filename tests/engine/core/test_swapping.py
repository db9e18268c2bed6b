"""Preemption by swap through the engine: tokens equal transformers' in float32, and figures tell what was moved."""

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, load_trace, measure, save_trace
from engine.core.setup.host_memory import swap_cost
from engine.trace import FinishReason, Roof, State, SwapEvent
from tests.engine.core.test_exactness import BLOCKS, CANCELLED, GREEDY, NEW_TOKENS, expected, prompts

__all__ = ["expected"]  # a fixture of another file

# With sliding windows, with them in some layers only, with experts, without grouped queries, and plain ones.
NAMES = ("llama", "qwen3", "mistral", "gemma2", "gemma3", "phi3", "gpt-oss", "gpt2", "mixtral")
Expected = Callable[[str], list[tuple[list[int], Tensor]]]


@pytest.mark.parametrize(("name", "depth"), [(name, place % 2) for place, name in enumerate(NAMES)])
def test_what_is_swapped_says_what_transformers_says(
    name: str, depth: int, tiny_folder: Callable[[str], Path], expected: Expected
) -> None:
    with Engine(ModelSpec(str(tiny_folder(name)), dtype="float32", device="cpu"), threads=1) as engine:
        memory = BLOCKS * 4 * engine.card.kv_token_bytes
        config = EngineConfig("chunked" if depth else "continuous", 5, 32, 4, memory, depth=depth, preemption="swap")
        trace = engine.begin(config)
        streams = [engine.submit(prompt, GREEDY) for prompt in prompts()]
        for _, _ in zip(streams[CANCELLED], range(4)):
            pass
        engine.cancel([streams[CANCELLED].request])
        for i, stream in enumerate(streams):
            completion = stream.result(timeout=60)
            tokens = expected(name)[i][0]
            assert i == CANCELLED or len(completion.token_ids) == NEW_TOKENS
            assert list(completion.token_ids) == tokens[: len(completion.token_ids)]
        assert streams[CANCELLED].result().finish_reason is FinishReason.CANCELLED
        events = [event for step in trace.steps for event in step.swap_event.tolist()]
        assert events.count(SwapEvent.OUT) > events.count(SwapEvent.IN) // 2 > 0
        assert engine.scheduler.ledger.host.available == trace.header.host_blocks > 0


def test_samples_and_prefixes_say_the_same_swapped_and_computed_again(demo: Engine) -> None:
    ways = [SamplingParams(max_tokens=40, temperature=0.9, seed=n, n=1 + n % 3, ignore_eos=True) for n in range(6)]
    said = []
    for preemption, prefix, depth in (
        ("recompute", False, 0),
        ("recompute", True, 1),
        ("swap", False, 0),
        ("swap", True, 1),
        ("auto", False, 1),
        ("auto", True, 0),
    ):
        memory = 24 * 8 * demo.card.kv_token_bytes
        switches = {"prefix_caching": prefix, "depth": depth, "preemption": preemption, "cuda_graphs": False}
        demo.begin(EngineConfig("chunked", 8, 64, 8, memory, **switches))  # type: ignore[arg-type]
        streams = [demo.submit([5] * 20 + [7 + n // 3] * 20, params) for n, params in enumerate(ways)]
        said.append([[c.token_ids for c in stream.results()] for stream in streams])
        found = measure(demo.trace)
        assert found.preemptions > 3
        moved = sum(len(step.swap_event) for step in demo.trace.steps)
        assert (moved > 0) is (preemption != "recompute")
    assert said == said[:1] * 6


@pytest.mark.parametrize("switches", [{"kv_dtype": "int8"}, {"speculation": "ngram"}, {"speculation": "draft"}])
def test_what_comes_back_is_what_it_was_beside_codes_and_drafts(large_demo: Engine, switches: dict[str, str]) -> None:
    said = []
    for blocks, preemption in ((200, "recompute"), (26, "swap")):
        memory = blocks * 8 * large_demo.card.kv_token_bytes
        if "kv_dtype" in switches:
            memory = memory * 33 // 128  # a byte a value, and one for the scale of 32
        elif switches["speculation"] == "draft":
            memory *= 2  # the draft's K and V lie in the same blocks
        large_demo.begin(
            EngineConfig("chunked", 6, 64, 8, memory, preemption=preemption, cuda_graphs=False, **switches)
        )  # type: ignore[arg-type]
        streams = [large_demo.submit([5 + n // 2] * 20 + [7 + n] * 12, GREEDY.with_(max_tokens=40)) for n in range(6)]
        said.append([stream.result(timeout=60).token_ids for stream in streams])
        moved = sum(len(step.swap_event) for step in large_demo.trace.steps)
        assert (moved > 10) is (preemption == "swap")
    assert said[0] == said[1]


def test_a_run_tells_what_was_swapped_and_how_long_it_took(demo: Engine, tmp_path: Path) -> None:
    memory = 24 * 8 * demo.card.kv_token_bytes
    demo.begin(EngineConfig(max_running=6, token_budget=256, block_size=8, kv_memory=memory, preemption="swap"))
    streams = [demo.submit([9 + n] * 30, GREEDY.with_(max_tokens=40)) for n in range(6)]
    for stream in streams:
        stream.result(timeout=60)
    steps, found = demo.trace.steps, measure(demo.trace)
    moved = [step for step in steps if len(step.swap_event)]
    assert moved
    assert all((step.swapping > 0) is (len(step.swap_event) > 0) for step in steps)
    assert all(step.swapping <= step.seconds["prepare"] for step in moved)
    assert found.wasted_tokens == 0
    assert found.swapped_blocks == sum(len(step.swap_event) for step in moved) > 20
    assert found.swap_time == sum(step.swapping for step in moved)
    view, lost = demo.trace.requests, moved[0].swapped_out
    assert {view[r].samples[b].at(moved[0].ended).state for r, b in lost} == {State.SWAPPED}
    assert all(view[r].samples[b].preempted_until(moved[0].ended) == 1 for r, b in lost)
    save_trace(demo.trace, tmp_path / "run.bsrun")
    again = load_trace(tmp_path / "run.bsrun")
    assert [s.swap_host.tolist() for s in again.steps] == [s.swap_host.tolist() for s in steps]
    assert again.header.host_blocks == demo.trace.header.host_blocks
    assert again.header.swap_rate == demo.trace.header.swap_rate > 1e6


def test_what_swapping_cannot_have_is_refused(demo: Engine) -> None:
    with pytest.raises(InvalidInput, match="mode 'static' swaps no blocks; use one of continuous, chunked"):
        EngineConfig("static", preemption="swap")
    with pytest.raises(InvalidInput, match="preemption by recompute copies nothing; use swap or auto"):
        EngineConfig(swap_memory=1 << 20)
    with pytest.raises(InvalidInput, match="must be one of recompute, swap, auto"):
        EngineConfig(preemption="never")
    for memory in (100, 1 << 60):
        with pytest.raises(InvalidInput, match=f"swap_memory={memory:,}: a block takes"):
            demo.begin(EngineConfig(preemption="swap", swap_memory=memory))
    demo.begin(EngineConfig(preemption="swap", swap_memory=5 * 16 * demo.card.kv_token_bytes))
    assert demo.trace.header.host_blocks == 5


def test_the_cost_is_that_of_the_models_own_operations(demo: Engine) -> None:
    card, roof = demo.card, Roof((1,), (1.0,), 1e9)
    cost = swap_cost(1e-4, 1e-5, card, roof)
    assert cost is not None
    assert cost.token == pytest.approx(2 * card.body_parameters / 1e9)
    assert cost.pair == pytest.approx(4 * card.heads * card.head_dim * card.layers / 1e9)
    assert swap_cost(1e-4, 1e-5, card, None) is None
