"""The KV map's model against a replay in plain arithmetic, over runs of the real scheduler."""

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from app.bench.synthetic import header, synthetic_trace
from app.inside.kv_map.history import KvHistory
from app.inside.kv_map.state import KvState, Mark, Requests
from engine import EngineConfig, SamplingParams, Trace
from engine.config import DELIVERIES, PAGED_MODES
from engine.trace import Ended, Header, Record, Step, Submitted
from tests.app.inside.kv_map.plain_pool import Cell, PlainPool
from tests.engine.scheduler.simulated_device import Simulation
from tests.engine.scheduler.test_scheduler import Ask, Case, cases


def simulated(case: Case) -> Iterator[tuple[list[Record], Simulation]]:
    """The records of a case, as an engine would write them: those of each turn of its loop, and the world then."""
    simulation = Simulation(case.config, case.blocks, case.config.depth or 0, errs_every=case.errs_every)
    start = header(4, case.blocks)
    start = replace(start, config=case.config, model=replace(start.model, context=0), depth=case.config.depth or 0)
    yield [start], simulation
    arrivals = sorted(case.asks, key=lambda ask: ask.at)
    turn = 0
    while True:
        records: list[Record] = []
        while arrivals and arrivals[0].at <= turn:
            ask = arrivals.pop(0)
            request = simulation.add(ask.prompt, ask.max_tokens, n=ask.n)
            params = SamplingParams(max_tokens=request.limit, n=ask.n)
            records.append(Submitted(0.0, request.id, "", np.array(ask.prompt, np.int32), params))
        for at, which in case.cancels:
            if at == turn and which < len(simulation.requests):
                simulation.cancel(simulation.requests[which])
        told, ended = len(simulation.records), set(simulation.ended)
        did = simulation.step(turn in case.failures, turn in case.losses)
        records += simulation.records[told:]
        for branch in simulation.ended - ended:
            assert branch.reason is not None
            records.append(Ended(0.0, branch.request.id, branch.reason, branch=branch.index))
        yield records, simulation
        turn += 1
        if not did and not arrivals and simulation.scheduler.idle:
            return


@st.composite
def alike(draw: st.DrawFn) -> Case:
    """Prompts that begin alike, short answers and few blocks: blocks are shared, kept and evicted all the time."""
    size, running = draw(st.sampled_from([1, 2, 4])), draw(st.integers(2, 4))
    mode = draw(st.sampled_from(PAGED_MODES))
    config = EngineConfig(
        mode, running, draw(st.integers(running, 24)), size, prefix_caching=True,
        depth=0 if mode == "disaggregated" else draw(st.integers(0, 1)),
    )  # fmt: skip
    blocks = draw(st.integers(5, 14))
    longest = min(blocks * size, 5 * size)
    asks = st.builds(
        lambda length, most, at, n: Ask(tuple([*[1] * length, 2 + at % 2][-longest:]), most, at, n),
        st.integers(0, longest - 1), st.integers(1, 6), st.integers(0, 16), st.integers(1, 3),
    )  # fmt: skip
    cancels = draw(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 8)), max_size=2))
    return Case(
        config, blocks, tuple(draw(st.lists(asks, min_size=4, max_size=9))), tuple(cancels), frozenset(), frozenset()
    )


@st.composite
def batches(draw: st.DrawFn) -> Case:
    """Batches whose rows end at different times, some of them delivered together."""
    config = EngineConfig(
        draw(st.sampled_from(["static", "dynamic"])), 3, block_size=2, delivery=draw(st.sampled_from(DELIVERIES)),
        longest_wait=0.0, depth=draw(st.integers(0, 1)),
    )  # fmt: skip
    asks = st.builds(
        lambda length, most, at: Ask(tuple(range(1, length + 1)), most, at),
        st.integers(1, 8), st.integers(1, 9), st.integers(0, 6),
    )  # fmt: skip
    return Case(config, 24, tuple(draw(st.lists(asks, min_size=2, max_size=6))), (), frozenset(), frozenset())


def assert_equal(state: KvState, plain: list[Cell]) -> None:
    """Every block, told apart by what differs."""
    for block, cell in enumerate(plain):
        has = Cell(
            int(state.owner[block]), int(state.references[block]), int(state.filled[block]), int(state.place[block]),
            int(state.since[block]), state.owners(block),
            (Mark(int(state.event[block])).name.lower(), int(state.event_at[block])),
        )  # fmt: skip
        assert has == cell, f"block {block} after step {state.at}"


def assert_tables(state: KvState, pool: PlainPool) -> None:
    for (request, branch), table in pool.told.tables.items():
        assert state.samples(request)[branch].tolist() == [table[i] for i in sorted(table)]
    assert len(state.tables.live) == len(pool.told.tables)


@settings(max_examples=120)
@given(st.one_of(cases(failures=True), alike(), batches()))
def test_the_model_equals_a_replay_in_plain_arithmetic_whatever_happens(case: Case) -> None:
    history, pool, trace = KvHistory(every=4, whole=3), None, Trace()
    kept: list[tuple[list[Cell], tuple[int, int, int]]] = []
    for records, _ in simulated(case):
        for record in records:
            if isinstance(record, Header):
                pool = PlainPool(record)
            elif isinstance(record, Step) and pool is not None and pool.at >= 0:
                kept.append((pool.cells(), pool.kinds()))
            trace.append(record)
            history.take([record])
            assert pool is not None
            pool.feed(record)
        assert pool is not None
        assert history.tip is not None
        assert_equal(history.tip, pool.cells())
        assert_tables(history.tip, pool)
        kinds = history.tip.kinds()
        assert (kinds.used, kinds.reserved, kinds.internal) == pool.kinds()
    places = list(range(len(kept)))
    for place in random.Random(len(kept)).sample(places, min(len(places), 20)):
        state = history.at(place, trace.records)
        cells, plain = kept[place]
        assert state.at == place
        assert_equal(state, cells)
        kinds = state.kinds()
        assert (kinds.used, kinds.reserved, kinds.internal) == plain


@settings(max_examples=60)
@given(st.one_of(cases(), alike()))
def test_the_four_kinds_are_those_that_the_engine_counted(case: Case) -> None:
    """At depth 1 the engine counts what the step in flight computes as used already."""
    history = KvHistory()
    for records, simulation in simulated(case):
        history.take(records)
        state, step = history.tip, next((r for r in records if isinstance(r, Step)), None)
        if step is None or state is None or case.config.delivery == "batch":
            continue  # a batch tells at its end which of its rows were over
        kinds = state.kinds()
        flying = sum(
            row.count + row.reused % state.size  # what is copied on write comes with the row
            for plan, _ in simulation.in_flight
            for row in plan.rows
            if row.branch.blocks and row.kind != 2 and not (state.padded and row.branch.over)
        )
        assert kinds.used + flying == step.kv_used
        if not simulation.in_flight:
            assert (kinds.reserved, kinds.internal) == (step.kv_reserved, step.kv_internal)


class Counted(list[Record]):
    """The records of a trace, and how many of them were asked for."""

    asked = 0

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        found = super().__getitem__(key)
        self.asked += len(found) if isinstance(key, slice) else 1
        return found


def test_seeking_reads_no_more_than_the_records_since_a_keyframe() -> None:
    records = Counted(synthetic_trace(streams=16, seconds=3.0, tokens_per_second=4000, seed=3))
    history = KvHistory(every=64, whole=4)
    history.take(records)
    assert history.steps > 500
    most = max(len(records[history.position(p - 64) : history.position(p)]) for p in range(64, history.steps))
    for place in random.Random(1).sample(range(history.steps), 30):
        records.asked = 0
        assert history.at(place, records).at == place
        assert records.asked <= most
    state = history.at(100, records)
    records.asked = 0
    assert history.at(103, records) is state, "a little further on, the same state is fed on"
    assert records.asked == history.position(103) - history.position(100)
    assert history.at(history.steps - 1, records) is history.tip


def test_seeking_anywhere_equals_playing_forward() -> None:
    records = synthetic_trace(streams=16, seconds=2.0, tokens_per_second=4000, seed=4, faults=0.1)
    history, pool, played = KvHistory(every=32, whole=4), PlainPool(records[0]), []  # type: ignore[arg-type]
    history.take(records)
    for record in records:
        if isinstance(record, Step) and pool.at >= 0:
            played.append(pool.cells() if pool.at % 37 == 0 else None)
        pool.feed(record)
    places = [place for place, cells in enumerate(played) if cells is not None]
    for place in random.Random(2).sample(places, len(places)):
        assert_equal(history.at(place, records), played[place])


def test_the_state_before_the_first_step_is_an_empty_pool() -> None:
    history = KvHistory()
    records = synthetic_trace(streams=4, seconds=0.2)
    history.take(records)
    state = history.at(-1, records)
    assert state.at == -1
    assert not state.references.any()
    assert not len(state.tables.live)


def test_keyframes_take_little_memory_however_large_the_pool() -> None:
    """An hour of 360,000 steps over 65,536 blocks is to fit in 150 MB."""
    records = synthetic_trace(streams=64, seconds=3.0, tokens_per_second=40_000, seed=5)
    start = records[0]
    assert isinstance(start, Header)
    history = KvHistory()
    history.take([replace(start, blocks=65_536), *records[1:]])
    assert history.steps >= 1500
    frames = [part for f in history._frames for part in (f.changed or b"", f.fields, f.samples, f.entries)]
    taken = sum(map(len, frames)) + 8 * history.steps
    assert taken / history.steps * 360_000 < 150e6


def test_a_request_reaches_as_far_as_its_limit_and_the_models_context_let_it() -> None:
    for context, reach in ((0, 5 + 40 - 1), (100, 5 + 40 - 1), (30, 30 - 1)):
        requests = Requests(context)
        requests.feed(Submitted(0.0, 300, "", np.arange(5, dtype=np.int32), SamplingParams(max_tokens=40)), 9)
        assert (requests.reach[300], requests.position[300], requests.reach[299]) == (reach, 9, -1)
