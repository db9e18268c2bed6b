"""Records that a test writes one event at a time, and an engine that writes real ones."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from app.playback.bridge import Bridge
from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Submission, Trace
from engine.bench.trace.step_builder import built_step
from engine.trace import Ended, FinishReason, Kind, Record, Step, Submitted

Tell = Callable[[Sequence[Record]], None]


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The demo model in this process, for runs that tests record: each begins with the config it is about."""
    with Engine(ModelSpec("demo"), EngineConfig(max_running=8), threads=1) as engine:
        yield engine


@dataclass(frozen=True)
class ToldRuns:
    """Real traces of the demo model. `sampled`: with alternatives, with three samples, with neither, with a stop
    string. `delivered`: text that came with its batch; `cut`: such a batch, cancelled."""

    sampled: Trace
    delivered: Trace
    cut: Trace


@pytest.fixture(scope="session")
def told_runs(engine: Engine) -> ToldRuns:
    batches = EngineConfig(mode="static", max_running=2, delivery="batch")
    params = (
        SamplingParams(max_tokens=60, temperature=1.0, seed=1, logprobs=5),
        SamplingParams(max_tokens=40, temperature=1.2, seed=2, logprobs=2, n=3),
        SamplingParams(max_tokens=40, temperature=0.0),
        SamplingParams(max_tokens=80, temperature=1.0, seed=3, logprobs=20, stop=(" and the",)),
    )

    def told(*submissions: Submission) -> Trace:
        for stream in engine.submit_many(submissions):
            stream.result()
        return Trace(engine.trace.records)

    engine.begin(EngineConfig(max_running=4))
    words = ("kite", "boat", "map", "owl")
    sampled = told(
        *(Submission(f"Tell me a story about a fox and a {w}.", p) for w, p in zip(words, params, strict=True))
    )
    engine.begin(batches)
    delivered = told(
        *(
            Submission(f"A story about a {word}.", SamplingParams(max_tokens=n, temperature=0, ignore_eos=True))
            for word, n in (("fox", 6), ("owl", 20))
        )
    )
    engine.begin(batches)
    long = SamplingParams(max_tokens=1500, temperature=0, ignore_eos=True)
    streams = engine.submit_many([Submission(f"A story about a {word}.", long) for word in ("fox", "owl")])
    while len(engine.trace.steps) < 5:
        time.sleep(0.005)
    engine.cancel()
    for stream in streams:
        stream.result()
    return ToldRuns(sampled, delivered, Trace(engine.trace.records))


@pytest.fixture
def tell(qtbot: QtBot, bridge: Bridge) -> Tell:
    """Appends records to the bridge's trace and waits until they are on show."""

    def appended(records: Sequence[Record]) -> None:
        bridge.trace.extend(records)
        qtbot.waitUntil(lambda: bridge.behind == 0)

    return appended


class Story:
    """Writes records one event at a time."""

    def __init__(self) -> None:
        self.time, self.number = 0.0, 0

    def submitted(self, request: int, prompt: int = 4, max_tokens: int = 100, text: str = "Tell me a story.") -> Record:
        ids = np.arange(prompt, dtype=np.int32)
        message = ({"role": "user", "content": text},)
        return Submitted(self.time, request, text, ids, SamplingParams(max_tokens=max_tokens), message)

    def step(
        self,
        said: dict[int, str],
        *,
        seconds: float = 0.1,
        prefill: dict[int, tuple[int, int]] | None = None,
        preempted: Sequence[int] = (),
        waiting: int = 0,
        refused: Sequence[tuple[int, str]] = (),
    ) -> Step:
        """One token with this text for each request of `said`; `prefill` gives (first, count) of prompt rows."""
        started, self.time, self.number = self.time, self.time + seconds, self.number + 1
        prefill = prefill or {}
        requests = [*said, *(r for r in prefill if r not in said)]
        first, count = zip(*(prefill.get(r, (9, 1)) for r in requests)) if requests else ((), ())
        kind = [Kind.PREFILL if r in prefill else Kind.DECODE for r in requests]
        rows = {"first": first, "count": count, "kind": kind, "token": [7] * len(said)}
        left = {"waiting": waiting, "free_blocks": 60, "preempted": preempted}
        left |= {"refused": [request for request, _ in refused], "refused_reason": tuple(why for _, why in refused)}
        return built_step(self.number, started, self.time, requests, list(said.values()), **rows, **left)

    def ended(self, request: int, reason: FinishReason = FinishReason.STOP, error: str = "") -> Record:
        return Ended(self.time, request, reason, error=error)


@pytest.fixture
def story() -> Story:
    return Story()
