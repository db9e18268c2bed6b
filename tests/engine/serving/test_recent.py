"""Who joins late stands where those stand who were there from the beginning: in every mode, at every moment."""

from collections.abc import Iterator

import numpy as np
import pytest

from app.inside.kv_map.state import FREE, KvState, Requests
from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Submission
from engine.serving.watch.recent import Recent
from engine.serving.watch.texts import without_texts
from engine.trace import Record, RequestIndex, State, Step, Submitted, Trace
from engine.trace.records.check import RecordCheck

STOPS = 6  # moments at which somebody joins
CONFIGS = {
    "prefixes": EngineConfig(max_running=6, kv_memory=8 << 20, prefix_caching=True),
    "recompute": EngineConfig("chunked", max_running=6, token_budget=64, kv_memory=1 << 20),
    "swap": EngineConfig(max_running=6, kv_memory=1 << 20, preemption="swap", swap_memory=8 << 20),
    "offload": EngineConfig(max_running=6, kv_memory=3 << 19, prefix_caching=True, offload_prefixes=True),
    "drafts": EngineConfig(max_running=6, kv_memory=8 << 20, speculation="ngram"),
    "static": EngineConfig("static", max_running=4),
    "sequential": EngineConfig("sequential"),
    "ahead": EngineConfig(max_running=6, kv_memory=8 << 20, depth=1),
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(ModelSpec("demo"), threads=1) as engine:
        yield engine


def played(engine: Engine, config: EngineConfig) -> Trace:
    """Requests that begin alike, some of several samples, more than run at once."""
    trace = engine.begin(config)
    lengths = (50, 20, 80, 5, 70, 40, 60, 75) if config.paged else (12, 5, 20, 8, 3)
    asked = []
    for number, length in enumerate(lengths):
        prompt = (
            f"Tell me a story about a fox, a crab and a kite that flies over the sea. It has a number: {number % 3}"
        )
        several = 2 if config.paged and number % 4 == 2 else 1
        params = SamplingParams(max_tokens=length, temperature=0.5, seed=number, ignore_eos=True, n=several)
        if config.prefix_caching and number == 5:
            params = SamplingParams(max_tokens=length, temperature=0, beam_width=3, ignore_eos=True)
        asked.append(Submission(prompt, params))
    for batch in (asked, asked[:2]):  # the later ones find prefixes of requests that are over
        for stream in engine.submit_many(batch):
            stream.results(60)
    return trace


class Seen:
    """What views know after the records so far, each of which is one that a run can have."""

    def __init__(self, records: list[Record], *, blocks: bool = True) -> None:
        self._check, self.index, self._requests, self._count = RecordCheck(), RequestIndex(), Requests(), 0
        self.pool = KvState(records[0], self._requests) if blocks else None
        for record in records:
            self.feed(record)

    def feed(self, record: Record) -> None:
        self._check(record)
        self.index.feed(record)
        if self.pool is not None:
            if isinstance(record, Submitted):
                self._requests.feed(record, self._count)
            self.pool.feed(record)
        self._count += 1


@pytest.mark.parametrize("name", CONFIGS)
def test_what_a_late_joiner_sees_is_what_there_is(engine: Engine, name: str) -> None:
    """At the moment at which they join, and when all is over."""
    trace = played(engine, CONFIGS[name])
    records = list(trace.records)
    if name == "offload":
        assert any(isinstance(r, Step) and len(r.swap_event) for r in records), "the pool is too large for this test"
    if name in ("recompute", "swap"):
        assert any(isinstance(r, Step) and len(r.preempted) for r in records), "the pool is too large for this test"
    recent, stops = Recent(), set(np.linspace(1, len(records), STOPS, dtype=int).tolist())
    there, joined, bare = Seen(records[:1]), list[Seen](), list[Seen]()
    for position, record in enumerate(records, 1):
        recent.feed(record)
        for each in [there, *joined] if position > 1 else []:
            each.feed(record)
        for each in bare:
            each.feed(without_texts(record))
        if position in stops:
            state = recent.records()
            joined.append(Seen(state))
            bare.append(Seen([without_texts(r) for r in state], blocks=False))
            same_now(there, joined[-1])
    for late in joined:
        same_now(there, late)
    assert len(joined) == STOPS
    assert sum(isinstance(record, Submitted) for record in recent.records()) <= 4, "what is over is let go"


def same_now(whole: Seen, late: Seen) -> None:
    there, joined, pool, view = whole.index, late.index, whole.pool, late.pool
    assert pool is not None
    assert view is not None
    for request, seen in joined.requests.items():
        real = there.requests[request]
        assert (seen.prompt, seen.state, seen.reason) == (real.prompt, real.state, real.reason)
        for ours, theirs in zip(seen.samples, real.samples, strict=True):
            assert (ours.text, ours.tokens, ours.text_ends) == (theirs.text, theirs.tokens, theirs.text_ends)
            assert ours.logprobs == theirs.logprobs
            if theirs.state is not State.FINISHED:
                assert (ours.state, ours.computed, ours.slot) == (theirs.state, theirs.computed, theirs.slot)
    missing = [view for request, view in there.requests.items() if request not in joined.requests]
    assert all(view.state is State.FINISHED for view in missing)
    for column in ("references", "filled", "place"):
        owned = pool.references > 0
        assert (getattr(pool, column)[owned] == getattr(view, column)[owned]).all(), column
    assert (pool.references == view.references).all()
    alone = pool.references == 1
    for column in ("owner", "branch"):
        assert (getattr(pool, column)[alone] == getattr(view, column)[alone]).all(), column
    assert ((pool.owner == -2) == (view.owner == -2)).all(), "cached blocks"
    assert pool.swapped == view.swapped
    assert ((pool.kept == FREE) == (view.kept == FREE)).all(), "prefixes in host memory"
    assert tables(pool) == tables(view)


def tables(state: KvState) -> dict[tuple[int, int], list[int]]:
    return {
        (request, branch): table.tolist()
        for request in range(12)
        for branch, table in state.samples(request).items()
        if len(table)
    }
