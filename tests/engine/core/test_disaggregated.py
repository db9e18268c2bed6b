"""Prompts that another process computes: who decodes goes on meanwhile, says the same, and hears of its death."""

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, load_trace, save_trace
from engine.config.parallel import Parallel
from engine.core.prefill.handle import Computed, PrefillWorker
from engine.core.setup import runner_factory
from engine.jobs import spawn
from engine.parallel.link import Link, telling
from engine.serving.metrics.observer import Observer
from engine.trace import Kind, Notice, Trace, measure
from engine.trace.records import FinishReason

GREEDY = SamplingParams(temperature=0, ignore_eos=True, max_tokens=40)
BRIEF = GREEDY.with_(max_tokens=16)
APART = EngineConfig("disaggregated", 8)
LONG = [5 + i % 900 for i in range(900)]
SHORT = [7, 8, 9, 10, 11]


@pytest.fixture(scope="module")
def demo() -> Engine:
    """It and its worker have a thread each."""
    engine = Engine(ModelSpec("demo"), threads=1)
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def _no_worker_left(demo: Engine) -> None:
    yield
    if demo.alive:
        demo.begin(EngineConfig())  # a worker ends with its mode


def said(engine: Engine, config: EngineConfig, params: SamplingParams = BRIEF) -> list[list[list[int]]]:
    """What several prompts are answered, those that begin alike and those of a token among them, in all samples."""
    engine.begin(config)
    prompts = [SHORT, LONG[:300], LONG[:300], LONG[:17], [3], LONG[:160], LONG[:161], SHORT, LONG[:16], LONG]
    streams = [engine.submit(prompt, params) for prompt in prompts]
    for stream in streams:
        stream.result(timeout=60)
    requests = engine.trace.requests
    return [[branch.tokens.tolist() for branch in requests[s.request].samples] for s in streams]


def interrupted(engine: Engine) -> tuple[Trace, int, int]:
    """One that decodes while a long prompt comes: the run and their numbers."""
    engine.begin(APART)
    talking = engine.submit(SHORT, GREEDY.with_(max_tokens=200))
    next(iter(talking))
    long = engine.submit(LONG, GREEDY)
    for stream in (talking, long):
        stream.result(timeout=60)
    return engine.trace, talking.request, long.request


def test_who_decodes_gets_a_token_at_every_step_while_a_prompt_is_computed(demo: Engine) -> None:
    trace, talking, long = interrupted(demo)
    away = [step for step in trace.steps if step.beside and long in step.request[-step.beside :]]
    assert len(away) >= 3
    over = trace.requests[talking].ended  # before the worker is done, where the machine lets that wait
    assert over is not None
    meanwhile = [step for step in away if step.ended <= over]
    assert all(talking in step.request[step.token_row] for step in meanwhile), "nobody waits for the prompt"
    counts = [int(step.count[step.request == long][0]) for step in away]
    assert counts == [0] * (len(away) - 1) + [len(LONG) - 1], "its tokens are told once they are computed"
    assert all((step.kind[-step.beside :] == Kind.PREFILL).all() for step in away)
    first = next(step for step in trace.steps if long in step.request[step.token_row])
    assert first.step == away[-1].step + 1, "the next step computes the last of it, and says the first token"
    assert first.count[first.request == long].tolist() == [1]
    own = [step.own for step in trace.steps]
    assert all(talking not in step.request or (step.kind != Kind.HELD).all() for step in own)


def test_the_record_tells_what_both_did_and_is_read_back_alike(demo: Engine, tmp_path: Path) -> None:
    trace, _, long = interrupted(demo)
    save_trace(trace, tmp_path / "apart.bsrun")
    read = load_trace(tmp_path / "apart.bsrun")
    header = read.header
    assert header.rank_devices == ("cpu", "cpu")
    assert header.rank_weights[0] == header.rank_weights[1] > 0
    assert header.bill is not None
    assert header.bill.weights == sum(header.rank_weights), "the weights are there twice"
    handed = [step for step in read.steps if len(step.rank_bytes) and step.rank_bytes[1]]
    assert sum(int(step.rank_bytes[1]) for step in handed if long in step.request) == (
        (len(LONG) - 1) * header.model.kv_token_bytes
    )
    worked = sum(float(step.rank_computing[1]) for step in read.steps if len(step.rank_computing))
    assert worked > 0
    for step in read.steps:
        if len(step.rank_computing):
            span = step.ended - step.started
            assert (step.rank_computing + step.rank_waiting <= span + 1e-5).all()
    assert [step.beside for step in read.steps] == [step.beside for step in trace.steps]


def test_a_step_of_prompts_alone_is_told_from_when_they_were_sent(demo: Engine) -> None:
    demo.begin(APART)
    demo.submit(LONG, GREEDY).result(timeout=60)
    first = next(step for step in demo.trace.steps if step.rows)
    assert first.beside == first.rows == 1
    assert first.count.tolist() == [len(LONG) - 1]
    assert first.rank_computing[1] == pytest.approx(first.ended - first.started, rel=0.5)
    assert first.seconds["forward"] == pytest.approx(float(first.rank_computing[1]))
    assert first.rank_computing[0] == 0


SWITCHES: dict[str, dict[str, object]] = {
    "plain": {},
    "prefix caching": {"prefix_caching": True},
    "few blocks": {"kv_memory": 80 * 16 * 6144},
    "small budget": {"token_budget": 64},
    "n-grams": {"speculation": "ngram"},
    "a draft": {"speculation": "draft"},
    "int8": {"kv_dtype": "int8"},
    "shortest first": {"admission": "sjf", "max_running": 3},
    "no graphs": {"cuda_graphs": False},
}


@pytest.mark.parametrize("name", SWITCHES)
def test_with_every_switch_it_says_what_one_process_says(demo: Engine, name: str) -> None:
    values = {"max_running": 8, **SWITCHES[name]}
    assert said(demo, EngineConfig("disaggregated", **values)) == said(demo, EngineConfig("chunked", **values))  # type: ignore[arg-type]


def test_samples_of_one_prompt_share_its_whole_blocks(demo: Engine) -> None:
    params = GREEDY.with_(n=3, temperature=0.8, seed=4, max_tokens=12)
    assert said(demo, APART, params) == said(demo, EngineConfig("continuous", 8), params)
    demo.begin(APART)
    stream = demo.submit(LONG[:40], params)
    stream.result(timeout=60)
    taken = np.concatenate([step.block for step in demo.trace.steps if len(step.block)])
    assert len(np.unique(taken)) < 3 * 4


def test_what_is_cancelled_while_it_is_computed_gives_its_blocks_back(demo: Engine) -> None:
    demo.begin(APART)
    streams = [demo.submit(LONG, GREEDY) for _ in range(4)]
    demo.cancel()
    for stream in streams:
        assert stream.result(timeout=60).finish_reason is FinishReason.CANCELLED
    assert len(demo.submit(SHORT, GREEDY).result(timeout=60).token_ids) == 40
    demo.begin(EngineConfig())
    trace = demo.trace
    assert trace.header.config.mode == "continuous", "it waited for the worker, and went on"


def test_who_must_make_way_while_its_prompt_is_read_does_so_between_two_parts(demo: Engine) -> None:
    demo.begin(APART)
    talking = demo.submit(SHORT, GREEDY.with_(max_tokens=300))
    next(iter(talking))
    demo.steer(token_budget=16)
    long = demo.submit(LONG, GREEDY)
    while not any(step.beside for step in demo.trace.steps if long.request in step.request):
        time.sleep(0.001)
    demo.steer(max_running=1)
    talking.result(timeout=60)
    assert len(long.result(timeout=60).token_ids) == 40
    trace = demo.trace
    talked = [step.step for step in trace.steps if talking.request in step.request[step.token_row]]
    assert talked[-1] - talked[0] < len(talked) + 20, "whoever decodes goes on"
    assert long.request in np.concatenate([step.preempted for step in trace.steps])


@pytest.mark.parametrize("short", [True, False])
def test_prompts_that_the_worker_cannot_compute_end_or_are_made_smaller_and_others_go_on(
    demo: Engine, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo.begin(APART)
    taken, failures = PrefillWorker.computed, list[Computed]()

    def fails_once(worker: PrefillWorker, timeout: float = 0.0) -> Computed | None:
        found = taken(worker, timeout)
        if found is None or failures:
            return found
        failures.append(Computed(error="so it says", short=short))
        return failures[0]

    monkeypatch.setattr(PrefillWorker, "computed", fails_once)
    failed = demo.submit(LONG, GREEDY).result(timeout=60)
    assert failed.finish_reason is (FinishReason.LENGTH if short else FinishReason.ERROR)
    assert short or "the prompt failed: so it says" in failed.error
    assert len(demo.submit(LONG, GREEDY).result(timeout=60).token_ids) == 40
    told = [record.text for record in demo.trace.records if isinstance(record, Notice)]
    assert [text for text in told if text.startswith("prompts of 899 tokens ") and text.endswith(": so it says")]
    assert demo.trace.steps[-1].free_blocks == demo.trace.header.blocks


def test_a_worker_that_hangs_keeps_nobody_from_going_on_or_closing() -> None:
    engine = Engine(ModelSpec("demo"), APART, threads=1)
    for end in (lambda: engine.begin(APART), engine.close):
        assert engine.prepared.worker is not None
        os.kill(engine.prepared.worker.pid, signal.SIGSTOP)
        stream = engine.submit(LONG, GREEDY)
        while not engine.scheduler.away:
            time.sleep(0.001)
        stream.cancel()
        assert stream.result(timeout=60).finish_reason is FinishReason.CANCELLED
        begun = time.monotonic()
        end()
        assert time.monotonic() - begun < 15
        if engine.alive:
            assert len(engine.submit(SHORT, GREEDY).result(timeout=60).token_ids) == 40, "another was started"


def test_an_idle_engine_hears_that_its_worker_died() -> None:
    with Engine(ModelSpec("demo"), APART, threads=1) as engine:
        assert engine.prepared.worker is not None
        os.kill(engine.prepared.worker.pid, signal.SIGKILL)
        until = time.monotonic() + 20
        while engine.alive and time.monotonic() < until:
            time.sleep(0.01)
        assert "the prefill worker" in str(engine.error)
        assert "was killed by SIGKILL" in str(engine.error)


def test_a_worker_that_cannot_begin_leaves_the_engine_as_it_was(demo: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    demo.begin(EngineConfig())
    with monkeypatch.context() as patched:
        patched.setattr(runner_factory, "layout_of", lambda caches: ["otherwise"])
        with pytest.raises(InvalidInput, match=r"keeps K and V as torch.float32 \(.*this one as otherwise"):
            demo.begin(APART)
    assert len(demo.submit(SHORT, GREEDY).result(timeout=60).token_ids) == 40
    started = spawn.start

    def dies(*given: Any, **how: Any) -> Any:
        child = started(*given, **how)
        child.kill()
        return child

    with monkeypatch.context() as patched:
        patched.setattr(spawn, "start", dies)
        with pytest.raises(InvalidInput, match=r"the prefill worker .* was killed by SIGKILL"):
            demo.begin(APART)
    assert len(demo.submit(SHORT, GREEDY).result(timeout=60).token_ids) == 40


def test_how_a_process_ends_is_told_to_who_started_it() -> None:
    """A file that cannot be read is told, though it is an error of the system as a lost connection is."""
    ours, theirs = map(Link, socket.socketpair())
    with pytest.raises(OSError, match="no such weights"), telling(theirs):
        raise OSError("no such weights")
    assert b"OSError: no such weights" in ours.receive()[1]
    with telling(theirs):
        raise InvalidInput("refused, then")
    assert b"refused, then" in ours.receive()[1]
    ours.end.close()
    with telling(theirs):
        theirs.send(b"T", b"heard by nobody")
        theirs.send(b"T", b"heard by nobody")
    theirs.end.close()


def test_what_a_server_and_a_table_count_is_what_was_computed(demo: Engine) -> None:
    measures = {}
    for mode in ("chunked", "disaggregated"):
        demo.begin(EngineConfig(mode, 8, prefix_caching=True))
        observer = Observer(demo.trace, "demo")
        for _ in range(2):
            demo.submit(LONG[:400], GREEDY).result(timeout=60)
        found = measures[mode] = measure(demo.trace)
        assert observer.reused == found.reused_tokens > 300
    assert measures["disaggregated"].mean_rows == pytest.approx(measures["chunked"].mean_rows, rel=0.1)
    assert measures["disaggregated"].outside_forward < 0.5


def test_the_threads_are_halved_and_what_they_reach_is_told() -> None:
    with Engine(ModelSpec("demo"), threads=2) as engine:
        whole = engine.trace.header
        half = engine.begin(APART).header
        assert (whole.machine.threads, half.machine.threads) == (2, 1)
        assert half.roof != whole.roof
        assert engine.begin(EngineConfig()).header.machine.threads == 2


def test_an_engine_whose_worker_dies_says_so() -> None:
    with Engine(ModelSpec("demo"), APART, threads=1) as engine:
        assert engine.submit(SHORT, GREEDY).result(timeout=60).finish_reason is FinishReason.LENGTH
        assert engine.beside is not None
        pid = engine.prepared.worker.pid
        os.kill(pid, signal.SIGKILL)
        stream = engine.submit(LONG, GREEDY)
        completion = stream.result(timeout=60)
        assert completion.finish_reason is FinishReason.ERROR
        assert f"the prefill worker (process {pid}) was killed by SIGKILL" in completion.error
        assert not engine.alive
        with pytest.raises(InvalidInput, match="was killed by SIGKILL"):
            engine.submit(SHORT, GREEDY)


def test_what_it_does_not_do_is_refused_by_name(demo: Engine) -> None:
    demo.begin(APART)
    for params, what in (
        (GREEDY.with_(beam_width=2), "beam_width=2"),
        (GREEDY.with_(prompt_logprobs=1), "prompt_logp"),
    ):
        with pytest.raises(InvalidInput, match=f"{what}.*use continuous or chunked"):
            demo.submit(SHORT, params)
    with pytest.raises(InvalidInput, match="depth=1: prompts are handed over between steps"):
        EngineConfig("disaggregated", depth=1)
    with pytest.raises(InvalidInput, match="preemption='swap': mode 'disaggregated' swaps no blocks"):
        EngineConfig("disaggregated", preemption="swap")
    with (
        Engine(ModelSpec("demo", parallel=Parallel(2)), threads=1) as split,
        pytest.raises(InvalidInput, match="mode='disaggregated': a model that is split"),
    ):
        split.begin(APART)
