"""Gaps between tokens are held within a target: by what a step may take in, and by who may join."""

import random
from itertools import pairwise

import pytest

from engine.config.live_budget import LiveBudget
from engine.config.specs import EngineConfig, InvalidInput
from engine.scheduler.limits import Pace
from engine.trace.records import Refusal
from tests.engine.scheduler.simulated_device import Simulation, alone

STEPS = 3000


class Machine:
    """Takes `base` seconds a step, more for each token, and now and then a bit more or less."""

    def __init__(self, base: float, decode: float, prompt: float, spread: float, mixed: float = 0.0) -> None:
        self.base, self.decode, self.prompt, self.mixed = base, decode, prompt, mixed
        self._random, self._spread = random.Random(5), spread

    def mean(self, decodes: int, prompts: int) -> float:
        return self.base + self.decode * decodes + self.prompt * prompts + self.mixed * (prompts > 0)

    def __call__(self, decodes: int, prompts: int) -> float:
        return self.mean(decodes, prompts) * self._random.lognormvariate(0, self._spread)


@pytest.mark.parametrize("spread", [0.0, 0.1, 0.3])
@pytest.mark.parametrize(
    "machine",
    [(2e-3, 3e-5, 5e-5), (5e-4, 2e-4, 2e-5), (2e-3, 3e-5, 5e-5, 4e-3)],
    ids=["each alike", "dear rows", "dear to mix"],
)
def test_one_gap_in_twenty_is_longer_than_the_target(machine: tuple[float, ...], spread: float) -> None:
    base, decode, prompt, *mixed = machine
    takes, pace, draw = Machine(base, decode, prompt, spread, *mixed), Pace(0.02), random.Random(1)
    clock, missed, taken = 0.0, 0, 0
    for step in range(STEPS):
        decodes, waits = 32 + draw.randint(-4, 4), draw.random() < 0.9
        prompts = pace.prompts(decodes) if waits else 0
        seconds = takes(decodes, prompts)
        clock += seconds
        pace.learn(decodes, prompts, clock)
        if step > STEPS // 3:
            missed += seconds > pace.target
            taken += prompts
    most = (0.02 - takes.mean(32, 1)) / prompt  # tokens a step that would take the target on average
    steps = STEPS - STEPS // 3
    assert missed / steps < 0.06
    assert taken / steps / 0.9 > most * (0.9 if not spread else 0.65 if spread < 0.2 else 0.3), (
        "and little is left over"
    )


def test_a_machine_that_becomes_slower_or_quicker_is_learned_anew() -> None:
    pace, clock = Pace(0.02), 0.0
    found = []
    for speed in (1.0, 0.5, 2.0):
        for _ in range(400):
            clock += (2e-3 + 5e-5 * (prompts := pace.prompts(20))) / speed
            pace.learn(20, prompts, clock)
        found.append(prompts)
    assert found == pytest.approx([360, 160, 760], rel=0.2)


def test_nothing_is_known_at_first_and_a_line_is_not_trusted_far_beyond() -> None:
    pace, clock, sizes = Pace(1.0), 0.0, []
    pace.learn(0, 99, clock)
    for _ in range(5):
        sizes.append(pace.prompts(4))
        clock += 1e-3 * sizes[-1]
        pace.learn(4, sizes[-1], clock)
    assert sizes == [1, 2, 4, 8, 16]


def test_what_held_a_step_up_once_is_no_measure_of_the_next() -> None:
    pace = Pace(0.02)
    for step in range(200):
        pace.learn(8, 200, 0.012 * step)
    before = pace.prompts(8)
    pace.learn(8, 200, 7.0)
    assert pace.prompts(8) > 0.7 * before


def test_who_waits_does_not_wait_for_what_once_was() -> None:
    pace, clock = Pace(0.05), 0.0
    for running, prompts, seconds in [*[(12, 16, 0.04)] * 80, *[(1, 0, 0.003)] * 200]:
        clock += seconds
        pace.learn(running, prompts, clock)
    pace.target = 0.012
    assert pace.joins(0, 1), "one runs whatever it takes"
    assert pace.joins(1, 1), "two decode in 6 ms at most, though with prompts it was 40 before"
    assert not pace.joins(8, 1)


def crowded(target: float | None, **changes: object) -> Simulation:
    config = EngineConfig("chunked", 64, 256, block_size=4, target_itl=target, **changes)  # type: ignore[arg-type]
    return Simulation(config, blocks=2000)


def ask(
    simulation: Simulation, requests: int = 40, lengths: tuple[int, ...] = (5, 40, 200)
) -> dict[int, tuple[list[int], int]]:
    draw, asked = random.Random(3), {}
    for _ in range(requests):
        prompt, limit = [draw.randint(1, 900) for _ in range(draw.choice(lengths))], draw.randint(5, 60)
        asked[simulation.add(prompt, limit, ignore_eos=True).id] = prompt, limit
    return asked


def gaps(simulation: Simulation) -> list[float]:
    return [later - before for times in simulation.emitted.values() for before, later in pairwise(times)]


def test_a_crowd_says_the_same_with_gaps_as_short_as_they_shall_be() -> None:
    longest = []
    for target in (None, 0.008):
        simulation = crowded(target)
        asked = ask(simulation)
        simulation.finish()
        for branch in simulation.ended:
            prompt, limit = asked[branch.request.id]
            assert branch.tokens[len(prompt) :] == alone(prompt, limit, True)
        found = sorted(gaps(simulation))
        longest.append(found[int(0.95 * len(found))])
    assert longest[0] > 0.02
    assert longest[1] <= 0.008


def test_who_would_make_gaps_longer_is_told_so_and_all_come_in_the_end() -> None:
    simulation = crowded(0.003)
    ask(simulation, lengths=(2, 3))
    simulation.finish()
    assert 18 <= max(len(plan.rows) for plan in simulation.plans) <= 22, "1 ms, and 0.1 ms each"
    assert max(gaps(simulation)) < 0.0035, "from the first on: nobody joins before it is known what that takes"
    assert Refusal.PACE in {reason for plan in simulation.plans for _, reason in plan.refused}
    assert len(simulation.ended) == 40


def test_a_target_that_nothing_keeps_leaves_one_at_a_time() -> None:
    simulation = crowded(1e-6)
    ask(simulation, 6)
    simulation.finish()
    assert len(simulation.ended) == 6


def test_it_is_set_and_taken_away_while_requests_run() -> None:
    simulation = crowded(None)
    ask(simulation)
    for target, least, most in ((0.0, 100, 256), (0.006, 1, 60), (0.0, 100, 256)):
        simulation.scheduler.steer(LiveBudget(256, 64, target_itl=target))
        ask(simulation, 10)
        begun = len(simulation.plans)
        for _ in range(12):
            simulation.step()
        sizes = [sum(row.count for row in plan.rows) for plan in simulation.plans[begun + 2 :]]
        assert least <= max(sizes) <= most, target
    simulation.finish()


@pytest.mark.parametrize(
    ("mode", "target", "rule"),
    [
        ("continuous", 0.02, "computes whole prompts before answers go on; use chunked"),
        ("chunked", 0, r"must be a number of seconds above 0 \(0.02 for 20 ms\)"),
        ("chunked", -1, "must be a number of seconds above 0"),
        ("chunked", float("nan"), "must be a number of seconds above 0"),
        ("chunked", "20ms", "must be a number of seconds above 0"),
    ],
)
def test_a_target_that_cannot_be_is_refused(mode: str, target: object, rule: str) -> None:
    with pytest.raises(InvalidInput, match=rf"target_itl=.*{rule}"):
        EngineConfig(mode, target_itl=target)  # type: ignore[arg-type]
