"""Who of those that wait is next, in each order of admission."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config.specs import ADMISSIONS, EngineConfig, InvalidInput
from engine.scheduler.block_pool import BlockPool
from engine.scheduler.request import Branch, Life
from engine.scheduler.waiting import LOOKED_AT, Waiting
from engine.trace.records import Kind
from tests.engine.scheduler.simulated_device import Simulation

SIZE = 4


def branches(*asks: tuple[int, int], n: int = 1, width: int = 1, prompt: int = 5) -> list[list[Branch]]:
    """Of requests with so many tokens of prompt and answer each, that were never admitted."""
    simulation = Simulation(EngineConfig(), 4096, 0)
    return [simulation.add([prompt] * length, limit, n=n, width=width).branches for length, limit in asks]


def order(waiting: Waiting) -> list[int]:
    """Request by request, as they are taken."""
    found = []
    while (first := waiting.first()) is not None:
        taken = waiting.take()
        assert taken is first
        found.append(taken.request.id)
    return found


asks = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)), max_size=12)


@given(asks, st.sampled_from(["fcfs", "sjf"]), st.sets(st.integers(0, 11)), st.sets(st.integers(0, 11)))
def test_the_next_is_who_came_first_or_is_shortest_and_whoever_ran_before_precedes_all(
    asked: list[tuple[int, int]], admission: str, back: set[int], over: set[int]
) -> None:
    requests = branches(*asked)
    ran = [number for number in sorted(back) if number < len(asked)]
    waiting = Waiting(admission, BlockPool(8, SIZE))
    waiting.add(branch for number, own in enumerate(requests) if number not in ran for branch in own)
    for number in reversed(ran):
        waiting.put_back(requests[number][0])
    for number in over & set(range(len(asked))):
        requests[number][0].life = Life.FINISHED
    left = [number for number in range(len(asked)) if number not in over]
    fresh = [number for number in left if number not in ran]
    if admission == "sjf":
        fresh.sort(key=lambda number: sum(asked[number]))  # in a stable order: who came first of those alike
    assert order(waiting) == [number for number in ran if number in left] + fresh


@given(st.lists(st.integers(-3, 3), max_size=12))
def test_the_next_has_the_lowest_priority_of_those_alike_who_came_first(priorities: list[int]) -> None:
    waiting = Waiting("priority", BlockPool(8, SIZE))
    for own, priority in zip(branches(*[(5, 9)] * len(priorities)), priorities):
        request = own[0].request
        request.params = request.params.with_(priority=priority)
        waiting.add(own)
    assert order(waiting) == sorted(range(len(priorities)), key=priorities.__getitem__)


@pytest.mark.parametrize("admission", ADMISSIONS)
def test_a_request_is_not_torn_apart(admission: str) -> None:
    """A beam search's branches are admitted together, and more wait than are looked at once."""
    requests = branches(*[(5, 9)] * LOOKED_AT, (1, 1), width=3)
    waiting = Waiting(admission, BlockPool(8, SIZE))
    for own in requests:
        waiting.add(own)
    for _ in range(3):
        waiting.look()
    taken = order(waiting)
    assert [taken[at : at + 3] for at in range(0, len(taken), 3)] == [[number] * 3 for number in taken[::3]]
    assert len(set(taken)) == len(requests)


def test_the_longest_cached_prefix_is_next_and_only_for_as_long_as_it_is_cached() -> None:
    pool = BlockPool(8, SIZE)
    simulation = Simulation(EngineConfig(), 4096, 0)
    prompts = [1] * 9, [2] * 9, [2] * 4 + [3] * 5, [1] * 9
    requests = [simulation.add(prompt, 5) for prompt in prompts]
    waiting = Waiting("lpm", pool)
    for request in requests:
        waiting.add(request.branches)

    def first() -> int:
        waiting.look()
        branch = waiting.first()
        assert branch is not None
        return branch.request.id

    assert first() == 0, "nothing is cached: who came first"
    blocks = pool.take(2)
    serial = pool.publish(blocks[0], 0, [2] * 4)
    assert first() == 1, "both requests begin with it: who came first"
    pool.publish(blocks[1], serial, [3] * 4)
    assert first() == 2
    pool.release(blocks[::-1])
    assert first() == 2, "nobody has them any more, but they are kept"
    pool.take(8)
    assert first() == 0


def test_the_oldest_is_who_came_first_whoever_is_next() -> None:
    simulation = Simulation(EngineConfig(), 4096, 0)
    waiting = Waiting("sjf", BlockPool(8, SIZE))
    assert waiting.oldest() is None
    for number, length in enumerate((30, 20, 10)):
        request = simulation.add([7] * length, 5)
        request.arrived = float(number)
        waiting.add(request.branches)
    oldest, first = waiting.oldest(), waiting.first()
    assert oldest is not None
    assert first is not None
    assert (oldest.request.id, first.request.id) == (0, 2)


def test_a_dynamic_batch_starts_when_its_oldest_has_waited_whoever_is_shortest() -> None:
    simulation = Simulation(EngineConfig("dynamic", 4, longest_wait=2.0, admission="sjf"), 64, 0)
    for number, length in enumerate((20, 5)):
        simulation.add([7] * length, 5).arrived = float(number)
    scheduler = simulation.scheduler
    assert scheduler.plan(1.5) is None
    assert scheduler.patience(1.5) == pytest.approx(0.5)
    plan = scheduler.plan(2.0)
    assert plan is not None
    assert [row.branch.request.id for row in plan.rows] == [1, 0], "the shorter one has the first slot"


def steps(mode: str, admission: str) -> tuple[int, int]:
    """Steps of eight short and eight long answers in turn, and held rows among all."""
    simulation = Simulation(EngineConfig(mode, 4, 64, admission=admission), 512, 0)
    for number in range(16):
        simulation.add([number + 1] * 3, 40 if number % 2 else 4, ignore_eos=True)
    simulation.finish()
    return len(simulation.plans), sum(row.kind is Kind.HELD for plan in simulation.plans for row in plan.rows)


def test_batches_of_alike_lengths_hold_fewer_rows() -> None:
    (plain, held), (sorted_, fewer) = steps("static", "fcfs"), steps("static", "sjf")
    assert sorted_ < 0.6 * plain
    assert fewer == 0 < held


def test_a_prefix_that_is_cached_is_used_before_it_is_gone() -> None:
    """Four prompts that begin alike, four that begin otherwise, in turn; the pool holds one beginning and a half."""

    def reused(admission: str) -> int:
        config = EngineConfig("continuous", 1, 64, block_size=SIZE, prefix_caching=True, admission=admission)
        simulation = Simulation(config, 9, 0)
        for number in range(8):
            simulation.add([number % 2 + 1] * 20 + [number + 10] * 3, 2, ignore_eos=True)
        simulation.finish()
        return sum(int(record.reused.sum()) for record in simulation.records)

    assert reused("fcfs") < reused("lpm") == 2 * 3 * 20


def test_to_look_for_prefixes_needs_their_cache() -> None:
    with pytest.raises(InvalidInput, match=r"admission='lpm': .*switch prefix_caching on"):
        EngineConfig(admission="lpm")
    with pytest.raises(
        InvalidInput, match=r"admission='lpm': mode 'static' has no prefix cache; use fcfs, sjf, priority or fair"
    ):
        EngineConfig("static", admission="lpm")
    with pytest.raises(InvalidInput, match=r"admission='lifo': must be one of fcfs, sjf, lpm"):
        EngineConfig(admission="lifo")


@given(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.sampled_from(["fcfs", "sjf"]))
def test_adapters_apart_are_queues_of_their_own(adapters: list[int], admission: str) -> None:
    """While one runs, its requests are next, in their order; else whoever is next of all."""
    lengths = [1 + 7 * i % 5 for i in range(len(adapters))]
    requests = branches(*((length, 1) for length in lengths))
    for own, adapter in zip(requests, adapters, strict=True):
        own[0].request.adapter = adapter
    waiting = Waiting(admission, BlockPool(8, SIZE), apart=True)
    waiting.add(branch for own in requests for branch in own)
    ranked = sorted(range(len(adapters)), key=(lambda i: (lengths[i], i)) if admission == "sjf" else (lambda i: i))
    expected = []
    while ranked:
        chosen = [i for i in ranked if adapters[i] == adapters[ranked[0]]]
        expected.append(chosen)
        ranked = [i for i in ranked if i not in chosen]
    for chosen in expected:
        first = waiting.first()
        assert first is not None
        waiting.adapter = first.adapter
        assert order(waiting) == chosen
        waiting.adapter = None
    assert waiting.first() is None


def fair(asked: list[tuple[str, int]]) -> tuple[Waiting, list[Branch]]:
    """A queue of requests of these labels, with so many tokens of prompt each."""
    waiting = Waiting("fair", BlockPool(8, SIZE))
    found = []
    for (label, _), own in zip(asked, branches(*[(length, 9) for _, length in asked])):
        own[0].request.label = label
        waiting.add(own)
        found += own
    return waiting, found


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 30)), max_size=14), st.integers(0, 1 << 20))
def test_the_next_is_of_the_label_that_was_served_least_and_came_first_of_its_own(
    asked: list[tuple[str, int]], seed: int
) -> None:
    waiting, left = fair(asked)
    pick, served = random.Random(seed), Counter[str]()
    while left:
        branch = waiting.take()
        label = branch.request.label
        least = min(served[other.request.label] for other in left)
        assert served[label] == least
        assert branch is next(other for other in left if other.request.label == label)
        left.remove(branch)
        answer = pick.randint(0, 9)
        waiting.serve(label, answer)
        served[label] += branch.request.prompt_length + 2 * answer
    assert waiting.first() is None


def test_nobody_saves_up_while_he_asks_for_nothing() -> None:
    waiting, _ = fair([("busy", 10)] * 20)
    for _ in range(8):
        waiting.serve(waiting.take().request.label, 20)
    late = branches(*[(10, 9)] * 20)
    for own in late:
        own[0].request.label = "late"
        waiting.add(own)
    turns = []
    while waiting.first() is not None:
        turns.append(waiting.take().request.label)
        waiting.serve(turns[-1], 20)
    assert turns[:12].count("late") in (6, 7), "in turns from then on, and not all of the late ones first"


def test_who_floods_the_queue_keeps_nobody_waiting() -> None:
    """Forty requests at once, and then one at a time of somebody else."""
    waits = {}
    for admission in ("fcfs", "fair"):
        simulation = Simulation(EngineConfig(max_running=4, token_budget=64, admission=admission), 400)
        for _ in range(40):
            simulation.add([1] * 9, 20, ignore_eos=True, label="flood")
        waits[admission] = []
        for _ in range(6):
            request = simulation.add([2] * 9, 4, ignore_eos=True, label="few")
            before = len(simulation.records)
            while not request.branches[0].generated:
                simulation.step()
            waits[admission].append(len(simulation.records) - before)
            while not request.finished:
                simulation.step()
        simulation.finish()
        simulation.check_idle()
    assert max(waits["fair"]) <= 25, "until the next of four slots is free, which is at most an answer"
    assert max(waits["fcfs"]) > 5 * max(waits["fair"])


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_labels_that_always_wait_get_the_same_whatever_they_send(preemption: str) -> None:
    """The bound of the paper: two costs of a whole batch and a request."""
    config = EngineConfig(max_running=4, token_budget=64, admission="fair", block_size=4, preemption=preemption)
    simulation = Simulation(config, 40, hosts=40)
    shapes = {"long": (30, 24), "short": (3, 2), "answers": (2, 30)}
    for label, (prompt, answer) in shapes.items():
        for _ in range(60):
            simulation.add([5] * prompt, answer, ignore_eos=True, label=label)
    got = Counter[str]()
    most = 2 * 4 * (30 + 2 * 30)
    while all(
        any(b.life is Life.WAITING for r in simulation.requests if r.label == label for b in r.branches)
        for label in shapes
    ):
        simulation.step()
        simulation.check()
        got = Counter()
        for request in simulation.requests:
            (branch,) = request.branches
            if branch.life is not Life.WAITING:
                got[request.label] += request.prompt_length + 2 * branch.generated
        assert max(got[label] for label in shapes) - min(got[label] for label in shapes) <= most
    assert min(got.values()) > most / 2
    assert max(got.values()) - min(got.values()) <= 30 + 2 * 24, "no more than one long request apart"
    simulation.finish()
    simulation.check_idle()
