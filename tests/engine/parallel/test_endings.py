"""However a rank or the engine ends, whoever waits is told which one it was, and no process is left."""

import gc
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from engine import Engine, EngineConfig, EngineProcess, ModelSpec, Parallel, SamplingParams
from engine.core.child.process import EngineDied
from engine.jobs import spawn
from engine.jobs.progress import LoadProgress
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


WINDOW = """
import sys, time
from engine import EngineConfig, EngineProcess, ModelSpec, Parallel
if __name__ == "__main__":
    spec = ModelSpec(sys.argv[1], dtype="float32", device="cpu", parallel=Parallel(2))
    engine = EngineProcess(spec, EngineConfig(max_running=4, token_budget=64), threads=1)
    print("engine", engine.pid, flush=True)
    time.sleep(600)
"""


@dataclass
class Window:
    """A process with a split model's engine, as a window has one; it says the engine's process where it is loaded."""

    process: psutil.Process
    said: Path


@pytest.fixture(scope="module", autouse=True)
def window(tiny_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Window]:
    """Starts while the other tests run, and is no child of this process: they look at those."""
    folder = tmp_path_factory.mktemp("window")
    program, said = folder / "window.py", folder / "said"
    program.write_text(WINDOW)
    order = shlex.join([sys.executable, str(program), str(tiny_folder("llama"))])
    shell = f"{order} >{shlex.quote(str(said))} 2>&1 </dev/null & echo $!"
    pid = int(subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, check=True).stdout)
    window = Window(psutil.Process(pid), said)
    yield window
    if window.process.is_running():
        window.process.kill()


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


def test_a_rank_that_is_killed_while_it_loads_is_named(tiny_folder: Callable[[str], Path]) -> None:
    before, killed = children(), set[int]()

    def progress(status: LoadProgress) -> None:
        if status.stage == "reading the tokenizer":  # the ranks are there
            killed.update(children() - before)
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(RuntimeError, match=r"rank 1 \(process \d+\) was killed by SIGKILL"):
        Engine(spec(tiny_folder("llama"), sequence=True), CONFIG, progress=progress, threads=1)
    assert len(killed) == 1
    assert not children() - before


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


def test_a_window_that_is_killed_leaves_neither_engine_nor_ranks(window: Window) -> None:
    wait_until(lambda: "engine" in window.said.read_text(), 60)
    engine = int(window.said.read_text().split("engine")[1].split()[0])
    of_it = window.process.children(recursive=True)
    assert engine in [process.pid for process in of_it]
    assert len(of_it) == 3, "the server of its children, the engine and the other rank"
    window.process.kill()
    wait_until(lambda: not any(process.is_running() for process in of_it))
