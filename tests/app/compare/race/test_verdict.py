"""Who is said to have won a race, and how surely."""

from app.compare.race.verdict import SURE, Verdict, verdict
from engine.compare import Comparison, MeasureCell, MeasureRow
from engine.trace import MEASURES

TITLES = ("Static batch of 8", "Continuous", "Chunked")


def told(*rates: tuple[float, ...], steps: tuple[float, ...] = (), disturbed: int = -1) -> Verdict | None:
    """The verdict on lanes with these tokens a second, a number a repeat, and these steps."""
    rows = [MeasureRow(MEASURES["output_throughput"], tuple(MeasureCell(values) for values in rates))]
    if steps:
        rows.append(MeasureRow(MEASURES["steps"], tuple(MeasureCell((count,)) for count in steps)))
    lanes = range(len(rates))
    errors = tuple("" if rates[i] else "it failed" for i in lanes)
    noise = tuple("other programs used 40 % of the CPU" if i == disturbed else "" for i in lanes)
    return verdict(Comparison(tuple("abc"[: len(rates)]), tuple(rows), errors, noise), TITLES)


def test_the_quickest_is_told_against_the_first_with_its_factor_and_what_was_counted() -> None:
    found = told((100.0,), (230.0,), (180.0,), steps=(96, 41, 60))
    assert found == Verdict(
        1, "Continuous is 2.3 × as fast as Static batch of 8", "41 against 96 steps  ·  one run each"
    )


def test_a_first_lane_that_wins_is_told_against_the_next() -> None:
    found = told((300.0,), (100.0,), (200.0,))
    assert found == Verdict(0, "Static batch of 8 is 1.5 × as fast as Chunked", "one run each")


def test_what_lies_within_the_noise_has_no_winner() -> None:
    single = told((100.0,), (103.0,))
    assert single is not None
    assert (single.lane, single.words) == (None, SURE)
    assert single.reasons.startswith("1.03 × between Continuous and Static batch of 8")
    overlapping = told((90.0, 100.0, 125.0), (110.0, 120.0, 140.0))
    assert overlapping is not None
    assert overlapping.lane is None, "one run of the slower lane beat one of the quicker"


def test_repeats_apart_have_a_winner_and_their_spread() -> None:
    found = told((90.0, 100.0, 110.0), (180.0, 200.0, 220.0))
    assert found == Verdict(1, "Continuous is 2.0 × as fast as Static batch of 8", "medians of 3 runs each, ±10 %")


def test_a_busy_machine_is_told_and_a_failed_lane_wins_nothing() -> None:
    found = told((100.0,), (230.0,), disturbed=1)
    assert found is not None
    assert found.reasons.endswith("other programs ran: steps are sure, seconds are not")
    assert told((100.0,), ()) is None
