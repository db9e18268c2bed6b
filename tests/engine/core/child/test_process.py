"""An engine in a process of its own has the same face, and tells what happened to it."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, EngineConfig, EngineProcess, InvalidInput, ModelSpec, SamplingParams, Submission, measure
from engine.jobs import LoadProgress
from engine.trace import FinishReason, Header
from engine.workloads import demo_workload
from tests.children import children

FOX: list[Any] = [{"role": "user", "content": "Tell me a story about a fox and a kite."}]
GREEDY = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
LONG = SamplingParams(max_tokens=900, temperature=0, ignore_eos=True)
SMALL = EngineConfig(max_running=16, token_budget=512)


@pytest.fixture(scope="module")
def hosted() -> Iterator[EngineProcess]:
    with EngineProcess(ModelSpec("demo"), SMALL, threads=1) as engine:
        yield engine


@pytest.fixture
def process(hosted: EngineProcess) -> EngineProcess:
    hosted.begin(SMALL)
    return hosted


def test_it_runs_in_another_process_with_the_models_card_and_header(process: EngineProcess) -> None:
    assert process.pid in children()
    assert process.card.name == "demo stories 5M"
    assert isinstance(process.trace.records[0], Header)
    assert process.trace.header.config == SMALL
    assert process.trace.header.machine.threads == 1
    assert process.alive


@pytest.mark.parametrize("quantization", ["none", "nf4", "int8-plain", "awq", "torchao-int8"])
def test_a_child_says_what_an_engine_here_says(quantization: str) -> None:
    spec = ModelSpec("demo", quantization, dtype="auto" if quantization == "awq" else "float32")
    with EngineProcess(spec, SMALL, threads=1) as there, Engine(spec, SMALL, threads=1) as here:
        assert here.submit(FOX, GREEDY).result().text == there.submit(FOX, GREEDY).result().text


def test_its_tokenizer_answers_as_the_model_is_asked(process: EngineProcess) -> None:
    tokens = process.encode("Once upon a time")
    answered = process.submit("Once upon a time", GREEDY)
    answered.result(timeout=20)
    assert process.trace.requests[answered.request].prompt_ids.tolist() == tokens
    assert process.decode(tokens) == "Once upon a time"
    assert "".join(process.pieces(tokens)) == "Once upon a time"
    assert "fox" in process.decode(process.encode(FOX))
    with pytest.raises(InvalidInput, match="token id 99999"):
        process.decode([99999])
    with pytest.raises(InvalidInput, match="it is empty"):
        process.encode(" ")


def test_streams_are_read_as_those_of_an_engine(process: EngineProcess) -> None:
    stream = process.submit(FOX, GREEDY)
    deltas = list(stream)
    completion = stream.result(timeout=60)
    assert completion.finish_reason is FinishReason.LENGTH
    assert "".join(d.text for d in deltas) == completion.text
    assert len(completion.token_ids) == 24
    view = process.trace.requests[stream.request]
    assert view.text == completion.text
    assert view.messages == tuple(FOX)
    assert 0 <= view.submitted <= view.token_times[0]


def test_streams_are_read_asynchronously(process: EngineProcess) -> None:
    async def read() -> str:
        return "".join([delta.text async for delta in process.submit(FOX, GREEDY)])

    assert asyncio.run(asyncio.wait_for(read(), 20)) == process.submit(FOX, GREEDY).result(timeout=60).text


def test_one_request_and_then_all_are_cancelled(process: EngineProcess) -> None:
    streams = process.submit_many([Submission(FOX, LONG) for _ in range(4)])
    next(iter(streams[0]))
    process.cancel([streams[2].request])
    assert streams[2].result(timeout=60).finish_reason is FinishReason.CANCELLED
    assert not streams[0].done
    process.cancel()
    assert {s.result(timeout=60).finish_reason for s in streams} == {FinishReason.CANCELLED}
    assert streams[0].result().text


def test_a_stream_cancels_its_own_request_and_does_nothing_after_its_end(process: EngineProcess) -> None:
    other, stopped = process.submit(FOX, GREEDY), process.submit(FOX, LONG)
    next(iter(stopped))
    stopped.cancel()
    stopped.cancel()
    assert stopped.result(timeout=60).finish_reason is FinishReason.CANCELLED
    assert stopped.result().text
    assert other.result(timeout=60).finish_reason is FinishReason.LENGTH
    other.cancel()
    assert process.submit(FOX, GREEDY).result(timeout=60).finish_reason is FinishReason.LENGTH


def test_a_mistake_raises_here_and_what_runs_goes_on(process: EngineProcess) -> None:
    running = process.submit(FOX, GREEDY)
    with pytest.raises(InvalidInput, match="it is empty"):
        process.submit("", GREEDY)
    with pytest.raises(InvalidInput, match="a context of 1,024"):
        process.submit([5] * 5000, GREEDY)
    assert running.result(timeout=60).finish_reason is FinishReason.LENGTH


def test_begin_and_run_give_fresh_traces(process: EngineProcess) -> None:
    before = process.trace
    running = process.submit(FOX, LONG)
    with pytest.raises(InvalidInput, match="requests are running"):
        process.begin(SMALL)
    process.cancel()
    running.result(timeout=60)
    config = EngineConfig(max_running=3, depth=1)
    run = process.run(demo_workload(5, GREEDY), config)
    trace = run.result(timeout=60)
    assert before.complete
    assert trace is process.trace is not before
    assert trace.header.config == config
    assert measure(trace).completed == 5
    with pytest.raises(InvalidInput, match="one block of this model takes"):
        process.begin(EngineConfig(kv_memory=1))
    assert process.submit(FOX, GREEDY).result(timeout=60).finish_reason is FinishReason.LENGTH


def test_threads_may_submit_all_at_once(process: EngineProcess) -> None:
    texts: list[str] = []
    threads = [
        threading.Thread(target=lambda: texts.append(process.submit(FOX, GREEDY).result(timeout=60).text))
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(texts) == 12
    assert len(set(texts)) == 1


def test_a_load_tells_how_far_it_is() -> None:
    told: list[LoadProgress] = []
    with EngineProcess(ModelSpec("demo-draft"), SMALL, progress=told.append, threads=1):
        assert told[0].stage == "looking at the model"
        last = [p for p in told if p.stage == "reading weights"][-1]
        assert last.done == last.total > 0


def test_a_load_that_fails_says_why_and_leaves_no_process() -> None:
    before = children()
    with pytest.raises(InvalidInput, match="no folder /nowhere/at/all"):
        EngineProcess(ModelSpec("/nowhere/at/all"))
    assert children() == before


def test_a_closed_engine_refuses_and_closing_twice_is_fine() -> None:
    engine = EngineProcess(ModelSpec("demo-draft"), SMALL, threads=1)
    engine.close()
    engine.close()
    assert not engine.alive
    assert engine.trace.complete
    with pytest.raises(InvalidInput, match="the engine is closed"):
        engine.submit(FOX, GREEDY)
    with pytest.raises(InvalidInput, match="the engine is closed"):
        engine.begin(SMALL)
    engine.cancel()


def test_a_script_without_a_main_guard_is_run_once_and_never_imports_torch(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\nfrom engine import EngineProcess, ModelSpec, SamplingParams\nprint('begun')\n"
        "with EngineProcess(ModelSpec('demo-draft'), threads=1) as engine:\n"
        "    print(engine.submit('Once', SamplingParams(max_tokens=3, temperature=0)).result(60).finish_reason)\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.split() == ["begun", "length", "[]"], done.stderr
