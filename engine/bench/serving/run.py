"""`batchscope bench --serve`: streams of the demo model through HTTP beside the same engine without it, in turns."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.config.specs import EngineConfig, ModelSpec, SamplingParams, Submission
from engine.core.machine import usable_cores
from engine.core.process import EngineProcess
from engine.serving.server import Server
from engine.serving.settings import ServingSettings

ROOT = Path(__file__).parents[3]
STREAMS, TOKENS = 64, 256
SHARE, MOST = 0.8, 40.0  # the goals: of the headless throughput at least, µs an event at most
PROMPT = "Once upon a time there was"


@dataclass(frozen=True, slots=True)
class Measured:
    """Medians of the rounds. `event` is CPU in microseconds that this process, which serves, spends on a server-sent
    event beyond what it spends on the mirrored trace of the headless round."""

    threads: int
    headless: float
    served: float
    share: float
    events: int
    event: float

    @property
    def reached(self) -> bool:
        return self.share >= SHARE and self.event <= MOST

    def text(self) -> str:
        """As Markdown."""
        rows = [
            ("headless, output tok/s", f"{self.headless:,.0f}", ""),
            ("through HTTP, output tok/s", f"{self.served:,.0f}", ""),
            ("share of the headless throughput", f"{self.share:.0%}", f"≥ {SHARE:.0%}"),
            ("CPU of an SSE event, µs", f"{self.event:.1f}", f"≤ {MOST:.0f}"),
            ("events a round", f"{self.events:,}", ""),
        ]
        head = f"{STREAMS} streams of {TOKENS} tokens, demo model, torch threads: {self.threads}"
        return "\n".join(
            [f"| {head} | measured | goal |", "|---|--:|--:|", *(f"| {' | '.join(row)} |" for row in rows)]
        )


def run(rounds: int, threads: int | None, json_output: bool) -> int:
    """Measures and prints. 0 where the goals are reached, else 1."""
    config = EngineConfig(max_running=STREAMS)
    most = max(1, usable_cores() - 1)
    with EngineProcess(ModelSpec("demo"), config, threads=threads, most_threads=most) as engine, _served(engine) as to:
        found: list[tuple[float, float, int, float]] = []
        for turn in range(rounds + 1):
            headless, mirror = _headless(engine, turn)
            before = time.process_time()
            told = _through(to, turn)
            cpu = time.process_time() - before - mirror
            if turn:  # the first warms up
                found.append((headless, told["tokens"] / told["seconds"], told["events"], 1e6 * cpu / told["events"]))
        used = engine.trace.header.machine.threads
    without, served, events, event = (statistics.median(column) for column in zip(*found))
    share = statistics.median(s / h for h, s, _, _ in found)
    measured = Measured(used, without, served, share, int(events), event)
    print(json.dumps(asdict(measured), indent=2) if json_output else measured.text())
    return int(not measured.reached)


def _headless(engine: EngineProcess, turn: int) -> tuple[float, float]:
    """Output tokens a second, and seconds of CPU in this process."""
    params = [SamplingParams(max_tokens=TOKENS, ignore_eos=True, seed=turn * STREAMS + i) for i in range(STREAMS)]
    begun, before = time.perf_counter(), time.process_time()
    streams = engine.submit_many([Submission(PROMPT, each) for each in params])
    tokens = sum(len(stream.result().token_ids) for stream in streams)
    return tokens / (time.perf_counter() - begun), time.process_time() - before


def _through(client: subprocess.Popen[str], turn: int) -> dict[str, Any]:
    body = {"model": "demo", "prompt": PROMPT, "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
    body |= {"stream_options": {"include_usage": True}, "temperature": 1.0}
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(json.dumps([body | {"seed": turn * STREAMS + i} for i in range(STREAMS)]) + "\n")
    client.stdin.flush()
    told: dict[str, Any] = json.loads(client.stdout.readline())
    return told


@contextmanager
def _served(engine: EngineProcess) -> Iterator[subprocess.Popen[str]]:
    """The engine served by a thread of this process, and clients in a process of their own."""
    server, ready = Server(ServingSettings(port=0)), threading.Event()
    thread = threading.Thread(target=server.run, args=(engine, "demo", lambda _: ready.set()), name="server")
    thread.start()
    ready.wait()
    host, _, port = server.address.removeprefix("http://").partition(":")
    order = [sys.executable, "-m", "engine.bench.serving.client", host, port]
    pipe = subprocess.PIPE
    try:
        with subprocess.Popen(order, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as client:
            yield client
            assert client.stdin is not None
            client.stdin.close()
    finally:
        server.stop()
        thread.join()
