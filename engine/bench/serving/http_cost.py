"""Streams of the demo model through HTTP beside the same engine without it, in turns."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from engine.bench.serving.client import Asked, Heard
from engine.bench.serving.clients import Clients, clients
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig, ModelSpec
from engine.config.submission import Submission
from engine.core.child.process import EngineProcess
from engine.core.machine import usable_cores
from engine.serving.server import Server
from engine.serving.settings import ServingSettings

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
    streams: int
    tokens: int

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
        head = f"{self.streams} streams of {self.tokens} tokens, demo model, torch threads: {self.threads}"
        return "\n".join(
            [f"| {head} | measured | goal |", "|---|--:|--:|", *(f"| {' | '.join(row)} |" for row in rows)]
        )


def measure(
    rounds: int, threads: int | None, say: Callable[[str], None], streams: int = STREAMS, tokens: int = TOKENS
) -> Measured:
    """So many rounds after one that warms up. Raises RuntimeError where an answer does not come whole."""
    most = max(1, usable_cores() - 1)
    say("loading the engine that is asked with HTTP and without")
    config = EngineConfig(max_running=streams)
    with (
        EngineProcess(ModelSpec("demo"), config, threads=threads, most_threads=most) as engine,
        _served(engine) as port,
        clients() as asking,
    ):
        found: list[tuple[float, float, int, float]] = []
        for turn in range(rounds + 1):
            headless, mirror = _headless(engine, turn, streams, tokens)
            before = time.process_time()
            heard = _through(asking, port, turn, streams, tokens)
            cpu = time.process_time() - before - mirror
            served, event = heard.tokens / heard.seconds, 1e6 * cpu / heard.events
            begin = f"round {turn} of {rounds}" if turn else "warming up"
            say(f"{begin}: {headless:,.0f} tok/s headless, {served:,.0f} through HTTP, {event:.1f} µs an event")
            if turn:
                found.append((headless, served, heard.events, event))
        used = engine.trace.header.machine.threads
    without, served, events, event = (statistics.median(column) for column in zip(*found))
    share = statistics.median(s / h for h, s, _, _ in found)
    return Measured(used, without, served, share, int(events), event, streams, tokens)


def _headless(engine: EngineProcess, turn: int, count: int, tokens: int) -> tuple[float, float]:
    """Output tokens a second, and seconds of CPU in this process."""
    params = [SamplingParams(max_tokens=tokens, ignore_eos=True, seed=turn * count + i) for i in range(count)]
    begun, before = time.perf_counter(), time.process_time()
    streams = engine.submit_many([Submission(PROMPT, each) for each in params])
    said = sum(len(stream.result().token_ids) for stream in streams)
    return said / (time.perf_counter() - begun), time.process_time() - before


def _through(asking: Clients, port: int, turn: int, count: int, tokens: int) -> Heard:
    body: dict[str, Any] = {"model": "demo", "prompt": PROMPT, "max_tokens": tokens, "ignore_eos": True, "stream": True}
    body |= {"stream_options": {"include_usage": True}, "temperature": 1.0}
    bodies = [body | {"seed": turn * count + i} for i in range(count)]
    heard = asking.ask(Asked(port, "/v1/completions", bodies, tokens))
    if heard.failures:
        raise RuntimeError(f"{len(heard.failures)} of {count} answers did not come whole: {heard.failures[0]}")
    return heard


@contextmanager
def _served(engine: EngineProcess) -> Iterator[int]:
    """The engine served by a thread of this process; its port."""
    server, ready = Server(ServingSettings(port=0)), threading.Event()
    thread = threading.Thread(target=server.run, args=(engine, "demo", lambda _: ready.set()), name="server")
    thread.start()
    ready.wait()
    try:
        port = urlsplit(server.address).port
        assert port is not None
        yield port
    finally:
        server.stop()
        thread.join()
