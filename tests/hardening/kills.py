"""Kills processes at random moments of a run: the engine's, which its parent must outlive with words; the one that
writes the run's file, which must open again with every record that was written; and a server's, whose request log must
open again with every answer that was given."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
from pathlib import Path
from random import Random

import psutil

from engine import EngineConfig, EngineProcess, InvalidInput, ModelSpec, SamplingParams, load_trace
from engine.core.child.process import EngineDied
from engine.serving import RequestLogSettings, last_requests
from engine.serving.request_log import RequestLog
from engine.trace import Ended, FinishReason, Notice, TraceWriter
from tests.engine.core.child.ending_processes import gone
from tests.hardening.found import Found

ROOT = Path(__file__).parents[2]
DRAFT = ModelSpec("demo-draft")
SPOOLED = 0.5  # seconds after which an answer's row is on the disk, on a machine that does other things too


def kill(count: int, seed: int, folder: Path, begin: int = 0) -> Found:
    """So many kills, from this number on: three engines for each writer or server, which take longest to begin."""
    found = Found()
    for number in range(begin, begin + count):
        rng = Random(f"kills/{seed}/{number}")
        path = folder / f"{seed}-{number}.bsrun"
        try:
            if number % 8 == 7:
                _kill_server(rng, folder / str(number))
                found.add("kills", number, "opened", "")
            elif number % 4 == 3:
                _kill_writer(rng, path)
                found.add("kills", number, "opened", "")
            else:
                _kill_engine(rng, path)
                found.add("kills", number, "ended", "")
        except Exception:
            found.add("kills", number, "defect", traceback.format_exc())
    return found


def busy(engine: EngineProcess, rng: Random, many: int) -> None:
    """Some prompts of any kind, sent; some of them stopped."""
    for _ in range(many):
        params = SamplingParams(max_tokens=rng.choice((1, 3, 40, 900)), temperature=rng.choice((0.0, 1.0)), seed=1)
        stream = engine.submit("Once there was " * rng.choice((1, 4, 40)), params)
        if rng.random() < 0.2:
            stream.cancel()


def _kill_engine(rng: Random, path: Path) -> None:
    config = EngineConfig(rng.choice(("continuous", "chunked", "static")), rng.choice((1, 4, 16)), 512)
    engine = EngineProcess(DRAFT, config, threads=1)
    writer = TraceWriter(engine.trace, path, interval=0.02)
    try:
        with contextlib.suppress(EngineDied, InvalidInput):
            busy(engine, rng, rng.choice((0, 1, 5, 30)))
            time.sleep(rng.choice((0.0, rng.uniform(0, 0.05), rng.uniform(0, 0.8))))
        os.kill(engine.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while not engine.trace.complete:
            assert time.monotonic() < deadline, "the trace of a dead engine does not end"
            time.sleep(0.005)
        assert gone(engine.pid)
        assert engine.error == f"the engine's process {engine.pid} is gone (killed by signal SIGKILL)", engine.error
        assert [r.text for r in engine.trace.records if isinstance(r, Notice)] == [engine.error]
        views = engine.trace.requests.values()
        assert all(view.reason is not None for view in views), "a request has no end"
        broken = [view for view in views if view.reason is FinishReason.ERROR]
        assert all(view.error == engine.error for view in broken), "a request does not say why it ended"
        with contextlib.suppress(InvalidInput):
            engine.submit("Once")
            raise AssertionError("a dead engine takes a prompt")
    finally:
        engine.close()
        writer.close()
    assert not writer.error, writer.error
    assert len(load_trace(path).records) == len(engine.trace.records)


def _kill_writer(rng: Random, path: Path) -> None:
    order = [sys.executable, "-m", "tests.hardening.kills", str(path), str(rng.randrange(1 << 30))]
    with subprocess.Popen(order, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        engine = int(process.stdout.readline())
        time.sleep(rng.uniform(0, 1.5))
        process.kill()
        written = [int(line) for line in process.stdout if line.endswith("\n")]
    assert gone(engine), "the engine outlives its parent"
    least = max(written, default=0)
    try:
        trace = load_trace(path)
    except InvalidInput as refused:
        if least:
            raise AssertionError(f"{least} records are lost") from refused
        return
    records = trace.since(0)
    assert len(records) >= least, f"{len(records)} of {least} records are there"
    assert not any(isinstance(r, Notice) for r in records), "nothing is missing"
    assert sum(isinstance(r, Ended) for r in records) <= len(trace.requests)


def _kill_server(rng: Random, folder: Path) -> None:
    folder.mkdir()
    log = str(folder / "requests.db")
    order = [sys.executable, "-m", "app", "serve", "--model", "demo-draft", "--port", "0", "--threads", "1"]
    order += ["--keys", str(folder / "none"), "--request-log", log]
    answered: list[tuple[float, str]] = []
    with subprocess.Popen(order, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().split()[3].rstrip(";")
        engine = [child.pid for child in psutil.Process(server.pid).children(recursive=True)]
        asking = [threading.Thread(target=_ask, args=(url, answered)) for _ in range(4)]
        for thread in asking:
            thread.start()
        time.sleep(rng.uniform(0.1, 3))
        server.kill()
        killed = time.monotonic()
        for thread in asking:
            thread.join()
    deadline = time.monotonic() + 10
    while not all(map(gone, engine)):
        assert time.monotonic() < deadline, "the engine outlives its server"
        time.sleep(0.05)
    kept = RequestLog(RequestLogSettings(log, Path(f"{log}.spool")))
    while kept.spool.pending:
        assert time.monotonic() < deadline + 10, "the spool is not read"
        time.sleep(0.01)
    kept.close()
    ids = [row["id"] for row in last_requests(log, 1 << 20)]
    assert len(ids) == len(set(ids)), "a row is there twice"
    lost = [killed - when for when, name in answered if name not in set(ids)]
    assert max(lost, default=0) < SPOOLED, (
        f"{len(lost)} of {len(answered)} answers have no row: {max(lost):.3f} s before"
    )


def _ask(url: str, answered: list[tuple[float, str]]) -> None:
    """Until nobody answers any more."""
    body = json.dumps({"model": "demo-draft", "prompt": "Once", "max_tokens": 3}).encode()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
        while True:
            with opener.open(urllib.request.Request(f"{url}/completions", body)) as answer:
                name = json.load(answer)["id"]
            answered.append((time.monotonic(), name))


def main(path: Path, seed: int) -> None:
    """Runs an engine without an end and says after each turn how many of its records are in the file."""
    rng = Random(seed)
    engine = EngineProcess(DRAFT, EngineConfig(max_running=8, token_budget=512), threads=1)
    print(engine.pid, flush=True)
    writer = TraceWriter(engine.trace, path, interval=0.01)
    while True:
        if len(engine.trace.open) < 12:
            busy(engine, rng, 4)
        print(writer._written, flush=True)
        time.sleep(0.01)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
