"""The prefix cache's lower tier, over the simulated device: what was forgotten is found again, and is what it was."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config.specs import COLOCATED_MODES, EngineConfig
from engine.scheduler.host_memory import HostPool
from engine.scheduler.plan import Changes
from engine.trace.records import FinishReason, SwapEvent
from tests.engine.scheduler.simulated_device import Simulation
from tests.engine.scheduler.test_swapping import check_said, events

OPENINGS = [[n + 1] * 12 for n in range(6)]  # three full blocks each


def tiered(hosts: int, blocks: int = 12, depth: int = 0, mode: str = "continuous", **changes: object) -> Simulation:
    values = {"max_running": 4, "token_budget": 64, "block_size": 4, "depth": depth} | changes
    config = EngineConfig(mode, prefix_caching=True, offload_prefixes=True, **values)  # type: ignore[arg-type]
    return Simulation(config, blocks, depth, hosts=hosts)


def ask(simulation: Simulation, which: int, more: int = 7, adapter: int = 0) -> int:
    """One prompt after all others are done; how many of its tokens were found."""
    before = len(simulation.records)
    simulation.add([*OPENINGS[which], 60 + which, more], 6, ignore_eos=True).adapter = adapter
    simulation.finish()
    simulation.check()
    return sum(int(record.reused.sum()) for record in simulation.records[before:])


def test_a_prefix_that_the_pool_forgot_comes_back_whole() -> None:
    simulation = tiered(hosts=40)
    assert [ask(simulation, which) for which in range(4)] == [0] * 4
    assert simulation.pool.match(OPENINGS[0])[0] == [], "the pool has no room for four"
    assert ask(simulation, 0, more=8) == 12
    check_said(simulation)
    counts = events(simulation)
    assert counts[SwapEvent.FOUND] == 3
    assert counts[SwapEvent.FORGOTTEN] == 0


def test_without_it_the_same_prompt_is_computed_again() -> None:
    config = EngineConfig("continuous", 4, 64, 4, prefix_caching=True, depth=0)
    simulation = Simulation(config, 12)
    assert [ask(simulation, which) for which in (0, 1, 2, 3, 0)] == [0] * 5


def test_what_came_back_stays_on_the_host_and_is_not_copied_out_again() -> None:
    simulation = tiered(hosts=40)
    for _ in range(6):
        for which in range(4):
            ask(simulation, which)
    check_said(simulation)
    hosts = [
        (event, host)
        for record in simulation.records
        for event, host in zip(record.swap_event.tolist(), record.swap_host.tolist())
    ]
    copied = Counter(host for event, host in hosts if event == SwapEvent.OFFLOADED)
    assert set(copied.values()) == {1}
    assert sum(event == SwapEvent.FOUND for event, _ in hosts) > 3 * len(copied)


def test_the_host_forgets_what_was_not_found_for_longest() -> None:
    simulation = tiered(hosts=6)
    for which in range(6):
        ask(simulation, which)
    assert events(simulation)[SwapEvent.FORGOTTEN] > 0
    assert ask(simulation, 0) == 0
    check_said(simulation)


def test_of_adapters_each_finds_its_own() -> None:
    simulation = tiered(hosts=40)
    assert [ask(simulation, which, adapter=1) for which in range(4)] == [0] * 4
    assert ask(simulation, 0, adapter=2) == 0
    assert ask(simulation, 0, adapter=1) == 12
    assert events(simulation)[SwapEvent.FOUND] == 3


def test_a_search_finds_what_the_pool_forgot_too() -> None:
    simulation = tiered(hosts=40)
    for which in range(4):
        ask(simulation, which)
    before = len(simulation.records)
    simulation.add([*OPENINGS[0], 60, 9], 6, ignore_eos=True, width=2)
    simulation.finish()
    simulation.check()
    check_said(simulation)
    assert int(simulation.records[before].reused.sum()) >= 12
    assert events(simulation)[SwapEvent.FOUND] == 3


@pytest.mark.parametrize("depth", [0, 1])
def test_a_copy_that_a_lost_step_should_have_made_is_found_by_nobody(depth: int) -> None:
    simulation = tiered(hosts=40, depth=depth)
    for which in range(3):
        ask(simulation, which)
    simulation.add([*OPENINGS[3], 9], 6, ignore_eos=True)
    while not simulation.plans[-1].swap_out:
        plan = simulation.scheduler.plan()
        assert plan is not None
        simulation.plans.append(plan)
    lost = {host for _, host in simulation.plans[-1].swap_out}
    simulation._lose(simulation.plans[-1])
    assert not any(simulation.host.answers(host) for host in lost)
    simulation.step()
    simulation.check()
    for which in range(4):
        ask(simulation, which)
    check_said(simulation)


def test_what_a_step_that_ran_out_of_memory_should_have_brought_is_brought_again() -> None:
    simulation = tiered(hosts=40)
    for which in range(4):
        ask(simulation, which)
    request = simulation.add([*OPENINGS[0], *range(60, 78)], 6, ignore_eos=True)
    simulation.step(starves=True)
    simulation.check()
    assert events(simulation)[SwapEvent.FOUND] == 0, "of a step that failed nothing is told"
    simulation.finish()
    simulation.check()
    check_said(simulation)
    assert request.branches[0].reason is FinishReason.LENGTH
    assert events(simulation)[SwapEvent.FOUND] == 3


def test_where_there_is_little_room_the_beginnings_are_kept() -> None:
    """A chain of twelve blocks, and room for a part of it."""
    for hosts in (4, 8):
        simulation = tiered(hosts, blocks=14)
        for opening in (1, 2, 1):
            before = len(simulation.records)
            simulation.add([opening] * 48 + [7], 2, ignore_eos=True)
            simulation.finish()
        assert sum(int(record.reused.sum()) for record in simulation.records[before:]) >= 4 * hosts
        check_said(simulation)


def test_what_was_asked_for_last_is_forgotten_last() -> None:
    host, changes = HostPool(3, 4), Changes()
    keys = [(0, (token,) * 4) for token in range(3)]
    for serial, key in enumerate(keys, 1):
        (block,) = host.take(1)
        host.answer(block, key, serial)
        host.release([block])
    assert host.touch(keys[0])
    assert host.take_forgetting(2, changes) == [1, 2]
    assert [(change.event, change.host) for change in changes.swaps] == [(SwapEvent.FORGOTTEN, n) for n in (1, 2)]
    assert not host.touch(keys[1])


def test_what_is_swapped_is_copied_once_and_what_can_be_found_is_not() -> None:
    """With and without prefixes that are offloaded, as many copies."""
    moved = []
    for offload in (False, True):
        config = EngineConfig(
            "continuous", 8, 256, 4, prefix_caching=True, preemption="swap", offload_prefixes=offload, depth=0
        )
        simulation = Simulation(config, 20, 0, hosts=60)
        for n in range(4):
            simulation.add([n + 1] * 15, 30, ignore_eos=True)
        simulation.finish()
        check_said(simulation)
        moved.append(sum(record.moved_blocks for record in simulation.records))
        assert sum(len(record.preempted) for record in simulation.records) > 2
    assert moved[1] <= 1.3 * moved[0]


def test_the_longest_prefix_is_looked_for_on_the_host_too() -> None:
    simulation = tiered(hosts=40, max_running=1, token_budget=64, admission="lpm")
    for which in range(4):
        ask(simulation, which)
    first = simulation.add([99] * 14, 4, ignore_eos=True)
    second = simulation.add([*OPENINGS[0], 9], 4, ignore_eos=True)
    while not second.finished:
        simulation.step()
    assert not first.finished
    simulation.finish()


@settings(max_examples=60)
@given(st.integers(0, 1 << 30), st.sampled_from(COLOCATED_MODES), st.integers(0, 1), st.integers(0, 30), st.booleans())
def test_whatever_comes_up_and_down_every_prompt_says_what_it_says_alone(
    seed: int, mode: str, depth: int, hosts: int, faults: bool
) -> None:
    """Prompts of few openings, several at once, over a pool that holds two of them."""
    pick = random.Random(seed)
    preemption = pick.choice(["recompute", "swap"])
    admission = pick.choice(["fcfs", "lpm"])
    simulation = tiered(hosts, 14, depth, mode, preemption=preemption, admission=admission)
    simulation.memory = (pick.choice([8, 20, 1000]), 1000)
    for _ in range(120):
        if simulation.scheduler.ledger.waiting_count < 6 and pick.random() < 0.4:
            opening = pick.choice(OPENINGS[:4])[: pick.choice([4, 8, 12])]
            several = {"n": pick.choice([1, 1, 1, 2]), "width": pick.choice([1, 1, 1, 2])}
            simulation.add([*opening, pick.randint(1, 3), 7], pick.randint(1, 12), **several)
        fault = pick.randrange(40) if faults else -1
        simulation.step(fault == 0, fault == 1, fault == 2)
        simulation.check()
    simulation.finish()
    simulation.step()
    simulation.check_idle()
    check_said(simulation)
