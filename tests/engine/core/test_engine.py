"""The engine as its callers meet it: streams, cancelling, ending, runs, failures."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import (
    Engine,
    EngineConfig,
    EngineProcess,
    InvalidInput,
    ModelSpec,
    SamplingParams,
    Stream,
    Submission,
    Workload,
    measure,
)
from engine.core.threads import TELEMETRY_INTERVAL
from engine.trace import FinishReason, Header, Notice, State, Submitted, Telemetry
from engine.workloads import Arrival, demo_workload
from tests.children import children
from tests.engine.conftest import SMALL, begin_when_idle
from tests.engine.forwards import Watched
from tests.engine.scheduler.told_blocks import ToldBlocks
from tests.waiting import until

ROOT = Path(__file__).parents[3]
FOX: list[Any] = [{"role": "user", "content": "Tell me a story about a fox and a kite."}]
GREEDY = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
LONG = SamplingParams(max_tokens=900, temperature=0, ignore_eos=True)


def at_forward(engine: Engine, count: int, do: Callable[[], None]) -> Any:
    """Calls `do` on the engine's thread within its n-th forward from now; returns the hook's handle."""
    forwards = 0

    def hook(_: torch.Tensor) -> None:
        nonlocal forwards
        forwards += 1
        if forwards == count:
            do()

    return Watched(engine, after=hook)


# Streams.


def test_a_stream_is_iterated_to_its_end_and_its_result_is_all_of_it(demo: Engine) -> None:
    stream = demo.submit(FOX, GREEDY)
    deltas = list(stream)
    completion = stream.result(timeout=60)
    assert "".join(d.text for d in deltas) == completion.text
    assert tuple(i for d in deltas for i in d.token_ids) == completion.token_ids
    assert len(completion.token_ids) == len(completion.logprobs) == 24
    assert completion.finish_reason is FinishReason.LENGTH
    assert completion.error == ""
    assert [d.time for d in deltas] == sorted(d.time for d in deltas)
    assert completion.text == demo.model.tokenizer.decode(completion.token_ids, skip_special_tokens=True)


def test_a_stream_is_read_by_any_number_of_readers_each_from_the_beginning(demo: Engine) -> None:
    stream = demo.submit(FOX, GREEDY)
    texts: list[str] = []
    readers = [threading.Thread(target=lambda: texts.append("".join(d.text for d in stream))) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(timeout=20)
    assert texts == [stream.result(timeout=60).text] * 3
    assert "".join(d.text for d in stream) == texts[0]


def test_streams_are_iterated_asynchronously_side_by_side(demo: Engine) -> None:
    async def read(stream: Stream) -> str:
        return "".join([delta.text async for delta in stream])

    async def read_all() -> list[str]:
        streams = demo.submit_many([Submission(FOX, GREEDY) for _ in range(8)])
        return await asyncio.wait_for(asyncio.gather(*map(read, streams)), timeout=30)

    texts = asyncio.run(read_all())
    assert len(texts) == 8
    assert set(texts) == {demo.submit(FOX, GREEDY).result(timeout=20).text}


def test_an_asynchronous_reader_may_leave_early_and_the_request_goes_on(demo: Engine) -> None:
    async def first(stream: Stream) -> str:
        reader = stream.__aiter__()
        delta = await anext(reader)
        await reader.aclose()  # type: ignore[attr-defined]
        return delta.text

    stream = demo.submit(FOX, GREEDY)
    text = asyncio.run(first(stream))
    assert stream.result(timeout=20).text.startswith(text)


def test_a_result_that_takes_too_long_is_a_timeout_and_the_request_goes_on(large_demo: Engine) -> None:
    stream = large_demo.submit(FOX, LONG)
    with pytest.raises(TimeoutError, match=f"request {stream.request} has not ended"):
        stream.result(timeout=0.01)
    assert not stream.done
    large_demo.cancel([stream.request])
    assert stream.result(timeout=60).finish_reason is FinishReason.CANCELLED


def test_text_ids_and_chats_are_prompts_and_a_chat_has_one_bos(demo: Engine) -> None:
    chat = demo.submit(FOX, GREEDY)
    view = demo.trace.requests[chat.request]
    assert view.prompt_ids.tolist().count(demo.model.tokenizer.bos_token_id) == 1
    assert view.messages == tuple(FOX)
    raw = demo.submit(view.prompt_ids.tolist(), GREEDY)
    assert raw.result(timeout=20).text == chat.result(timeout=20).text
    text = demo.submit("Once there was a fox", GREEDY)
    assert text.result(timeout=20).text
    assert demo.trace.requests[text.request].prompt == "Once there was a fox"


# How requests end.


def test_a_waiting_request_is_cancelled_before_it_said_anything(large_demo: Engine) -> None:
    large_demo.begin(EngineConfig(max_running=1, token_budget=512))
    running, waiting = large_demo.submit(FOX, LONG), large_demo.submit(FOX, GREEDY)
    next(iter(running))
    large_demo.cancel([waiting.request])
    completion = waiting.result(timeout=60)
    assert (completion.finish_reason, completion.text, completion.token_ids) == (FinishReason.CANCELLED, "", ())
    assert completion.metrics.ttft is None
    assert not running.done
    large_demo.cancel()
    assert running.result(timeout=60).text


@pytest.mark.parametrize("depth", [0, 1])
def test_a_running_request_is_cancelled_with_its_text_kept_and_the_others_untouched(
    large_demo: Engine, depth: int
) -> None:
    large_demo.begin(EngineConfig(max_running=8, depth=depth))
    whole = large_demo.submit(FOX, GREEDY.with_(max_tokens=60)).result(timeout=30).text
    other, stopped = large_demo.submit(FOX, GREEDY.with_(max_tokens=60)), large_demo.submit(FOX, LONG)
    handle = at_forward(large_demo, 12, lambda: large_demo.cancel([stopped.request]))
    completion = stopped.result(timeout=60)
    handle.remove()
    assert completion.finish_reason is FinishReason.CANCELLED
    assert 5 < len(completion.token_ids) <= 12
    assert completion.text
    assert whole.startswith(completion.text)
    assert other.result(timeout=20).text == whole


def test_a_stream_cancels_its_own_request_once_and_does_nothing_after_its_end(large_demo: Engine) -> None:
    large_demo.begin(EngineConfig(max_running=8))
    other, stopped = large_demo.submit(FOX, GREEDY), large_demo.submit(FOX, LONG.with_(n=2))
    next(iter(stopped))
    stopped.cancel()
    stopped.cancel()
    assert [c.finish_reason for c in stopped.results(timeout=60)] == [FinishReason.CANCELLED] * 2
    assert other.result(timeout=20).finish_reason is FinishReason.LENGTH
    other.cancel()
    large_demo.begin(SMALL)
    again = large_demo.submit(FOX, GREEDY)
    assert again.request == other.request
    other.ended.clear()  # as if its end had not been read yet: the request of that number is another trace's now
    other.cancel()
    assert again.result(timeout=20).finish_reason is FinishReason.LENGTH


def test_cancelling_what_is_over_or_never_was_does_nothing(large_demo: Engine) -> None:
    stream = large_demo.submit(FOX, GREEDY)
    stream.result(timeout=20)
    large_demo.cancel([stream.request, 12345])
    assert large_demo.submit(FOX, GREEDY).result(timeout=20).finish_reason is FinishReason.LENGTH
    assert stream.result().finish_reason is FinishReason.LENGTH


def test_a_story_ends_by_itself_and_goes_on_when_the_end_is_ignored(large_demo: Engine) -> None:
    ends = large_demo.submit(FOX, SamplingParams(max_tokens=300, temperature=0)).result(timeout=30)
    goes_on = large_demo.submit(FOX, SamplingParams(max_tokens=300, temperature=0, ignore_eos=True)).result(timeout=30)
    assert ends.finish_reason is FinishReason.STOP
    assert ends.token_ids[-1] == large_demo.model.tokenizer.eos_token_id
    assert goes_on.finish_reason is FinishReason.LENGTH
    assert goes_on.token_ids[: len(ends.token_ids)] == ends.token_ids


@pytest.mark.parametrize("depth", [0, 1])
def test_a_stop_string_ends_the_request_and_is_not_said(demo: Engine, depth: int) -> None:
    trace = demo.begin(EngineConfig(max_running=4, depth=depth))
    whole = demo.submit(FOX, GREEDY.with_(max_tokens=60)).result(timeout=20).text
    stop = whole[25:33]
    completion = demo.submit(FOX, GREEDY.with_(max_tokens=60, stop=(stop, "never said"))).result(timeout=20)
    assert completion.text == whole[: whole.index(stop)]
    assert completion.finish_reason is FinishReason.STOP
    demo.begin(SMALL)  # so that what was launched ahead is read
    assert sum(int(step.wasted.sum()) for step in trace.steps) == depth


def test_every_end_token_of_the_generation_config_ends_a_request(demo_copy: Path, demo: Engine) -> None:
    story = demo.submit(FOX, GREEDY).result(timeout=20)
    end = story.token_ids[5]
    text = (demo_copy / "generation_config.json").read_text()
    (demo_copy / "generation_config.json").write_text(text.replace('"eos_token_id": 2', f'"eos_token_id": [2, {end}]'))
    with Engine(ModelSpec(str(demo_copy)), SMALL, threads=1) as engine:
        completion = engine.submit(FOX, GREEDY.with_(ignore_eos=False)).result(timeout=20)
    first = story.token_ids.index(end)
    assert completion.token_ids == story.token_ids[: first + 1]
    assert completion.finish_reason is FinishReason.STOP


def test_the_models_context_limits_what_is_generated(large_demo: Engine) -> None:
    prompt = [5] * (large_demo.card.context - 4)
    completion = large_demo.submit(prompt, LONG).result(timeout=60)
    assert len(completion.token_ids) == 4
    assert completion.finish_reason is FinishReason.LENGTH


# Many callers, other configs.


def test_threads_may_submit_all_at_once(demo: Engine) -> None:
    streams: list[Stream] = []

    def submit() -> None:
        for _ in range(5):
            streams.append(demo.submit(FOX, GREEDY))

    threads = [threading.Thread(target=submit) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({stream.request for stream in streams}) == 30
    assert len({stream.result(timeout=60).token_ids for stream in streams}) == 1


def test_begin_is_refused_while_requests_run(large_demo: Engine) -> None:
    stream = large_demo.submit(FOX, LONG)
    trace = large_demo.trace
    with pytest.raises(InvalidInput, match="requests are running: wait for them or stop them"):
        large_demo.begin(EngineConfig())
    assert large_demo.trace is trace
    large_demo.cancel()
    assert stream.result(timeout=60).finish_reason is FinishReason.CANCELLED


def test_begin_gives_a_fresh_trace_and_closes_the_one_before(demo: Engine) -> None:
    before = demo.trace
    demo.submit(FOX, GREEDY).result(timeout=20)
    after = demo.begin(EngineConfig(max_running=2, depth=1))
    assert before.complete
    assert not after.complete
    assert demo.trace is after
    assert after.requests == {}
    assert isinstance(after.records[0], Header)
    assert (after.header.config.max_running, after.header.depth) == (2, 1)
    assert demo.submit(FOX, GREEDY).request in after.requests


def test_a_config_that_does_not_fit_is_refused_and_the_one_before_stays(demo: Engine) -> None:
    with pytest.raises(InvalidInput, match=r"kv_memory=10: one block of this model takes .* give at least that"):
        demo.begin(EngineConfig(kv_memory=10))
    assert demo.config == SMALL
    assert demo.submit(FOX, GREEDY).result(timeout=20).finish_reason is FinishReason.LENGTH


def test_closing_ends_running_and_waiting_requests_as_cancelled() -> None:
    engine = Engine(ModelSpec("demo-draft"), EngineConfig(max_running=1, depth=1), threads=1)
    streams = engine.submit_many([Submission(FOX, LONG) for _ in range(3)])
    next(iter(streams[0]))
    engine.close()
    reasons = [stream.result(timeout=60).finish_reason for stream in streams]
    assert reasons == [FinishReason.CANCELLED] * 3
    assert engine.trace.complete
    assert not engine.alive
    for refused in (lambda: engine.submit(FOX), lambda: engine.begin(SMALL), lambda: engine.run(demo_workload(1))):
        with pytest.raises(InvalidInput, match="the engine is closed"):
            refused()
    engine.close()


def test_a_prompt_that_comes_in_while_the_engine_closes_ends_as_cancelled() -> None:
    engine = Engine(ModelSpec("demo-draft"), SMALL, threads=1)
    [late] = engine.prepare([Submission(FOX, GREEDY)])
    stream = late.router.open(late.ticket, engine.cancel)
    engine.close()
    engine.enqueue([late])
    assert stream.result(timeout=60).finish_reason is FinishReason.CANCELLED


def test_a_prompt_that_comes_in_while_another_trace_begins_ends_as_cancelled(large_demo: Engine) -> None:
    [late] = large_demo.prepare([Submission(FOX, GREEDY)])
    stream = late.router.open(late.ticket, large_demo.cancel)
    before = large_demo.trace
    after = large_demo.begin(SMALL)
    large_demo.enqueue([late], more=True)
    assert stream.result(timeout=60).finish_reason is FinishReason.CANCELLED
    assert not large_demo.scheduler.ledger.more, "what was to follow it is not waited for"
    assert list(before.requests) == [late.request.id]
    assert after.requests == {}


def test_a_load_is_reported_and_cancelled_on_the_way() -> None:
    from engine.jobs import LoadCancelled

    stages: list[str] = []
    cancelled = threading.Event()

    def progress(report: Any) -> None:
        stages.append(report.stage)
        if report.stage == "reading weights":
            cancelled.set()

    with pytest.raises(LoadCancelled):
        Engine(ModelSpec("demo-draft"), progress=progress, cancelled=cancelled)
    assert stages[0] == "looking at the model"
    assert stages[-1] == "reading weights"


# Runs.


def test_a_run_plays_a_workload_and_gives_its_trace(demo: Engine) -> None:
    run = demo.run(demo_workload(6, GREEDY), EngineConfig(max_running=4))
    trace = run.result(timeout=60)
    assert run.done
    assert (run.finished, run.total) == (6, 6)
    assert trace.complete
    assert trace is demo.trace
    assert measure(trace).completed == 6


def test_arrivals_come_at_their_times(demo: Engine) -> None:
    arrivals = tuple(Arrival(t, FOX, GREEDY, label=f"at {t}") for t in (0.0, 0.15, 0.15, 0.3))
    trace = demo.run(Workload("spread", arrivals), SMALL).result(timeout=30)
    times = [r.time for r in trace.records if isinstance(r, Submitted)]
    gaps = [time - times[0] for time in times]
    assert gaps == pytest.approx([0, 0.15, 0.15, 0.3], abs=1e-6)
    assert [view.label for view in trace.requests.values()] == ["at 0.0", "at 0.15", "at 0.15", "at 0.3"]
    for view in trace.requests.values():
        assert view.scheduled is not None
        assert view.scheduled >= view.submitted


def test_a_run_is_cancelled_and_what_was_to_come_never_comes(large_demo: Engine) -> None:
    workload = Workload("long", tuple(Arrival(t, FOX, LONG) for t in (0.0, 0.0, 60.0)))
    run = large_demo.run(workload, SMALL)
    while len(run.trace.requests) < 2:
        time.sleep(0.005)
    run.cancel()
    trace = run.result(timeout=60)
    assert [view.reason for view in trace.requests.values()] == [FinishReason.CANCELLED] * 2
    assert run.total == 2


def test_a_run_with_a_prompt_that_is_refused_ends_with_that_error(large_demo: Engine) -> None:
    workload = Workload("bad", (Arrival(0.0, FOX, LONG), Arrival(0.05, "", GREEDY), Arrival(0.1, FOX, GREEDY)))
    run = large_demo.run(workload, SMALL)
    with pytest.raises(InvalidInput, match="it is empty"):
        run.result(timeout=60)
    assert len(run.trace.requests) == 1


def test_an_empty_run_is_over_at_once(demo: Engine) -> None:
    assert demo.run(Workload("nothing", ()), SMALL).result(timeout=60).requests == {}


# Failures.


@pytest.mark.parametrize("depth", [0, 1])
def test_a_step_that_fails_ends_its_requests_and_the_engine_goes_on(demo: Engine, depth: int) -> None:
    demo.begin(EngineConfig(max_running=8, depth=depth))
    poison = 3000

    def refuse(ids: torch.Tensor) -> None:
        if bool((ids == poison).any()):
            raise RuntimeError("this token is poison")

    expected = demo.submit(FOX, GREEDY).result(timeout=20).text
    handle = Watched(demo, before=refuse)
    healthy = demo.submit(FOX, GREEDY)
    next(iter(healthy))
    poisoned = demo.submit([5, poison, 7], GREEDY)
    completion = poisoned.result(timeout=20)
    assert completion.finish_reason is FinishReason.ERROR
    assert completion.error == "the step failed: this token is poison"
    assert healthy.result(timeout=20).text == expected
    handle.remove()
    assert demo.submit([5, poison, 7], GREEDY).result(timeout=20).finish_reason is FinishReason.LENGTH
    notices = [r for r in demo.trace.records if isinstance(r, Notice)]
    assert [n.text for n in notices] == ["a step failed: RuntimeError: this token is poison"]
    assert demo.trace.requests[poisoned.request].state is State.FINISHED
    assert demo.scheduler.ledger.pool.free == demo.scheduler.ledger.pool.total


@pytest.mark.parametrize("depth", [0, 1])
def test_text_said_before_a_failure_is_kept(demo: Engine, depth: int) -> None:
    demo.begin(EngineConfig(max_running=8, depth=depth))
    expected = demo.submit(FOX, GREEDY).result(timeout=20).text
    forwards = 0

    def fail(_: torch.Tensor) -> None:
        nonlocal forwards
        forwards += 1
        if forwards == 12:
            raise RuntimeError("the device is gone")

    handle = Watched(demo, fail)
    completion = demo.submit(FOX, GREEDY).result(timeout=20)
    handle.remove()
    assert completion.finish_reason is FinishReason.ERROR
    assert len(completion.token_ids) == 11 - depth, "a step in flight is lost with the one that fails"
    assert completion.text
    assert expected.startswith(completion.text)


# The trace.


def test_the_trace_tells_of_each_request_what_its_stream_told(demo: Engine) -> None:
    demo.begin(EngineConfig(max_running=4, token_budget=64, kv_memory=40 * 16 * demo.card.kv_token_bytes))
    workload = demo_workload(8, SamplingParams(max_tokens=120, temperature=0.9))
    streams = demo.submit_many([Submission(a.prompt, a.params) for a in workload.arrivals])
    completions = [stream.result(timeout=60) for stream in streams]
    views = demo.trace.requests
    assert list(views) == [c.request for c in completions]
    for completion in completions:
        view = views[completion.request]
        assert view.text == completion.text
        assert tuple(view.tokens) == completion.token_ids
        assert tuple(view.logprobs) == completion.logprobs
        assert view.reason is completion.finish_reason
        assert view.state is State.FINISHED
        assert view.ttft == completion.metrics.ttft
        assert view.submitted <= view.scheduled <= view.token_times[0] <= view.ended  # type: ignore[operator]


@pytest.mark.parametrize("depth", [0, 1])
def test_the_trace_tells_whose_every_block_is(large_demo: Engine, depth: int) -> None:
    trace = large_demo.begin(
        EngineConfig(max_running=6, kv_memory=12 * 16 * large_demo.card.kv_token_bytes, depth=depth)
    )
    streams = [large_demo.submit(FOX, GREEDY.with_(max_tokens=60)) for _ in range(6)]
    handle = at_forward(large_demo, 30, lambda: large_demo.cancel([streams[1].request]))
    for stream in streams:
        stream.result(timeout=60)
    handle.remove()
    told = ToldBlocks()
    for step in trace.steps:
        told.feed(step)
        told.check(step, trace.header.blocks)
    assert measure(trace).preemptions > 0
    assert told.tables == {}


def test_records_cannot_be_changed(demo: Engine) -> None:
    demo.submit(FOX, GREEDY).result(timeout=20)
    [submitted] = [r for r in demo.trace.records if isinstance(r, Submitted)]
    with pytest.raises(ValueError, match="read-only"):
        submitted.token_ids[0] = 1
    for step in demo.trace.steps:
        with pytest.raises(ValueError, match="read-only"):
            step.token[:] = 1


def test_the_machines_load_is_told_about_twice_a_second(demo: Engine) -> None:
    def readings() -> list[Telemetry]:
        return [r for r in demo.trace.records if isinstance(r, Telemetry)]

    until(lambda: len(readings()) >= 3)
    first, *_, last = (r.time for r in readings()[:3])
    assert last - first > 1.9 * TELEMETRY_INTERVAL
    assert all(r.memory > 0 for r in readings())


def test_a_request_cancelled_just_before_another_trace_begins_still_ends(large_demo: Engine) -> None:
    for _ in range(5):
        stream = large_demo.submit([5, 6, 7], SamplingParams(max_tokens=900, ignore_eos=True))
        next(iter(stream))
        large_demo.cancel()
        large_demo.begin(large_demo.config)
        assert stream.result(timeout=60).finish_reason is FinishReason.CANCELLED


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_engine_that_breaks_ends_its_requests_and_takes_no_more() -> None:
    with Engine(ModelSpec("demo"), EngineConfig(max_running=4), threads=1) as engine:
        stream = engine.submit([5, 6, 7], SamplingParams(max_tokens=900, ignore_eos=True))
        next(iter(stream))
        model = weakref.ref(engine.model.module)

        def broken(now: float) -> None:
            raise AssertionError("this cannot happen")

        engine.scheduler.plan = broken  # type: ignore[method-assign,assignment]
        assert stream.result(timeout=60).finish_reason is FinishReason.ERROR
        assert "this cannot happen" in stream.result().error
        assert not engine.alive
        with pytest.raises(InvalidInput, match="this cannot happen"):
            engine.submit("hello")
        with pytest.raises(InvalidInput, match="this cannot happen"):
            engine.begin(EngineConfig())
        engine._thread.join(timeout=60)
        assert model() is None, "its memory is there for another"


def test_every_trace_counts_its_requests_from_zero_and_a_late_cancel_ends_nobody_elses(large_demo: Engine) -> None:
    before = large_demo.trace
    assert large_demo.submit([5], SamplingParams(max_tokens=2)).request == 0
    large_demo.cancel()
    begin_when_idle(large_demo, large_demo.config)
    stream = large_demo.submit([5, 6], SamplingParams(max_tokens=30, ignore_eos=True))
    assert stream.request == 0
    large_demo.cancel([0], before)
    assert stream.result(timeout=20).finish_reason is FinishReason.LENGTH


# One that is dropped.


@pytest.mark.parametrize("kind", [Engine, EngineProcess])
def test_an_engine_that_is_dropped_without_close_ends_its_threads_and_its_process(
    kind: type[Engine] | type[EngineProcess],
) -> None:
    threads, before = set(threading.enumerate()), children()
    engine = kind(ModelSpec("demo-draft"), SMALL, threads=1)
    weak, trace = weakref.ref(engine), engine.trace
    short = engine.submit("Once", SamplingParams(max_tokens=3))
    assert len(short.result(timeout=20).token_ids) <= 3
    stream = engine.submit("Once there was", SamplingParams(max_tokens=200, temperature=0, ignore_eos=True))
    del engine
    gc.collect()
    assert weak() is not None, "a request runs"
    assert len(stream.result(timeout=20).token_ids) == 200
    deadline = time.monotonic() + 10
    while weak() is not None or set(threading.enumerate()) - threads or children() - before:
        assert time.monotonic() < deadline, (weak(), threading.enumerate(), children() - before)
        gc.collect()
        time.sleep(0.02)
    stream.cancel()
    assert len(trace.requests) == 2


SCRIPT = """
import atexit, threading
atexit.register(lambda: print(sorted(thread.name for thread in threading.enumerate())))  # runs last
from engine import Engine, EngineConfig, ModelSpec, SamplingParams
engine = Engine(ModelSpec("demo-draft"), EngineConfig(max_running=4, token_budget=64), threads=1)
streams = [engine.submit("Once", SamplingParams(max_tokens=900, ignore_eos=True)) for _ in range(4)]
print(len(next(iter(streams[0])).token_ids) > 0)
"""


def test_a_script_that_never_closes_its_engine_ends_without_a_thread_that_computes() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["True", "['MainThread']"]), done.stderr


def test_an_engine_that_is_dropped_while_nothing_was_ever_asked_of_it_is_gone() -> None:
    threads = set(threading.enumerate())
    weak = weakref.ref(Engine(ModelSpec("demo-draft"), SMALL, threads=1))
    gc.collect()
    deadline = time.monotonic() + 10
    while weak() is not None or set(threading.enumerate()) - threads:
        assert time.monotonic() < deadline
        time.sleep(0.02)
