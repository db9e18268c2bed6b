"""Preemption by swap, over the simulated device: the same tokens, whatever comes between out and in."""

import random
import sys
from collections import Counter
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.config.live_budget import LiveBudget
from engine.config.specs import COLOCATED_MODES, EngineConfig
from engine.scheduler.host_memory import SwapCost
from engine.scheduler.request import Branch, Life, Request
from engine.trace.records import FinishReason, Step, SwapEvent
from tests.engine.scheduler.simulated_device import Simulation, alone
from tests.engine.scheduler.test_scheduler import expected, windows

ERROR = FinishReason.ERROR


def said(branch: Branch) -> list[int]:
    return branch.tokens[branch.request.prompt_length :]


def events(simulation: Simulation) -> Counter[SwapEvent]:
    return Counter(SwapEvent(e) for record in simulation.records for e in record.swap_event.tolist())


@dataclass(frozen=True)
class Shape:
    """A small engine, whose prompts begin alike where there are few different tokens."""

    config: EngineConfig
    blocks: int
    hosts: int
    cost: SwapCost | None
    errs_every: int = 0  # of the tokens that are drafted; 0: none are


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    rows, errs_every = draw(st.integers(2, 6)), draw(st.sampled_from([0, 0, 2, 1000]))
    cost = st.just(SwapCost(4.0, 1.0, 1.0, 0.1)) if draw(st.booleans()) else st.none()
    config = EngineConfig(
        draw(st.sampled_from(COLOCATED_MODES)),
        max_running=rows,
        token_budget=draw(st.integers(rows, 40)),
        block_size=draw(st.sampled_from([1, 2, 4])),
        prefix_caching=draw(st.booleans()),
        depth=0 if errs_every else draw(st.integers(0, 1)),
        speculation="ngram" if errs_every else None,
        preemption="swap",
        **draw(windows),
    )
    if config.prefix_caching:
        how = draw(st.sampled_from([(False, "swap"), (True, "swap"), (True, "recompute")]))
        config = replace(config, offload_prefixes=how[0], preemption=how[1])
    return Shape(config, draw(st.integers(12, 24)), draw(st.integers(0, 40)), draw(cost), errs_every)


def play(shape: Shape, seed: int, operations: int, faults: bool = False) -> Simulation:
    """So many random operations, with everything that must hold checked after each step; then all run to their ends."""
    pick, config = random.Random(seed), shape.config
    memory = (sys.maxsize, sys.maxsize)
    depth, hosts = config.depth or 0, {"hosts": shape.hosts, "cost": shape.cost}
    simulation = Simulation(config, shape.blocks, depth, memory, errs_every=shape.errs_every, **hosts)  # type: ignore[arg-type]
    ledger, alphabet = simulation.scheduler.ledger, pick.choice([1, 2, 50])
    for _ in range(operations):
        match pick.randrange(12):
            case 0 | 1 if ledger.waiting_count < 12:
                length = pick.randint(1, min(20, simulation.room - 1))
                prompt = [pick.randint(1, alphabet) for _ in range(length)]
                several = {"n": pick.choice([1, 1, 1, 2, 3]), "width": pick.choice([1, 1, 1, 1, 3])}
                simulation.add(prompt, pick.randint(1, 30), scored=pick.random() < 0.2, **several)
            case 2 if simulation.requests and pick.random() < 0.3:
                simulation.cancel(pick.choice(simulation.requests[-12:]))
            case 3 if pick.random() < 0.5:
                rows = pick.randint(1, config.max_running)
                tokens = pick.randint(rows, config.token_budget)
                simulation.scheduler.steer(LiveBudget(tokens, rows, pick.uniform(0.05, 1)))
            case 4 if not ledger.in_flight and ledger.running:
                ledger.preempt(ledger.victim)
            case _:
                fault = pick.randrange(60) if faults else -1
                simulation.step(fault == 0, fault == 1, fault == 2)
                simulation.check()
    simulation.scheduler.steer(LiveBudget.of(config))
    simulation.finish()
    simulation.step()
    simulation.check_idle()
    return simulation


def check_said(simulation: Simulation) -> None:
    for request in simulation.requests:
        check_scored(simulation, request)
        for branch in request.branches:
            if branch.beam is not None:
                assert said(branch) == expected(branch)
                continue
            tokens = alone(
                branch.tokens[: request.prompt_length], request.limit, request.params.ignore_eos, simulation.config
            )
            if branch.reason in (FinishReason.CANCELLED, ERROR):
                assert said(branch) == tokens[: len(said(branch))]
            else:
                assert said(branch) == tokens


def check_scored(simulation: Simulation, request: Request) -> None:
    """Who asks hears of every position of the prompt, and of each once, however often it was computed."""
    if request.scores is None:
        return
    told = [simulation.scored[request.id, at] for at in range(request.prompt_length - 1)]
    over = any(branch.reason not in (FinishReason.CANCELLED, ERROR) for branch in request.branches)
    assert set(told) <= ({1} if over else {0, 1})
    assert request.scores.whole or not over


SEARCH = EngineConfig("continuous", 6, 16, 4, prefix_caching=True, speculation="ngram", depth=0, preemption="swap")


@settings(max_examples=80)
@given(shapes(), st.integers(0, 1 << 30), st.booleans())
@example(Shape(SEARCH, 19, 1, None, 2), 318, True)  # a search ends for want of memory, and had a block to copy
def test_every_request_says_what_it_says_alone_whatever_is_swapped(shape: Shape, seed: int, faults: bool) -> None:
    check_said(play(shape, seed, 120, faults))


def test_twenty_thousand_operations_conserve_blocks_and_lose_no_token_and_starve_nobody() -> None:
    seen: Counter[SwapEvent] = Counter()
    found = rows = evicted = 0
    for seed in range(20):
        caching, mode = bool(seed & 3), COLOCATED_MODES[seed // 2 % 2]
        drafts, depth = seed % 3 == 0, int(seed % 3 == 1)
        speculation = "ngram" if drafts else None
        config = EngineConfig(
            mode, 5, 30, 4, prefix_caching=caching, depth=depth, speculation=speculation, preemption="swap"
        )
        config = replace(config, offload_prefixes=bool(seed & 2))
        simulation = play(Shape(config, 18, 24, None, 3 * drafts), seed, 1_000, faults=seed % 5 == 0)
        check_said(simulation)
        seen += events(simulation)
        found += sum(int(record.reused.sum()) for record in simulation.records)
        rows += sum(record.rows for record in simulation.records)
        evicted += sum(len(record.preempted) for record in simulation.records)
    assert min(seen[event] for event in SwapEvent) > 100
    assert min(found, rows, evicted) > 1_000


def test_a_seed_replays_the_same() -> None:
    def told(record: Step) -> list[object]:
        names = ("request", "branch", "first", "count", "token", "block", "block_event", "swap_event", "swap_host")
        return [getattr(record, name).tolist() for name in names]

    config = EngineConfig("chunked", 5, 30, 4, prefix_caching=True, depth=1, preemption="swap")
    first, again = (play(Shape(config, 14, 20, None), 5, 600, faults=True) for _ in range(2))
    assert list(map(told, first.records)) == list(map(told, again.records))
    assert len(first.records) > 300


def crowded(hosts: int, depth: int = 0, **changes: object) -> Simulation:
    config = EngineConfig("continuous", 8, 256, 4, depth=depth, preemption="swap", **changes)  # type: ignore[arg-type]
    return Simulation(config, 20, depth, hosts=hosts)


@pytest.mark.parametrize("depth", [0, 1])
def test_a_swapped_request_computes_nothing_again(depth: int) -> None:
    simulation = crowded(40, depth)
    requests = [simulation.add([n + 1] * 15, 30, ignore_eos=True) for n in range(4)]
    simulation.finish()
    check_said(simulation)
    steps = simulation.records
    assert sum(len(step.preempted) for step in steps) > 0
    assert sum(int(step.wasted.sum()) for step in steps) <= len(requests), "but for rows past an end"
    counts = events(simulation)
    assert counts[SwapEvent.OUT] == counts[SwapEvent.IN] > 0
    assert simulation.host.free == 40


def test_where_host_memory_is_full_the_rest_computes_again() -> None:
    simulation = crowded(5)
    for n in range(6):
        simulation.add([n + 1] * 15, 30, ignore_eos=True)
    simulation.finish()
    check_said(simulation)
    assert events(simulation)[SwapEvent.OUT] > 0
    assert sum(int(step.wasted.sum()) for step in simulation.records) > 15


def test_a_cancelled_request_gives_its_host_blocks_back() -> None:
    simulation = crowded(40)
    requests = [simulation.add([n + 1] * 15, 30, ignore_eos=True) for n in range(4)]
    while simulation.host.free == 40:
        simulation.step()
    victim = next(r for r in requests if r.branches[0].swapped is not None)
    simulation.cancel(victim)
    assert simulation.host.free == 40
    simulation.step()
    simulation.check()
    assert events(simulation)[SwapEvent.DROPPED] > 0
    simulation.finish()
    check_said(simulation)


def test_what_others_own_is_not_copied_and_found_with_them_again() -> None:
    simulation = crowded(40)
    request = simulation.add([1] * 33, 20, ignore_eos=True, n=4)
    simulation.finish()
    check_said(simulation)
    assert request.finished
    places = [place for record in simulation.records for place in record.swap_place.tolist()]
    assert places
    assert min(places) == 8, "the prompt's eight full blocks are shared"


def test_what_others_owned_and_is_gone_is_computed_again_before_what_comes_back() -> None:
    """The sample that is left alone lost the prompt that it shared: 32 tokens, and not one more."""
    simulation = crowded(40)
    request = simulation.add([1] * 33, 12, ignore_eos=True, n=2)
    for _ in range(6):
        simulation.step()
    simulation.scheduler.ledger.preempt(simulation.scheduler.ledger.victim)
    first, second = request.branches
    assert second.swapped is not None
    assert second.swapped.place == 8
    simulation.scheduler.steer(LiveBudget(256, 1))
    while not first.finished:
        simulation.step()
        simulation.check()
    before = len(simulation.plans)
    simulation.finish()
    check_said(simulation)
    mine = [(row.first, row.count, row.again) for plan in simulation.plans[before - 1 :] for row in plan.rows]
    first_rows = [row for row in mine if row[2]]
    assert first_rows == [(0, 32, 32)]


def test_the_last_admitted_makes_way_and_the_first_is_preempted_by_nobody() -> None:
    simulation = crowded(40)
    requests = [simulation.add([n + 1] * 10, 60, ignore_eos=True) for n in range(6)]
    while not requests[0].finished:
        simulation.step()
        ledger = simulation.scheduler.ledger
        ids = [branch.request.id for branch in ledger.running]
        assert ids == sorted(ids)
        heap = ledger.waiting._heaps.get((0, ""), [])
        waiting = [b.request.id for *_, b in sorted(heap) if b.life is Life.PREEMPTED]
        assert waiting == sorted(waiting)
    lost = Counter(request for record in simulation.records for request in record.preempted.tolist())
    assert lost[0] == 0 < lost[1]
    simulation.finish()
    assert [r.id for r in sorted(requests, key=lambda r: simulation_end(simulation, r.id))] == list(range(6))


def simulation_end(simulation: Simulation, request: int) -> int:
    return max(i for i, record in enumerate(simulation.records) if request in record.request.tolist())


def test_auto_does_what_takes_less_time() -> None:
    cost = SwapCost(call=1.0, block=0.5, token=0.1, pair=0.01)
    assert cost.swapping(4) == 6.0
    assert cost.recomputing(0, 20) == pytest.approx(2.0 + 2.0)
    assert cost.recomputing(10, 20) == pytest.approx(2.0 + 4.0)
    assert not cost.favours_swap(4, 0, 20)
    assert cost.favours_swap(4, 20, 20)
    for dear, swaps in ((False, True), (True, False)):
        simulation = crowded(40)
        simulation.scheduler.ledger.swapping._cost = SwapCost(1e9 if dear else 0.0, 0.0, 1.0, 0.0)
        for n in range(4):
            simulation.add([n + 1] * 15, 30, ignore_eos=True)
        simulation.finish()
        check_said(simulation)
        assert (events(simulation)[SwapEvent.OUT] > 0) is swaps


def test_what_is_still_cached_does_not_come_back_from_host_memory() -> None:
    simulation = crowded(40, prefix_caching=True)
    request = simulation.add([1] * 6, 30, ignore_eos=True)
    simulation.add([2] * 6, 30, ignore_eos=True)
    for _ in range(12):
        simulation.step()
    simulation.scheduler.ledger.preempt(simulation.scheduler.ledger.victim)
    simulation.finish()
    check_said(simulation)
    counts = events(simulation)
    assert counts[SwapEvent.OUT] == 5
    assert (counts[SwapEvent.IN], counts[SwapEvent.DROPPED]) == (1, 4), "all but the last block is found"
    assert sum(int(step.wasted.sum()) for step in simulation.records) == 0
    assert request.finished


def test_what_a_lost_step_should_have_brought_back_is_read_by_nobody() -> None:
    """The second prompt shares, one step later, the block that comes back with the step that is lost."""
    simulation = crowded(40, depth=1, prefix_caching=True)
    simulation.add([3] * 6, 60, ignore_eos=True)
    first = simulation.add([1] * 9, 30, ignore_eos=True)
    for _ in range(8):
        simulation.step()
    while simulation.in_flight:
        simulation._commit(*simulation.in_flight.popleft())
    simulation.scheduler.ledger.preempt(simulation.scheduler.ledger.victim)
    for block in [b for b in range(simulation.pool.total) if simulation.pool.is_cached(b)]:
        simulation.scheduler.ledger.withdraw([block])
    assert simulation.step()
    assert simulation.plans[-1].swap_in
    second = simulation.add([1] * 9, 30, ignore_eos=True)
    while second.branches[0].life is Life.WAITING:
        plan = simulation.scheduler.plan()
        assert plan is not None
        simulation.in_flight.append((plan, simulation._launch(plan)))
    assert len(simulation.in_flight) > 1
    restoring = next(i for i, (plan, _) in enumerate(simulation.in_flight) if plan.swap_in)
    for _ in range(restoring):
        simulation._commit(*simulation.in_flight.popleft())
    simulation._lose(simulation.in_flight.popleft()[0])
    assert first.branches[0].reason is ERROR
    assert second.branches[0].reason is ERROR
    while simulation.in_flight:
        simulation._commit(*simulation.in_flight.popleft())
    simulation.finish()
    check_said(simulation)


@pytest.mark.parametrize("mode", COLOCATED_MODES)
def test_what_a_lost_step_should_have_copied_out_comes_back_to_nobody(mode: str) -> None:
    config = EngineConfig(mode, 4, 64, 4, depth=1, preemption="swap")
    simulation = Simulation(config, 40, 1, hosts=40)
    requests = [simulation.add([n + 1] * 6, 40, ignore_eos=True) for n in range(2)]
    for _ in range(6):
        simulation.step()
    while simulation.in_flight:
        simulation._commit(*simulation.in_flight.popleft())
    simulation.scheduler.steer(LiveBudget(64, 1))
    assert simulation.step()
    simulation.scheduler.steer(LiveBudget(64, 4))
    plan = None
    while plan is None or not plan.swap_in:
        plan = simulation.scheduler.plan()
        assert plan is not None
        simulation.in_flight.append((plan, simulation._launch(plan)))
    out = simulation.in_flight.popleft()[0]
    assert out.swap_out
    simulation._lose(out)
    assert [request.branches[0].reason for request in requests] == [ERROR, ERROR]
    while simulation.in_flight:
        simulation._commit(*simulation.in_flight.popleft())
    simulation.finish()
    simulation.step()
    simulation.check_idle()
    check_said(simulation)
