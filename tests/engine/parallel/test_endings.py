"""However a rank or the engine ends, whoever waits is told which one it was, and no process is left."""

import gc
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from engine import Engine, EngineConfig, EngineProcess, ModelSpec, Parallel, SamplingParams
from engine.core.process import EngineDied
from engine.jobs import spawn
from tests.children import children

LONG = SamplingParams(max_tokens=400, temperature=0, ignore_eos=True)
CONFIG = EngineConfig(max_running=4, token_budget=64)


def spec(folder: Path, **parallel: object) -> ModelSpec:
    return ModelSpec(str(folder), dtype="float32", device="cpu", parallel=Parallel(2, **parallel))  # type: ignore[arg-type]


def other(engine: Engine) -> int:
    assert engine.model.ranks is not None
    return engine.model.ranks.others[0].child.pid


def wait_until(holds: Callable[[], bool], seconds: float = 20) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)


@pytest.mark.parametrize("backend", ["shared", "gloo"])
def test_a_rank_that_is_killed_ends_the_engine_by_its_name(tiny_folder: Callable[[str], Path], backend: str) -> None:
    with Engine(spec(tiny_folder("llama"), backend=backend), CONFIG, threads=1) as engine:
        pid = other(engine)
        stream = engine.submit([5, 6, 7], LONG)
        next(iter(stream))
        os.kill(pid, signal.SIGKILL)
        completion = stream.result()
        assert completion.finish_reason == "error"
        assert f"rank 1 (process {pid}) was killed by SIGKILL" in completion.error
        wait_until(lambda: not engine.alive)
        assert f"rank 1 (process {pid})" in engine.error


def test_a_rank_that_is_killed_while_nothing_runs_ends_the_engine_too(tiny_folder: Callable[[str], Path]) -> None:
    with Engine(spec(tiny_folder("llama")), CONFIG, threads=1) as engine:
        os.kill(other(engine), signal.SIGKILL)
        wait_until(lambda: not engine.alive)
        assert "rank 1" in engine.error


def test_a_rank_that_hangs_ends_the_engine_by_its_name(tiny_folder: Callable[[str], Path]) -> None:
    with Engine(spec(tiny_folder("llama"), timeout=1.0), CONFIG, threads=1) as engine:
        pid = other(engine)
        os.kill(pid, signal.SIGSTOP)
        completion = engine.submit([5, 6, 7], LONG).result()
        assert f"rank 1 (process {pid}) did not come within 1 s" in completion.error
    assert not psutil.pid_exists(pid)


def test_an_engine_that_is_killed_takes_its_ranks_with_it(tiny_folder: Callable[[str], Path]) -> None:
    before = children()
    engine = EngineProcess(spec(tiny_folder("llama")), CONFIG, threads=1)
    try:
        ranks = children() - before - {engine.pid}
        assert len(ranks) == 1, "one rank beside the engine"
        server = spawn.server_pid()
        assert server is None or psutil.Process(*ranks).ppid() == server, "forked by the server of this process"
        stream = engine.submit([5, 6, 7], LONG)
        os.kill(engine.pid, signal.SIGKILL)
        assert stream.result().finish_reason == "error"
        wait_until(lambda: not any(map(psutil.pid_exists, ranks)))
    finally:
        engine.close()


def test_a_backend_that_does_not_serve_a_dtype_is_refused_and_leaves_nobody(tiny_folder: Callable[[str], Path]) -> None:
    before = children()
    half = ModelSpec(str(tiny_folder("llama")), dtype="float16", device="cpu", parallel=Parallel(2, "shared"))
    with pytest.raises(ValueError, match="float32 or bfloat16"):
        Engine(half, CONFIG)
    assert children() == before


def test_the_engines_process_tells_which_rank_it_was(tiny_folder: Callable[[str], Path]) -> None:
    before = children()
    with EngineProcess(spec(tiny_folder("llama")), CONFIG, threads=1) as engine:
        (rank,) = children() - before - {engine.pid}
        stream = engine.submit([5, 6, 7], LONG)
        next(iter(stream))
        os.kill(rank, signal.SIGKILL)
        assert f"rank 1 (process {rank})" in stream.result().error
        wait_until(lambda: not engine.alive)
        assert engine.restart, "loading again mends it"


def test_a_load_is_refused_in_the_same_words_by_an_engines_process(tiny_folder: Callable[[str], Path]) -> None:
    with pytest.raises((ValueError, EngineDied), match="use 2, or 1"):
        EngineProcess(ModelSpec(str(tiny_folder("llama")), parallel=Parallel(4)), CONFIG)


def test_an_engine_that_is_forgotten_takes_its_ranks_with_it(tiny_folder: Callable[[str], Path]) -> None:
    engine = Engine(spec(tiny_folder("llama")), CONFIG, threads=1)
    pid = other(engine)
    engine.submit([5, 6, 7], LONG.with_(max_tokens=2)).result()
    del engine

    def gone() -> bool:
        gc.collect()  # its thread may have had it the last time
        return not psutil.pid_exists(pid)

    wait_until(gone)
