"""Steps that the allocator refuses: the engine makes them smaller, and every token is right all the same."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Stream, Submission
from engine.trace import FinishReason, Notice
from tests.engine.forwards import Watched
from tests.engine.scheduler.told_blocks import ToldBlocks

ABSURD = 1 << 44  # floats: the allocator refuses 64 TiB
LONG_STORY = [[10 + n, *range(100, 100 + length)] for n, length in enumerate((5, 90, 33, 17, 60, 2))]
ALIKE = [[*range(100, 148), 20 + n] for n in range(3)]  # share three blocks
PROMPTS = [*LONG_STORY, *ALIKE]
ASKED = "64.0 TiB more was asked for"


def greedy(tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True)


@contextmanager
def memory_for(engine: Engine, fits: Callable[[torch.Tensor], bool]) -> Iterator[list[int]]:
    """Within, steps whose `input_ids` do not fit ask for more memory than there is; gives their tokens."""
    refused: list[int] = []

    def take(ids: torch.Tensor) -> None:
        if not fits(ids):
            refused.append(ids.numel())
            torch.empty(ABSURD)

    handle = Watched(engine, take)
    try:
        yield refused
    finally:
        handle.remove()


def submit(engine: Engine, prompts: list[list[int]], tokens: int = 20) -> list[Stream]:
    return engine.submit_many([Submission(prompt, greedy(tokens)) for prompt in prompts])


def said(streams: list[Stream]) -> list[tuple[int, ...]]:
    return [stream.result(timeout=60).token_ids for stream in streams]


def notices(engine: Engine) -> list[tuple[str, str]]:
    return [(n.level, n.text) for n in engine.trace.records if isinstance(n, Notice)]


def check_blocks(engine: Engine) -> None:
    """The records tell whose every block was, and in the end all are back."""
    told = ToldBlocks()
    for step in engine.trace.steps:
        told.feed(step)
        told.check(step, engine.trace.header.blocks)
    assert engine.scheduler.ledger.pool.available == engine.scheduler.ledger.pool.total


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("mode", ["continuous", "chunked"])
def test_prompts_go_in_smaller_parts(large_demo: Engine, mode: str, depth: int) -> None:
    large_demo.begin(EngineConfig(mode=mode, max_running=8, depth=depth, token_budget=256, prefix_caching=True))
    expected = said(submit(large_demo, PROMPTS))
    large_demo.begin(large_demo.config)
    with memory_for(large_demo, lambda ids: ids.numel() <= 40) as refused:
        streams = submit(large_demo, PROMPTS)
        next(iter(streams[2]))
        large_demo.cancel([streams[4].request])
        assert streams[4].result(timeout=60).finish_reason is FinishReason.CANCELLED
        tokens = said(streams)
    assert len(refused) >= 3, "256, 128 and 64 tokens"
    assert tokens[4] == expected[4][: len(tokens[4])]
    assert tokens[:4] + tokens[5:] == expected[:4] + expected[5:]
    [(level, text)] = notices(large_demo)
    assert level == "warning"
    assert text == f"a step of {refused[0]} tokens ran out of memory ({ASKED}); prompts now go 32 tokens at a time"
    check_blocks(large_demo)


@pytest.mark.parametrize("depth", [0, 1])
def test_samples_of_one_prompt_are_tried_again_too(demo: Engine, depth: int) -> None:
    config = EngineConfig(max_running=8, depth=depth, token_budget=64)
    params = SamplingParams(max_tokens=12, temperature=0.8, seed=5, ignore_eos=True, n=5, repetition_penalty=1.2)
    told = []
    for largest in (1 << 30, 2):
        demo.begin(config)
        with memory_for(demo, lambda ids: ids.numel() <= largest or ids.numel() > 5) as refused:  # noqa: B023
            told.append([c.token_ids for c in demo.submit(PROMPTS[2], params).results(timeout=60)])
    assert refused
    assert told[0] == told[1]
    check_blocks(demo)


@pytest.mark.parametrize("depth", [0, 1])
def test_fewer_run_at_once_where_decodes_are_too_many(demo: Engine, depth: int) -> None:
    demo.begin(EngineConfig(max_running=8, depth=depth, token_budget=256))
    expected = said(submit(demo, PROMPTS))
    with memory_for(demo, lambda ids: ids.numel() > 16 or ids.numel() <= 3) as refused:
        tokens = said(submit(demo, PROMPTS))
    assert max(refused) <= 8
    assert tokens == expected
    assert notices(demo)[-1][1].endswith(("at most 2 now run at once", "at most 3 now run at once"))
    assert len(notices(demo)) <= 3
    check_blocks(demo)


@pytest.mark.parametrize("depth", [0, 1])
def test_a_row_that_cannot_be_smaller_ends_and_the_others_go_on(demo: Engine, depth: int) -> None:
    poison = 3000
    demo.begin(EngineConfig(max_running=8, depth=depth))
    prompts = [*LONG_STORY[:2], [7] * 50 + [poison] + [9] * 50]
    expected = said(submit(demo, prompts))
    with memory_for(demo, lambda ids: not bool((ids == poison).any())):
        streams = submit(demo, prompts)
        assert said(streams[:2]) == expected[:2]
        completion = streams[2].result(timeout=60)
    assert completion.finish_reason is FinishReason.ERROR
    assert completion.error == f"out of memory: a step of 16 tokens does not fit ({ASKED})"
    ends = f"request {streams[2].request} ends, as it cannot be computed in less"
    assert notices(demo)[-1] == ("error", f"a step of 16 tokens ran out of memory ({ASKED}); {ends}")
    assert said(submit(demo, prompts)) == expected
    check_blocks(demo)


@pytest.mark.parametrize("mode", ["static", "continuous-padded"])
def test_padded_batches_are_smaller(demo: Engine, mode: str) -> None:
    demo.begin(EngineConfig(mode=mode, max_running=4, token_budget=1024, depth=1))
    expected = said(submit(demo, PROMPTS))
    with memory_for(demo, lambda ids: ids.numel() <= 100) as refused:
        assert said(submit(demo, PROMPTS)) == expected
    assert refused
    assert {level for level, _ in notices(demo)} == {"warning"}
    check_blocks(demo)


@pytest.mark.parametrize("mode", ["static", "continuous-padded", "recompute"])
def test_a_padded_step_that_cannot_be_smaller_ends_its_requests(demo: Engine, mode: str) -> None:
    demo.begin(EngineConfig(mode=mode, max_running=2, depth=1))
    expected = said(submit(demo, PROMPTS[:4], 8))
    steps = 0

    def fits(ids: torch.Tensor) -> bool:
        nonlocal steps
        steps += 1
        return steps != 4

    with memory_for(demo, fits):
        streams = submit(demo, PROMPTS[:4], 8)
        tokens = said(streams)
    lost = [stream.request for stream in streams if stream.result().finish_reason is FinishReason.ERROR]
    assert 1 <= len(lost) <= 2
    for at, stream in enumerate(streams):
        assert tokens[at] == expected[at][: len(tokens[at])]
        assert tokens[at] == expected[at] or stream.result().error.startswith("out of memory: a step of")
    assert notices(demo)[-1][0] == "error"
    check_blocks(demo)


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("mode", ["continuous", "chunked"])
def test_states_that_a_failed_step_had_changed_begin_anew(mode: str, depth: int) -> None:
    """Rows that decode run out of memory when all layers are through."""
    config = EngineConfig(mode=mode, max_running=6, depth=depth, token_budget=64, cuda_graphs=False)
    refused: list[int] = []

    def refuse(logits: torch.Tensor) -> None:
        if len(logits) > 2 and len(refused) < 2:
            refused.append(len(logits))
            torch.empty(ABSURD)

    with Engine(ModelSpec("demo-hybrid"), config, threads=1) as engine:
        expected = said(submit(engine, LONG_STORY))
        engine.begin(config)
        handle = Watched(engine, after=refuse)
        try:
            assert said(submit(engine, LONG_STORY)) == expected
        finally:
            handle.remove()
        assert len(refused) == 2
        check_blocks(engine)
