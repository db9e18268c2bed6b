"""Every batching mode through the real engine: the same tokens, true counts, and what each mode promises."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import (
    Engine,
    EngineConfig,
    InvalidInput,
    ModelSpec,
    SamplingParams,
    Submission,
    Trace,
    list_workloads,
    load_workload,
    measure,
)
from engine.config import MODES, PAGED_MODES
from engine.trace import BlockEvent, FinishReason, Kind, Step
from tests.engine.core.test_exactness import Reference, prompts
from tests.engine.forwards import Watched

pytestmark = pytest.mark.slow

NEW_TOKENS = 9
GREEDY = SamplingParams(max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True)
ARCHITECTURES = ("llama", "mistral", "gemma2", "gpt-oss", "gpt2", "qwen3 moe")  # windows, softcap, sinks, experts
SWITCHES = sorted(((mode, False) for mode in MODES), key=lambda switch: switch[0] != "continuous")
WORKLOADS = [card.name for card in list_workloads()]
SWITCHES += [(mode, True) for mode in PAGED_MODES]
SHORT = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@contextmanager
def counted(engine: Engine) -> Iterator[list[tuple[int, int]]]:
    """The shapes of the token ids that the model is really given, a step each."""
    shapes: list[tuple[int, int]] = []

    watched = Watched(engine, before=lambda ids: shapes.append(tuple(ids.shape)))
    try:
        yield shapes
    finally:
        watched.remove()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_mode_gives_the_tokens_of_transformers(name: str, tiny_folder: Callable[[str], Path]) -> None:
    module = AutoModelForCausalLM.from_pretrained(
        tiny_folder(name), dtype=torch.float32, attn_implementation="eager"
    ).eval()
    expected = [Reference(module)(prompt, NEW_TOKENS)[0] for prompt in prompts()]
    with Engine(ModelSpec(str(tiny_folder(name)), dtype="float32", device="cpu"), threads=1) as engine:
        for place, (mode, caching) in enumerate(SWITCHES, ARCHITECTURES.index(name)):
            depth = 0 if mode == "disaggregated" else place % 2  # of each mode both, at half of the models
            engine.begin(
                EngineConfig(mode, 4, 32, block_size=4, prefix_caching=caching, depth=depth, longest_wait=0.01)
            )
            with counted(engine) as shapes:
                # Twice the same prompts, so that some begin like others.
                streams = [engine.submit(prompt, GREEDY) for prompt in prompts() * 2]
                said = [list(stream.result(timeout=60).token_ids) for stream in streams]
            assert said == expected * 2, (mode, caching, depth)
            given = [rows * tokens for rows, tokens in shapes]
            steps = [s.own for s in engine.trace.steps if s.own.rows]
            assert [int((s.count + s.padding).sum()) for s in steps] == given, (mode, caching, depth)
            assert (sum(int(s.reused.sum()) for s in steps) > 0) is caching


Said = dict[str, list[list[int]]]  # by workload, a request's tokens


def say(engine: Engine, mode: str, caching: bool, workloads: Sequence[str]) -> Said:
    """What a mode says to three requests of each of these workloads, one more than rows."""
    engine.begin(EngineConfig(mode, 2, 256, prefix_caching=caching, longest_wait=0.01))
    said: Said = {}
    for name in workloads:
        arrivals = load_workload(name, count=3).arrivals
        streams = engine.submit_many([Submission(a.prompt, brief(a.params)) for a in arrivals])
        said[name] = [list(stream.result(timeout=60).token_ids) for stream in streams]
    return said


def brief(params: SamplingParams) -> SamplingParams:
    """A few tokens, of the model as it is: adapters in every mode are in test_adapters.py."""
    return params.with_(max_tokens=min(params.max_tokens, 4), adapter="")


@pytest.fixture(scope="module")
def continuous(demo_engine: Engine) -> Said:
    return say(demo_engine, *SWITCHES[0], WORKLOADS)


@pytest.mark.parametrize(
    ("mode", "caching", "workloads"), [(*s, WORKLOADS[i % 3 :: 3]) for i, s in enumerate(SWITCHES[1:])]
)
def test_every_mode_says_the_same_to_the_shipped_workloads(
    mode: str, caching: bool, workloads: Sequence[str], demo: Engine, continuous: Said
) -> None:
    """Each a third of them, so that each is said by several modes."""
    said = say(demo, mode, caching, workloads)
    assert said == {name: continuous[name] for name in workloads}
    demo.begin(EngineConfig())  # a prefill worker ends with its mode


def steps(trace: Trace) -> list[Step]:
    return [s for s in trace.steps if s.rows]


def rows(trace: Trace, kind: Kind) -> int:
    return sum(int((s.kind == kind).sum()) for s in steps(trace))


def test_the_textbook_batch_of_eight_with_one_ten_times_longer_wastes_what_is_worked_out_by_hand(demo: Engine) -> None:
    demo.begin(EngineConfig("static", 8))
    prompt = list(range(5, 15))
    params = [SHORT.with_(max_tokens=100 if i == 0 else 10) for i in range(8)]
    streams = demo.submit_many([Submission(prompt, p) for p in params])
    assert [len(s.result(timeout=60).token_ids) for s in streams] == [100] + [10] * 7
    assert len(steps(demo.trace)) == 1 + 99
    assert sum(s.rows for s in steps(demo.trace)) == 800
    assert rows(demo.trace, Kind.HELD) == 7 * 90 == sum(int(s.wasted.sum()) for s in steps(demo.trace))
    assert sum(int(s.padding.sum()) for s in steps(demo.trace)) == 0
    width = -(-(10 + 100 - 1) // 16) * 16
    last = steps(demo.trace)[-2]
    assert last.kv_used + last.kv_reserved == 109
    assert last.kv_internal == 8 * width - 109, "what seven finished rows hold is of no use"


def test_prompts_of_a_batch_are_padded_to_its_longest(demo: Engine) -> None:
    demo.begin(EngineConfig("static", 4))
    lengths = (3, 20, 11, 7)
    for stream in demo.submit_many([Submission(list(range(5, 5 + n)), SHORT) for n in lengths]):
        stream.result(timeout=60)
    first = steps(demo.trace)[0]
    assert first.padding.tolist() == [17, 0, 9, 13]
    assert first.count.tolist() == list(lengths)


def test_a_static_batch_waits_until_it_is_full_while_others_are_to_follow(large_demo: Engine) -> None:
    large_demo.begin(EngineConfig("static", 3))
    first = large_demo.submit_many([Submission(chat("Hello"), SHORT)], more=True)
    time.sleep(0.15)
    assert not steps(large_demo.trace)
    rest = large_demo.submit_many([Submission(chat("Hello"), SHORT)] * 2, more=True)
    for stream in first + rest:
        stream.result(timeout=60)
    assert steps(large_demo.trace)[0].rows == 3
    late = large_demo.submit_many([Submission(chat("Hello"), SHORT)])
    assert late[0].result(timeout=60).finish_reason is FinishReason.LENGTH, "none follow, so it does not wait"


def test_a_dynamic_batch_starts_when_its_first_request_has_waited_long_enough(demo: Engine) -> None:
    demo.begin(EngineConfig("dynamic", 8, longest_wait=0.3))
    for stream in demo.submit_many([Submission(chat("Hello"), SHORT)] * 2):
        stream.result(timeout=60)
    view = demo.trace.requests[min(demo.trace.requests)]
    assert view.scheduled is not None
    assert 0.3 <= view.scheduled - view.submitted < 5.0
    demo.begin(EngineConfig("dynamic", 2, longest_wait=30.0))
    for stream in demo.submit_many([Submission(chat("Hello"), SHORT)] * 2):
        stream.result(timeout=20)


@pytest.mark.parametrize("depth", [0, 1])
def test_text_that_is_delivered_with_its_batch_comes_when_the_last_row_ends(depth: int, demo: Engine) -> None:
    demo.begin(EngineConfig("static", 3, delivery="batch", depth=depth))
    params = [SHORT.with_(max_tokens=n) for n in (4, 20, 9)]
    streams = demo.submit_many([Submission(chat("Tell me a story"), p) for p in params])
    completions = [stream.result(timeout=60) for stream in streams]
    assert [len(c.token_ids) for c in completions] == [4, 20, 9]
    assert [len(stream.deltas) for stream in streams] == [1, 1, 1]
    assert len({stream.deltas[0].time for stream in streams}) == 1
    demo.begin(EngineConfig("static", 3))
    again = demo.submit_many([Submission(chat("Tell me a story"), p) for p in params])
    assert [s.result(timeout=60).text for s in again] == [c.text for c in completions]


def test_a_batch_that_is_cancelled_but_for_rows_already_done_still_delivers_those(large_demo: Engine) -> None:
    large_demo.begin(EngineConfig("static", 2, delivery="batch"))
    short, long = large_demo.submit_many(
        [Submission(chat("Hello"), SHORT.with_(max_tokens=4)), Submission(chat("Hello"), SHORT.with_(max_tokens=900))]
    )
    while len(steps(large_demo.trace)) < 20:
        time.sleep(0.01)
    large_demo.cancel([long.request])
    assert short.result(timeout=20).finish_reason is FinishReason.LENGTH
    assert len(short.result().token_ids) == 4
    cancelled = long.result(timeout=20)
    assert cancelled.finish_reason is FinishReason.CANCELLED
    assert cancelled.text, "its text so far is kept"
    assert len(cancelled.token_ids) >= 18, "and so are its tokens"
    assert large_demo.trace.requests[long.request].tokens.tolist() == list(cancelled.token_ids)
    assert measure(large_demo.trace).output_tokens == 4 + len(cancelled.token_ids)


@pytest.mark.parametrize(
    ("mode", "depth"), [(mode, depth) for mode in MODES for depth in (0, 1) if not (depth and mode == "disaggregated")]
)
def test_requests_stop_cancel_and_fail_alike_in_every_mode(mode: str, depth: int, large_demo: Engine) -> None:
    large_demo.begin(EngineConfig(mode, 4, depth=depth, longest_wait=0.01))
    stop = large_demo.submit(chat("Tell me a story about a fox."), SHORT.with_(max_tokens=200, stop=(".",)))
    cancelled = large_demo.submit(chat("Tell me a story about an owl."), SHORT.with_(max_tokens=900))
    assert stop.result(timeout=60).finish_reason is FinishReason.STOP
    assert "." not in stop.result().text
    next(iter(cancelled))
    large_demo.cancel([cancelled.request])
    assert cancelled.result(timeout=60).finish_reason is FinishReason.CANCELLED
    with pytest.raises(InvalidInput, match="prompt of"):
        large_demo.submit([5] * 2000, SHORT)

    launch, failures = large_demo.runner.launch, []

    def fail_once(plan: Any, *meanwhile: Any) -> Any:
        if not failures:
            failures.append(plan)
            raise RuntimeError("out of memory, say")
        return launch(plan, *meanwhile)

    large_demo.runner.launch = fail_once
    failed = large_demo.submit(chat("Hello"), SHORT)
    assert failed.result(timeout=60).finish_reason is FinishReason.ERROR
    assert "out of memory, say" in failed.result().error
    assert large_demo.submit(chat("Hello"), SHORT).result(timeout=60).finish_reason is FinishReason.LENGTH
    final = large_demo.trace.steps[-1]
    assert final.free_blocks == large_demo.trace.header.blocks
    large_demo.begin(EngineConfig())


def test_chunks_of_a_prompt_share_their_steps_with_decodes(demo: Engine) -> None:
    demo.begin(EngineConfig("chunked", 4, token_budget=16))
    both = [Submission(chat("Tell me a story"), SHORT.with_(max_tokens=60)), Submission(list(range(5, 205)), SHORT)]
    talking, long = demo.submit_many(both)
    for stream in (talking, long):
        stream.result(timeout=60)
    mixed = [s for s in steps(demo.trace) if len(set(s.kind.tolist())) == 2]
    assert len(mixed) >= 200 // 16
    assert all(int(s.count.sum()) <= 16 for s in steps(demo.trace))
    times = demo.trace.requests[talking.request].token_times
    order = [s.ended for s in steps(demo.trace)]
    at = [order.index(t) for t in times]
    assert all(b - a == 1 for a, b in pairwise(at)), "no prompt stalls a decode"


def test_new_requests_join_only_every_so_many_steps(large_demo: Engine) -> None:
    for mode in ("continuous-padded", "continuous", "chunked"):
        large_demo.begin(EngineConfig(mode, 8, join_every=6))
        first = large_demo.submit(chat("Hello"), SHORT.with_(max_tokens=150))
        next(iter(first))
        streams = [first]
        for _ in range(4):
            streams.append(large_demo.submit(chat("Hello"), SHORT.with_(max_tokens=3)))
            time.sleep(0.02)
        for stream in streams:
            stream.result(timeout=60)
        joins = [i for i, s in enumerate(steps(large_demo.trace)) if (s.kind == Kind.PREFILL).any()]
        assert len(joins) >= 2
        assert all(b - a >= 6 for a, b in pairwise(joins)), mode


def test_a_prompt_that_begins_like_another_shares_its_blocks(demo: Engine) -> None:
    demo.begin(EngineConfig("continuous", 8, prefix_caching=True))
    beginning = list(range(5, 5 + 64))
    streams = demo.submit_many([Submission([*beginning, 100 + i, 200 + i], SHORT) for i in range(4)])
    for stream in streams:
        stream.result(timeout=60)
    assert [v.reused for v in demo.trace.requests.values()] == [0, 64, 64, 64]
    later = demo.submit([*beginning, 7], SHORT)
    later.result(timeout=60)
    assert demo.trace.requests[later.request].reused == 64, "what is cached outlives its requests"
    full = demo.submit(beginning, SHORT)
    full.result(timeout=60)
    assert demo.trace.requests[full.request].reused == 48, "at least one token is computed"
    last = demo.trace.steps[-1]
    assert last.cached_blocks > 0
    assert last.free_blocks + last.cached_blocks == demo.trace.header.blocks


def test_samples_of_one_prompt_share_its_blocks_and_differ(demo: Engine) -> None:
    demo.begin(EngineConfig("continuous", 8))
    params = SamplingParams(max_tokens=20, temperature=1.0, seed=5, n=4, ignore_eos=True)
    prompt = list(range(5, 5 + 40))
    stream = demo.submit(prompt, params)
    samples = stream.results(timeout=60)
    assert len({c.text for c in samples}) == 4
    assert [c.sample for c in samples] == [0, 1, 2, 3]
    trace = demo.trace
    computed = sum(int(s.count[s.kind == Kind.PREFILL].sum()) for s in steps(trace))
    assert computed == 40 + 3, "the prompt once, and its last token for each other sample"
    assert sum(int((s.block_event == BlockEvent.SHARED).sum()) for s in trace.steps) == 3 * 2
    assert sum(len(s.copied) for s in trace.steps) == 3, "the block that is not full is copied before it is written"
    view = trace.requests[stream.request]
    assert [s.text for s in view.samples] == [c.text for c in samples]
    assert view.reason is FinishReason.LENGTH
    assert trace.steps[-1].free_blocks == trace.header.blocks
    alone = demo.submit(prompt, params.with_(n=1)).result(timeout=60)
    assert alone.token_ids == samples[0].token_ids


def test_samples_are_refused_where_there_are_no_blocks_to_share(demo: Engine) -> None:
    demo.begin(EngineConfig("static", 4))
    with pytest.raises(InvalidInput, match=r"n=2: mode 'static' has no blocks"):
        demo.submit(chat("Hello"), SHORT.with_(n=2))


def test_more_samples_than_slots_come_one_after_another(demo: Engine) -> None:
    demo.begin(EngineConfig("chunked", 2, token_budget=64))
    samples = demo.submit(list(range(5, 30)), SHORT.with_(n=5)).results(timeout=60)
    assert len(samples) == 5
    assert len({c.token_ids for c in samples}) == 1, "greedy samples are alike"
