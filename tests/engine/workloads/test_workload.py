"""Workloads as such: lengths and times drawn from a seed, texts of an exact length."""

import math
import statistics
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from engine import InvalidInput, SamplingParams, Workload
from engine.workloads import Arrival
from engine.workloads.distributions import Lengths, Times, read_lengths
from engine.workloads.recipes import cook, read_recipe
from engine.workloads.texts import asks, text_of
from engine.workloads.tokens import TokenCounter, counter_for

SEEDS = st.integers(0, 2**32)
RATES = st.floats(0.1, 1000)


@pytest.fixture(scope="module")
def demo_counter() -> TokenCounter:
    return counter_for()


# Times.


@settings(deadline=None)
@given(count=st.integers(1, 200), seed=SEEDS, start=st.floats(0, 100))
def test_all_at_once_is_one_moment(count: int, seed: int, start: float) -> None:
    assert Times(start=start).draw(count, Random(seed)) == [start] * count


@settings(deadline=None)
@given(count=st.integers(1, 200), rate=RATES)
def test_constant_arrivals_are_one_over_the_rate_apart(count: int, rate: float) -> None:
    times = Times("constant", rate).draw(count, Random(0))
    assert times[0] == 0
    assert [b - a for a, b in pairwise(times)] == pytest.approx([1 / rate] * (count - 1))


@settings(deadline=None)
@given(
    kind=st.sampled_from(["poisson", "gamma"]),
    count=st.integers(1, 200),
    rate=RATES,
    burstiness=st.floats(0.1, 10),
    seed=SEEDS,
    start=st.floats(0, 100),
)
def test_random_arrivals_begin_at_the_start_never_fall_and_are_fixed_by_the_seed(
    kind: str, count: int, rate: float, burstiness: float, seed: int, start: float
) -> None:
    times = Times(kind, rate, burstiness if kind == "gamma" else 1.0, start)
    drawn = times.draw(count, Random(seed))
    assert len(drawn) == count
    assert drawn[0] == start
    assert drawn == sorted(drawn)
    assert drawn == times.draw(count, Random(seed))
    assert drawn[: count // 2] == times.draw(count // 2, Random(seed))


@pytest.mark.parametrize("burstiness", [0.25, 0.5, 1.0, 4.0])
def test_gaps_have_the_mean_of_the_rate_and_the_spread_of_the_burstiness(burstiness: float) -> None:
    # A gamma of shape k and mean m has the deviation m / sqrt(k).
    times = Times("gamma", 5.0, burstiness).draw(20_000, Random(3))
    gaps = [b - a for a, b in pairwise(times)]
    assert statistics.fmean(gaps) == pytest.approx(0.2, rel=0.06)
    assert statistics.stdev(gaps) == pytest.approx(0.2 / math.sqrt(burstiness), rel=0.08)


def test_poisson_is_gamma_of_burstiness_one() -> None:
    assert Times("poisson", 3.0).draw(50, Random(1)) == Times("gamma", 3.0, 1.0).draw(50, Random(1))


def test_poisson_arrivals_vary_as_much_as_they_are_many() -> None:
    times = Times("poisson", 10.0).draw(20_000, Random(5))
    seconds = [0] * (int(times[-1]) + 1)
    for time in times:
        seconds[int(time)] += 1
    assert statistics.fmean(seconds[:-1]) == pytest.approx(10, rel=0.05)
    assert statistics.variance(seconds[:-1]) == pytest.approx(10, rel=0.15)


def test_the_arrivals_of_a_seed_are_the_same_on_every_machine() -> None:
    times = Times("gamma", 4.0, 0.5).draw(4, Random("0/0/times"))
    assert times == pytest.approx([0.0, 0.21427, 0.28966, 0.50352], abs=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "often"}, "arrivals='often': must be one of at once, constant, poisson, gamma"),
        ({"kind": "poisson", "rate": -3}, "rate=-3: must be above 0 requests a second"),
        ({"kind": "poisson", "rate": math.nan}, "rate=nan: must be above 0"),
        ({"kind": "poisson", "rate": "4"}, "rate='4': must be above 0"),
        ({"kind": "poisson"}, 'rate: arrivals="poisson" needs one'),
        ({"kind": "gamma", "rate": 1, "burstiness": 0}, "burstiness=0: must be above 0"),
        ({"kind": "poisson", "rate": 1, "burstiness": 2.0}, 'means something only with arrivals="gamma"'),
        ({"start": -1}, "start=-1: must be from 0"),
    ],
)
def test_times_that_cannot_be_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Times(**given)  # type: ignore[arg-type]
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        (Times(), (None, 4.0, None), Times("poisson", 4.0)),
        (Times(), (None, 4.0, 0.5), Times("gamma", 4.0, 0.5)),
        (Times(), ("constant", 4.0, None), Times("constant", 4.0)),
        (Times("constant", 2.0), (None, 4.0, None), Times("constant", 4.0)),
        (Times("poisson", 2.0, start=1.0), (None, math.inf, None), Times(start=1.0)),
        (Times("gamma", 2.0, 0.5), ("poisson", None, None), Times("poisson", 2.0)),
        (Times("gamma", 2.0, 0.5), (None, 3.0, None), Times("gamma", 3.0, 0.5)),
        (Times("poisson", 2.0), ("at once", None, None), Times()),
        (Times("poisson", 2.0), (None, None, None), Times("poisson", 2.0)),
    ],
)
def test_a_rate_or_a_burstiness_alone_says_how_requests_come(
    before: Times, change: tuple[str | None, float | None, float | None], after: Times
) -> None:
    assert before.with_(*change) == after


# Lengths.


@settings(deadline=None)
@given(n=st.integers(1, 5000), seed=SEEDS)
def test_a_fixed_length_is_always_the_same(n: int, seed: int) -> None:
    assert read_lengths("tokens", n).draw(Random(seed)) == n


@settings(deadline=None)
@given(mean=st.integers(1, 2000), spread=st.floats(0, 1), seed=SEEDS)
def test_uniform_lengths_stay_within_their_spread(mean: int, spread: float, seed: int) -> None:
    lengths = read_lengths("tokens", {"uniform": {"mean": mean, "spread": spread}})
    drawn = [lengths.draw(Random(seed + i)) for i in range(20)]
    assert all(max(1, math.floor(mean * (1 - spread))) <= n <= math.ceil(mean * (1 + spread)) for n in drawn)


def test_uniform_lengths_reach_both_ends_and_average_in_the_middle() -> None:
    rng, lengths = Random(1), Lengths("uniform", 100, 0.2)
    drawn = [lengths.draw(rng) for _ in range(5000)]
    assert (min(drawn), max(drawn)) == (80, 120)
    assert statistics.fmean(drawn) == pytest.approx(100, rel=0.01)


@settings(deadline=None)
@given(median=st.integers(1, 500), sigma=st.floats(0, 10), least=st.integers(1, 100), more=st.integers(0, 500))
def test_lognormal_lengths_are_clipped(median: int, sigma: float, least: int, more: int) -> None:
    table = {"lognormal": {"median": median, "sigma": sigma, "min": least, "max": least + more}}
    lengths, rng = read_lengths("tokens", table), Random(0)
    assert all(least <= lengths.draw(rng) <= least + more for _ in range(20))


def test_lognormal_lengths_have_their_median_and_a_heavy_tail() -> None:
    rng, lengths = Random(2), Lengths("lognormal", 40, 1.0, 1, 100_000)
    drawn = [lengths.draw(rng) for _ in range(10_000)]
    assert statistics.median(drawn) == pytest.approx(40, rel=0.05)
    assert statistics.fmean(drawn) == pytest.approx(40 * math.exp(0.5), rel=0.08)
    assert statistics.stdev([math.log(n) for n in drawn]) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0, "tokens=0: must be a whole number from 1"),
        (2.5, "tokens=2.5: must be a whole number from 1"),
        (True, "tokens=True: must be a whole number"),
        ("long", "tokens='long': must be a whole number"),
        ({}, "tokens={}: give a number of tokens, {uniform = {mean = 64"),
        ({"normal": {}}, "give a number of tokens"),
        ({"uniform": 64}, "give a number of tokens"),
        ({"uniform": {"mean": 64}}, "tokens.spread=None: must be from 0 to 1"),
        ({"uniform": {"mean": 64, "spread": 1.5}}, "tokens.spread=1.5: must be from 0 to 1"),
        ({"uniform": {"mean": 64, "spred": 1}}, "tokens.uniform: unknown key 'spred'; use mean, spread"),
        ({"lognormal": {"median": 4, "sigma": -1, "max": 9}}, "tokens.sigma=-1: must be from 0"),
        ({"lognormal": {"median": 4, "sigma": 1}}, "tokens.max=None: must be a whole number"),
        ({"lognormal": {"median": 4, "sigma": 1, "min": 9, "max": 8}}, "tokens.max=8: must be a whole number from 9"),
    ],
)
def test_lengths_that_cannot_be_are_refused(value: object, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_lengths("tokens", value)
    assert message in str(caught.value)


# Texts.


@settings(deadline=None)
@given(tokens=st.integers(1, 300), seed=SEEDS, asked=st.booleans())
def test_a_text_has_exactly_the_tokens_that_were_wanted(
    demo_counter: TokenCounter, tokens: int, seed: int, asked: bool
) -> None:
    for counter in (demo_counter, TokenCounter()):
        text = text_of(tokens, counter, Random(seed), asks(1, seed)[0] if asked else "")
        assert counter.count(text) == tokens
        assert text == text.strip()


def test_a_text_begins_with_its_opening_and_ends_with_a_sentence(demo_counter: TokenCounter) -> None:
    opening = asks(1, 0)[0]
    whole_sentences = 0
    for tokens in range(demo_counter.count(opening), 200):
        text = text_of(tokens, demo_counter, Random(tokens), opening)
        assert text.startswith(opening)
        whole_sentences += text[-1] in '.!?"'
    assert whole_sentences > 180


def test_a_text_shorter_than_its_opening_is_the_beginning_of_that(demo_counter: TokenCounter) -> None:
    assert text_of(4, demo_counter, Random(0), asks(1, 0)[0]) == "Tell me a story"


def test_asks_are_all_different_and_fixed_by_the_seed() -> None:
    assert len(set(asks(500, 1))) == 500
    assert asks(500, 1) == asks(500, 1) != asks(500, 2)


def test_without_a_tokenizer_words_and_signs_are_counted() -> None:
    counter = TokenCounter()
    assert not counter.exact
    assert counter.count('"I want it," said the fox.') == 10


# Workloads.


def test_arrivals_are_put_in_order_of_time() -> None:
    late, soon, also = Arrival(2.0, "late"), Arrival(1.0, "soon"), Arrival(1.0, "also")
    assert Workload("w", (late, soon, also)).arrivals == (soon, also, late)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5])
def test_a_limit_that_lets_nothing_through_is_refused(limit: int) -> None:
    with pytest.raises(InvalidInput, match=r"concurrency=.*must be a whole number of at least 1"):
        Workload("w", (), limit)


@pytest.mark.parametrize("time", [-1.0, math.nan, math.inf])
def test_a_time_that_never_comes_is_refused(time: float) -> None:
    with pytest.raises(InvalidInput, match=r"time=.*at least 0"):
        Arrival(time, "a fox")


def test_other_sampling_keeps_prompts_and_times() -> None:
    workload = Workload("w", (Arrival(0.0, "a"), Arrival(1.0, "b", label="x")), 3, "says", "W")
    params = SamplingParams(max_tokens=3)
    changed = workload.with_params(params)
    assert [(a.time, a.prompt, a.label) for a in changed.arrivals] == [(0.0, "a", ""), (1.0, "b", "x")]
    assert {a.params for a in changed.arrivals} == {params}
    assert (changed.concurrency, changed.description, changed.title) == (3, "says", "W")


RECIPE = """
[[requests]]
label = "few"
count = 5
arrivals = "gamma"
rate = 4
burstiness = 0.5
prompt_tokens = { uniform = { mean = 40, spread = 0.5 } }
output_tokens = { lognormal = { median = 10, sigma = 1, max = 50 } }

[[requests]]
label = "one"
count = 1
start = 0.5
prompt_tokens = 100
output_tokens = 7
"""


@pytest.fixture
def recipe_path(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(RECIPE)
    return path


def test_a_recipe_gives_the_same_workload_every_time_and_another_with_another_seed(
    recipe_path: Path, demo_counter: TokenCounter
) -> None:
    recipe = read_recipe(recipe_path)
    workload = cook(recipe, demo_counter)
    assert workload == cook(recipe, demo_counter)
    assert workload.name == "mine"
    assert not workload.estimated
    (one,) = [a for a in workload.arrivals if a.label == "one"]
    assert (one.time, one.params) == (0.5, SamplingParams(max_tokens=7, temperature=0, ignore_eos=True))
    assert isinstance(one.prompt, list)
    assert isinstance(one.prompt[0], dict)
    assert demo_counter.count(one.prompt[0]["content"]) == 100


def test_a_change_of_lengths_leaves_times_and_other_groups_as_they_are(
    recipe_path: Path, demo_counter: TokenCounter
) -> None:
    before = cook(read_recipe(recipe_path), demo_counter)
    recipe_path.write_text(RECIPE.replace("median = 10", "median = 12"))
    after = cook(read_recipe(recipe_path), demo_counter)
    assert [(a.time, a.prompt, a.label) for a in before.arrivals] == [
        (a.time, a.prompt, a.label) for a in after.arrivals
    ]
    assert [a.params for a in before.arrivals] != [a.params for a in after.arrivals]


def test_a_model_without_a_chat_template_gets_plain_text(recipe_path: Path) -> None:
    workload = cook(read_recipe(recipe_path), TokenCounter(chat=False))
    assert workload.estimated
    assert all(isinstance(a.prompt, str) for a in workload.arrivals)


def test_a_tokenizer_that_knows_no_word_is_refused_and_looked_for_no_longer() -> None:
    tokenizer = Tokenizer(models.BPE({f"w{i}": i for i in range(9)}, []))
    with pytest.raises(InvalidInput, match="makes no tokens of words: give prompts as token ids"):
        text_of(20, TokenCounter(tokenizer), Random(0))
