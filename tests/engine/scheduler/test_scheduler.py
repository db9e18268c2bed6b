"""The scheduler against a simulated device: progress, fairness, blocks, and tokens that equal each request alone."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config.live_budget import LiveBudget
from engine.config.specs import ADMISSIONS, DELIVERIES, MODES, PAGED_MODES, EngineConfig
from engine.scheduler.limits.limits import PATIENCE, SMALLEST, Limits
from engine.scheduler.request import Branch, Emission, Life, Request
from engine.trace.records import FinishReason, Kind, Refusal
from tests.engine.scheduler.simulated_device import END, PLAIN, Simulation, alone, alone_in_beams


@dataclass(frozen=True)
class Ask:
    """A request to come: its prompt, its limit, the step before which it comes, how many samples or beams it wants, and
    its priority."""

    prompt: tuple[int, ...]
    max_tokens: int
    at: int
    n: int = 1
    width: int = 1
    priority: int = 0


@dataclass(frozen=True)
class Case:
    config: EngineConfig
    blocks: int
    asks: tuple[Ask, ...]
    cancels: tuple[tuple[int, int], ...]  # (before this step, the n-th request)
    failures: frozenset[int]  # steps whose launch fails
    losses: frozenset[int]  # steps at which what was launched cannot be read
    errs_every: int = 0  # of the tokens that are drafted; 0: none are
    memory: tuple[int, int] = (sys.maxsize, sys.maxsize)  # the most tokens and rows of a step
    shortages: frozenset[int] = frozenset()  # steps at which what was launched ran out of memory


shortage = st.fixed_dictionaries(
    {
        "memory": st.tuples(st.integers(1, 40), st.integers(1, 5)),
        "shortages": st.frozensets(st.integers(0, 60), max_size=4),
    }
)


windows = st.just({}) | st.builds(  # what a cache forgets
    lambda newest, sinks: {"kv_window": newest, "kv_sinks": sinks}, st.integers(1, 12), st.integers(0, 5)
)


@st.composite
def cases(draw: st.DrawFn, *, failures: bool = False, shortages: bool = False) -> Case:
    mode = draw(st.sampled_from(list(MODES)))
    paged = mode in PAGED_MODES
    max_running = draw(st.integers(1, 5))
    block_size = draw(st.sampled_from([1, 2, 4, 8]))
    errs_every = draw(st.sampled_from([0, 0, 1, 2, 7, 1000])) if paged else 0
    drafts = {"speculation": "ngram", "speculated": draw(st.sampled_from(["auto", 1, 3, 9]))} if errs_every else {}
    blocks = draw(st.integers(3, 24))
    caching = paged and draw(st.booleans())
    config = EngineConfig(
        mode=mode,
        max_running=max_running,
        token_budget=draw(st.integers(max_running, 40)),
        block_size=block_size,
        join_every=draw(st.integers(1, 3)),
        delivery=draw(st.sampled_from(DELIVERIES)) if mode in ("static", "dynamic") else "stream",
        prefix_caching=caching,
        depth=0 if errs_every or mode == "disaggregated" else draw(st.integers(0, 1)),
        admission=draw(st.sampled_from([one for one in ADMISSIONS if caching or one != "lpm"])),
        **drafts,
        **(draw(windows) if paged else {}),
        target_itl=draw(st.sampled_from([None, 0.001, 0.003])) if mode == "chunked" else None,
    )
    room = blocks * block_size
    # Few different tokens, so that prompts begin alike.
    prompts = st.lists(st.integers(1, draw(st.sampled_from([1, 2, 999]))), min_size=1, max_size=min(room, 30))
    samples = st.integers(1, 3) if paged else st.just(1)
    widths = st.sampled_from([1, 1, 1, 2, 4]) if paged and mode != "disaggregated" else st.just(1)
    limits, steps, priorities = st.integers(1, 30), st.integers(0, 40), st.integers(-1, 1)
    ask = st.builds(Ask, prompts.map(tuple), limits, steps, samples, widths, priorities)
    return Case(
        config=config,
        blocks=blocks,
        asks=tuple(draw(st.lists(ask, min_size=1, max_size=9))),
        cancels=tuple(draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)), max_size=4))),
        failures=draw(st.frozensets(st.integers(0, 50), max_size=3)) if failures else frozenset(),
        losses=draw(st.frozensets(st.integers(0, 50), max_size=3)) if failures else frozenset(),
        errs_every=errs_every,
        **(draw(shortage) if shortages else {}),
    )


def play(case: Case) -> Simulation:
    """The whole case, with everything that must hold checked after each step."""
    simulation = Simulation(case.config, case.blocks, case.config.depth or 0, case.memory, case.errs_every)
    arrivals = sorted(case.asks, key=lambda ask: ask.at)
    step = 0
    while True:
        while arrivals and arrivals[0].at <= step:
            ask = arrivals.pop(0)
            simulation.add(ask.prompt, ask.max_tokens, n=ask.n, width=ask.width, priority=ask.priority)
        for at, which in case.cancels:
            if at == step and which < len(simulation.requests):
                simulation.cancel(simulation.requests[which])
        did = simulation.step(step in case.failures, step in case.losses, step in case.shortages)
        simulation.check()
        step += 1
        if not did and not arrivals and simulation.scheduler.idle:
            break
        assert step < 20_000, "no progress"
    simulation.step()
    simulation.check_idle()
    assert simulation.told.tables == {}, "the records alone tell who owns every block"
    return simulation


def test_those_who_decode_make_way_though_the_last_that_joined_is_still_computed_elsewhere() -> None:
    """A step of two rows is too much: one of them waits, whatever the worker is at, and all come to their ends."""
    config = EngineConfig("disaggregated", 3, 33, block_size=4, prefix_caching=True, speculation="ngram", depth=0)
    again = Ask((1, 1, 1, 1, 2, 1), 18, 20, n=3)
    asks = (again, Ask((1, 2, 1, 2, 1), 23, 13, priority=-1), again, Ask((2, 2, 2, 2, 1, 1, 2), 1, 0))
    play(Case(config, 16, asks, (), frozenset(), frozenset(), 1, (1, 1)))


def branches(simulation: Simulation) -> list[Branch]:
    return [branch for request in simulation.requests for branch in request.branches]


def spoken(branch: Branch) -> list[int]:
    return branch.tokens[branch.request.prompt_length :]


def said(request: Request) -> list[int]:
    return spoken(request.branches[0])


def expected(branch: Branch, config: EngineConfig = PLAIN) -> list[int]:
    prompt = branch.tokens[: branch.request.prompt_length]
    if branch.beam is not None:
        if branch.reason in (FinishReason.CANCELLED, FinishReason.ERROR):
            return spoken(branch)  # what stood there then
        return alone_in_beams(branch.request, prompt)[branch.index]
    return alone(prompt, branch.request.limit, config=config)


def check_emitted(simulation: Simulation, case: Case) -> None:
    """Every token is emitted once, and what is computed for nothing is called wasted."""
    emitted = sum(len(record.token) for record in simulation.records)
    withheld = sum(len(branch.withheld) for branch in branches(simulation))
    assert emitted + withheld == sum(len(spoken(branch)) for branch in branches(simulation))
    wasted = sum(int(record.wasted.sum()) for record in simulation.records)
    rows = [row for plan in simulation.plans for row in plan.rows]
    known = sum(row.again for row in rows) + sum(row.kind is Kind.HELD for row in rows)
    for record in simulation.records:
        if len(record.drafted):
            said = np.bincount(record.token_row, minlength=record.rows)
            verified = record.drafted > 0
            kept = record.accepted[verified]
            assert ((kept == said[verified]) | (kept == said[verified] - 1)).all()
            assert (kept <= record.drafted[verified]).all()
            known += int((record.count - said)[verified].sum())
    if case.config.disaggregated and case.cancels:
        assert wasted >= known  # what the worker computed of who was cancelled meanwhile
    elif case.config.depth == 0:
        assert wasted == known
    elif not case.cancels:
        past_an_end = sum(branch.reason is FinishReason.STOP for branch in branches(simulation))
        most = max((len(branch.tokens) for branch in branches(simulation)), default=1)
        assert known <= wasted <= known + past_an_end * (most if case.config.mode == "recompute" else 1)


@settings(max_examples=400)
@given(cases())
def test_every_request_ends_with_the_tokens_it_has_alone_whatever_happens_around_it(case: Case) -> None:
    simulation = play(case)
    for branch in branches(simulation):
        tokens = expected(branch, case.config)
        if branch.reason is FinishReason.CANCELLED:
            assert spoken(branch) == tokens[: len(spoken(branch))]
        else:
            assert spoken(branch) == tokens
            assert branch.reason is (FinishReason.STOP if tokens[-1] == END else FinishReason.LENGTH)
        letters = "".join(chr(ord("a") + t % 26) for t in spoken(branch) if t != END)
        assert simulation.texts[branch] + "".join(e.text for e in branch.withheld) == letters
    check_emitted(simulation, case)


@settings(max_examples=200)
@given(cases(failures=True))
def test_a_step_that_fails_ends_its_own_requests_and_no_others(case: Case) -> None:
    simulation = play(case)
    for branch in branches(simulation):
        tokens = expected(branch, simulation.config)
        if branch.reason is FinishReason.ERROR:
            assert branch.error == "the step failed"
        elif branch.reason is FinishReason.CANCELLED:
            assert spoken(branch) == tokens[: len(spoken(branch))]
        else:
            assert spoken(branch) == tokens


@settings(max_examples=400)
@given(cases(shortages=True, failures=True))
def test_a_step_that_runs_out_of_memory_is_made_smaller_and_nobody_says_anything_else(case: Case) -> None:
    simulation = play(case)
    for branch in branches(simulation):
        tokens = expected(branch, simulation.config)
        if branch.reason in (FinishReason.CANCELLED, FinishReason.ERROR):
            assert spoken(branch) == tokens[: len(spoken(branch))]
        else:
            assert spoken(branch) == tokens
        if branch.error == "out of memory" and not case.shortages and case.config.paged:
            beams_fit = len(branch.together) <= case.memory[1]
            assert case.memory[0] < SMALLEST or not beams_fit, "a row of so many tokens fits"


def small(depth: int = 0, blocks: int = 64, **config: int) -> Simulation:
    values = {"max_running": 4, "token_budget": 32, "block_size": 4} | config
    return Simulation(EngineConfig(**values, depth=depth), blocks, depth)  # type: ignore[arg-type]


def test_a_decode_that_must_wait_makes_no_block_findable() -> None:
    """Two branches decode, one finds no block while a step is in flight: neither has a row, and nothing is written."""
    simulation = Simulation(EngineConfig("continuous", 3, 3, block_size=2, prefix_caching=True, depth=1), 5, 1)
    simulation.add([1, 1], 4, n=2)
    simulation.add([1, 1], 2)
    while simulation.step() or not simulation.scheduler.idle:
        simulation.check()


def test_a_sample_copies_no_block_that_the_same_step_is_to_fill() -> None:
    """Its sibling, preempted before, finds the prompt's last block with another request, which fills it again."""
    drafts = {"speculation": "ngram", "join_every": 3}
    config = EngineConfig("continuous", 3, 11, block_size=2, prefix_caching=True, **drafts)  # type: ignore[arg-type]
    asks = Ask((1,), 1, 0), Ask((1,) * 14, 10, 0, 3), Ask((1,) * 14, 2, 0, 2)
    simulation = play(Case(config, 16, asks, (), frozenset(), frozenset(), errs_every=1))
    assert sum(len(record.preempted) for record in simulation.records) >= 2
    assert [spoken(branch) for branch in branches(simulation)] == [
        expected(b, simulation.config) for b in branches(simulation)
    ]


@pytest.mark.parametrize(("mode", "caching"), [("continuous", True), ("chunked", False)])
def test_what_a_lost_step_should_have_written_is_given_to_nobody(mode: str, caching: bool) -> None:
    """The step after it is in flight: it fills the block that the lost one began, or copies it for another sample."""
    config = EngineConfig(mode, 3, 3, block_size=2, prefix_caching=caching, depth=1)
    simulation = Simulation(config, 8, 1)
    simulation.add([2, 2, 2, 2] if caching else [2, 2, 2], 2, n=1 if caching else 2)
    simulation.step()
    simulation.step(loses=True)
    simulation.check()
    simulation.finish()
    for branch in branches(simulation):
        assert branch.reason is FinishReason.ERROR or spoken(branch) == expected(branch, simulation.config)


@pytest.mark.parametrize("steps", range(1, 9))
def test_what_a_failed_step_was_to_publish_is_not_found_when_the_step_before_it_fails_too(steps: int) -> None:
    simulation = Simulation(EngineConfig(max_running=1, block_size=2, prefix_caching=True), 5, depth=1)
    simulation.add([1], 9, ignore_eos=True)
    for _ in range(steps):
        simulation.step()
    simulation.step(fails=True)  # it may have published the block that the step in flight fills
    simulation.step(starves=True)
    simulation.check()
    simulation.finish()
    simulation.check_idle()


@pytest.mark.parametrize("depth", [0, 1])
def test_a_stop_costs_one_wasted_token_at_most(depth: int) -> None:
    simulation = small(depth)
    prompt = next([n] for n in range(1, 999) if 3 < len(alone([n], 50)) < 20)
    simulation.add(prompt, 50)
    simulation.finish()
    assert sum(int(r.wasted.sum()) for r in simulation.records) == depth


@pytest.mark.parametrize("depth", [0, 1])
def test_the_blocks_of_a_cancelled_request_are_back_at_the_steps_border(depth: int) -> None:
    simulation = small(depth)
    request = simulation.add(range(1, 20), 50, ignore_eos=True)
    for _ in range(6):
        simulation.step()
    assert simulation.pool.owned > 0
    simulation.cancel(request)
    for _ in range(depth):
        simulation.step()
    assert simulation.pool.owned == 0
    assert simulation.pool.free == simulation.pool.total


@pytest.mark.parametrize("depth", [0, 1])
def test_a_prompt_cancelled_half_way_is_not_computed_to_its_end(depth: int) -> None:
    simulation = small(depth, blocks=300, token_budget=8)
    request = simulation.add([5] * 1000, 5)
    for _ in range(4):
        simulation.step()
    simulation.cancel(request)
    planned = len(simulation.plans)
    simulation.finish()
    assert len(simulation.plans) == planned
    simulation.check_idle()


@pytest.mark.parametrize("depth", [0, 1])
def test_a_lone_request_that_fills_the_pool_is_never_preempted(depth: int) -> None:
    simulation = small(depth, blocks=5)
    request = simulation.add([3] * 7, 99, ignore_eos=True)
    simulation.finish()
    assert len(said(request)) == 5 * 4 + 1 - 7
    assert not any(len(record.preempted) for record in simulation.records)


@pytest.mark.parametrize("depth", [0, 1])
def test_a_preempted_request_keeps_what_it_said_and_says_no_token_twice(depth: int) -> None:
    simulation = small(depth, blocks=10)
    requests = [simulation.add([n] * 9, 24, ignore_eos=True) for n in (1, 2, 3)]
    at_preemption: dict[int, list[int]] = {}
    while not simulation.scheduler.idle:
        simulation.step()
        for request in requests:
            if request.branches[0].life is Life.PREEMPTED and request.id not in at_preemption:
                at_preemption[request.id] = list(said(request))
    assert any(at_preemption.values()), "the pool is too small for three, so at least one was preempted while it spoke"
    for request in requests:
        assert said(request) == alone([request.id + 1] * 9, 24, ignore_eos=True)
        before = at_preemption.get(request.id, [])
        assert said(request)[: len(before)] == before


def test_the_last_request_admitted_is_preempted_first() -> None:
    simulation = small(blocks=10)
    for n in (1, 2, 3):
        simulation.add([n] * 9, 24, ignore_eos=True)
    simulation.finish()
    order = [request for record in simulation.records for request in record.preempted.tolist()]
    assert order[0] == 2
    assert 0 not in order


@pytest.mark.parametrize("mode", ["continuous", "chunked"])
def test_by_priority_the_last_admitted_of_the_highest_number_makes_way(mode: str) -> None:
    """Requests that came first, and run, make way for what is more urgent."""
    simulation = Simulation(EngineConfig(mode, 4, 40, block_size=4, admission="priority"), 14, 0)
    for n in (1, 2, 3):
        simulation.add([n] * 9, 24, ignore_eos=True, priority=1)
        simulation.step()
    urgent = simulation.add([4] * 9, 24, ignore_eos=True)
    simulation.finish()
    order = [request for record in simulation.records for request in record.preempted.tolist()]
    assert order[:2] == [2, 1], "of those alike the last first"
    assert urgent.id not in order


@pytest.mark.parametrize("depth", [0, 1])
def test_decodes_are_not_starved_by_an_endless_stream_of_prompts(depth: int) -> None:
    simulation = small(depth, blocks=4096, max_running=64, token_budget=64)
    first = simulation.add([1, 2, 3], 20, ignore_eos=True)
    steps = 0
    while not first.finished:
        simulation.add([7] * 64, 1)
        simulation.step()
        steps += 1
        assert steps <= 2 * 20 + 4, "a decode step at least after every prefill step"


@pytest.mark.parametrize("depth", [0, 1])
def test_prompts_are_not_starved_by_decodes_that_never_end(depth: int) -> None:
    simulation = small(depth, blocks=4096, max_running=8)
    for n in range(3):
        simulation.add([n + 1], 10_000, ignore_eos=True)
    for _ in range(10):
        simulation.step()
    late = simulation.add([9] * 100, 10_000, ignore_eos=True)
    for _ in range(2 * 4 + 4):
        simulation.step()
    assert len(said(late)) > 0, "a prompt of four parts has its first token after about eight steps"


def test_requests_are_admitted_in_order_of_arrival() -> None:
    simulation = small(max_running=2)
    for n in range(6):
        simulation.add([n + 1] * 5, 6, ignore_eos=True)
    simulation.finish()
    prefills = [r for record in simulation.records for r, k in zip(record.request, record.kind) if k == Kind.PREFILL]
    assert list(dict.fromkeys(prefills)) == list(range(6))
    assert [request.id for request in simulation.requests] == list(range(6))


def test_a_refused_head_of_the_queue_is_told_why() -> None:
    slots = small(max_running=1)
    for _ in range(2):
        slots.add([4] * 5, 4, ignore_eos=True)
    slots.step()
    assert slots.plans[-1].refused == ((1, Refusal.NO_SLOT),)
    slots.step()
    assert slots.plans[-1].refused == ((1, Refusal.NO_SLOT),) or slots.plans[-1].refused == ((1, Refusal.DECODE_TURN),)

    blocks = small(blocks=4)
    blocks.add([4] * 9, 4, ignore_eos=True)
    blocks.add([5] * 9, 4, ignore_eos=True)
    blocks.step()
    assert blocks.plans[-1].refused == ((1, Refusal.NO_BLOCKS),)

    budget = small(token_budget=8)
    budget.add([4] * 8, 4, ignore_eos=True)
    budget.add([5] * 8, 4, ignore_eos=True)
    budget.step()
    assert budget.plans[-1].refused == ((1, Refusal.BUDGET),)


def lines_of_a_step(waiting: int) -> int:
    """How many lines of Python the scheduler executes to plan and commit 20 steps with so many waiting."""
    simulation = small(max_running=4, blocks=4096)
    for _ in range(waiting):
        simulation.add([5] * 3, 1000, ignore_eos=True)
    simulation.step()
    lines = 0

    def count(frame: object, event: str, arg: object) -> object:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        for _ in range(20):
            plan = simulation.scheduler.plan()
            assert plan is not None
            simulation.scheduler.commit(plan, [Emission(1)] * len(plan.rows))
    finally:
        sys.settrace(before)
    return lines


def test_a_step_costs_the_same_with_a_hundred_and_with_ten_thousand_waiting() -> None:
    assert lines_of_a_step(10_000) < 1.05 * lines_of_a_step(100)


def test_ten_thousand_cancelled_in_the_queue_are_passed_over_once() -> None:
    simulation = small()
    requests = [simulation.add([5] * 3, 5, ignore_eos=True) for _ in range(10_000)]
    for request in requests[4:-1]:
        simulation.cancel(request)
    assert simulation.scheduler.ledger.waiting_count == 5
    simulation.finish(most=40)
    assert requests[-1].branches[0].reason is FinishReason.LENGTH
    simulation.check_idle()


@pytest.mark.parametrize("depth", [0, 1])
def test_limits_grow_again_and_are_tried_ever_more_seldom(depth: int) -> None:
    """Eight rows do not fit: four do, after a while eight are tried again, and then only after twice as long."""
    simulation = Simulation(EngineConfig(max_running=8, depth=depth), 400, depth, memory=(1 << 20, 7))
    requests = [simulation.add([n + 1] * 20, 300, ignore_eos=True) for n in range(8)]
    simulation.finish()
    assert [said(r) for r in requests] == [alone([r.id + 1] * 20, 300, ignore_eos=True) for r in requests]
    assert 3 < simulation.short < 12
    assert simulation.scheduler.ledger.limits.patience >= 4 * PATIENCE


def test_what_was_published_in_vain_is_published_again() -> None:
    config = EngineConfig(token_budget=64, block_size=4, prefix_caching=True)
    simulation = Simulation(config, 64)
    prompt = list(range(1, 121))
    simulation.add(prompt, 3, ignore_eos=True)
    simulation.step()
    simulation.step(starves=True)
    assert len(simulation.pool.match(prompt)[0]) == 16
    simulation.finish()
    assert len(simulation.pool.match(prompt)[0]) == 30


def test_limits_say_what_they_are() -> None:
    limits = Limits(LiveBudget(4096, 8))
    assert limits.words == ""
    assert limits.halve(2048, 3)
    assert limits.words == "prompts now go 1,024 tokens at a time"
    assert limits.halve(16, 9)
    assert limits.words == "prompts now go 1,024 tokens at a time and at most 4 now run at once"
    assert not limits.halve(SMALLEST, 1)
    for _ in range(PATIENCE):
        limits.went_well(4096, 8)
    assert (limits.prompts, limits.rows) == (2048, None)
    for _ in range(PATIENCE):
        limits.went_well(4096, 8)
    assert limits.words == ""
