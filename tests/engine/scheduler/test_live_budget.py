"""The budget of a running scheduler: what is set holds from the next step on, and nobody says anything else for it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.config.live_budget import SHARED_BUDGET_MODES, LiveBudget
from engine.config.specs import MODES, SOLITARY_MODES, EngineConfig, InvalidInput
from engine.scheduler.limits import Limits
from engine.trace.records import FinishReason, Kind
from tests.engine.scheduler.simulated_device import Simulation, alone


def budgets(config: EngineConfig) -> st.SearchStrategy[LiveBudget]:
    rows = st.integers(1, config.max_running)
    most = st.integers(config.max_running, config.token_budget)
    target = st.sampled_from([0.0, 0.002]) if config.mode == "chunked" else st.just(0.0)
    return st.builds(LiveBudget, most, rows, st.floats(0.01, 1.0), target)


@settings(max_examples=150)
@given(st.data(), st.sampled_from([m for m in MODES if m not in SOLITARY_MODES]), st.integers(0, 1))
def test_whatever_is_set_on_the_way_every_request_says_what_it_says_alone(
    data: st.DataObject, mode: str, depth: int
) -> None:
    depth = 0 if mode == "disaggregated" else depth
    config = EngineConfig(mode, max_running=5, token_budget=24, block_size=4, depth=depth)
    simulation = Simulation(config, 24, depth)
    requests = [simulation.add(list(range(1, 2 + 5 * n)), 12, ignore_eos=True) for n in range(7)]
    turns = data.draw(st.dictionaries(st.integers(0, 40), budgets(config), max_size=5))
    steps = 0
    while simulation.step() or not simulation.scheduler.idle:
        if steps in turns:
            simulation.scheduler.steer(turns[steps])
        simulation.check()
        steps += 1
        assert steps < 2_000, "no progress"
    for request in requests:
        branch = request.branches[0]
        assert branch.reason is FinishReason.LENGTH
        assert branch.tokens[request.prompt_length :] == alone(branch.tokens[: request.prompt_length], 12, True)


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("mode", ["continuous", "chunked"])
def test_a_lower_limit_of_running_preempts_the_last_and_a_higher_one_lets_them_in_again(mode: str, depth: int) -> None:
    simulation = Simulation(EngineConfig(mode, max_running=6, token_budget=64, block_size=4), 200, depth)
    requests = [simulation.add([n + 1] * 5, 60, ignore_eos=True) for n in range(6)]
    for _ in range(12):
        simulation.step()
    running = simulation.scheduler.ledger.running
    assert len(running) == 6
    simulation.scheduler.steer(LiveBudget(64, 2))
    for _ in range(2 + depth):
        simulation.step()
        simulation.check()
    assert [branch.request for branch in running] == requests[:2]
    assert sum(len(record.preempted) for record in simulation.records) == 4
    simulation.scheduler.steer(LiveBudget(64, 6))
    for _ in range(6):
        simulation.step()
    assert [branch.request for branch in running] == requests
    simulation.finish()


@pytest.mark.parametrize("mode", ["continuous", "chunked"])
def test_prompts_take_their_share_of_a_step(mode: str) -> None:
    simulation = Simulation(EngineConfig(mode, max_running=4, token_budget=40, block_size=4), 200)
    for n in range(4):
        simulation.add([n + 1] * 70, 5, ignore_eos=True)
    simulation.scheduler.steer(LiveBudget(40, 4, 0.25))
    simulation.finish()
    prompts = [sum(row.count for row in plan.rows if row.kind is Kind.PREFILL) for plan in simulation.plans]
    assert max(prompts) == 10
    simulation.scheduler.steer(LiveBudget(8, 4, 0.01))
    simulation.add([9] * 7, 2, ignore_eos=True)
    before = len(simulation.plans)
    simulation.finish()
    counts = [sum(row.count for row in plan.rows) for plan in simulation.plans[before:]]
    assert counts == [1] * 8, "a prompt is never shut out"


def test_a_static_batch_starts_with_as_many_as_may_run() -> None:
    simulation = Simulation(EngineConfig("static", max_running=4, token_budget=64, block_size=4), 64)
    simulation.scheduler.steer(LiveBudget(64, 2))
    for n in range(4):
        simulation.add([n + 1] * 5, 3, ignore_eos=True)
    simulation.finish()
    assert [len(plan.rows) for plan in simulation.plans] == [2] * 6


@pytest.mark.parametrize(
    ("mode", "given", "said"),
    [
        ("chunked", {"token_budget": 65}, "prepared for at most 64"),
        ("chunked", {"max_running": 9}, "prepared for at most 8"),
        ("chunked", {"token_budget": 4}, r"at least max_running \(8\): lower that with it"),
        ("chunked", {"prefill_share": 0.0}, "above 0"),
        ("chunked", {"prefill_share": 1.1}, "above 0"),
        ("chunked", {"max_running": 0}, "at least 1"),
        ("static", {"token_budget": 32}, "computes prompts whole; use one of continuous-padded"),
        ("dynamic", {"prefill_share": 0.5}, "computes prompts whole"),
        ("chunked", {"target_itl": -0.01}, "must be a number of seconds, 0 for none"),
        ("continuous", {"target_itl": 0.01}, "computes whole prompts before answers go on; use chunked"),
        ("sequential", {"max_running": 1}, "one request at a time"),
    ],
)
def test_what_cannot_be_set_is_refused_with_the_remedy(mode: str, given: dict[str, float], said: str) -> None:
    config = EngineConfig(mode, max_running=8, token_budget=64)
    with pytest.raises(InvalidInput, match=said):
        LiveBudget.of(config).changed(config, **given)  # type: ignore[arg-type]


def test_what_is_not_given_stays() -> None:
    config = EngineConfig(max_running=8, token_budget=64)
    budget = LiveBudget.of(config).changed(config, prefill_share=0.5).changed(config, max_running=3)
    assert budget == LiveBudget(64, 3, 0.5)
    assert budget.changed(config) == budget
    assert budget.changed(config, max_running=2, token_budget=2) == LiveBudget(2, 2, 0.5)
    assert set(SHARED_BUDGET_MODES) < set(MODES)


def test_beams_that_are_wider_than_the_budget_leave_prompts_nothing() -> None:
    limits = Limits(LiveBudget(2, 2))
    assert limits.of_prompts(1) == 1
    assert limits.of_prompts(4) == 0
    simulation = Simulation(EngineConfig("chunked", max_running=4, token_budget=64, block_size=4), 200)
    simulation.add([1] * 5, 8, width=4)
    for _ in range(3):
        simulation.step()
    simulation.scheduler.steer(LiveBudget(2, 2))
    other = simulation.add([2] * 9, 4, ignore_eos=True)
    simulation.finish()
    assert other.branches[0].tokens[9:] == alone([2] * 9, 4, True)
