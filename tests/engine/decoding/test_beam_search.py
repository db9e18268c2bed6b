"""Beam search against plain enumerations of everything that a toy model can say."""

from collections.abc import Callable
from itertools import count, product
from math import log
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.decoding.beams import BeamSearch, Path, Weighed
from engine.decoding.beams.path import common
from engine.trace import Fate

END = 0
Tokens = tuple[int, ...]
Model = Callable[[Tokens], list[float]]  # the log-probabilities of all tokens after these


def toy(seed: int, vocabulary: int) -> Model:
    """A model whose distributions are a function of what was said."""

    def after(said: Tokens) -> list[float]:
        weights = [w**3 + 1e-3 for w in map(Random(f"{seed} {said}").uniform, [0.0] * vocabulary, [1.0] * vocabulary)]
        return [log(w / sum(weights)) for w in weights]

    return after


def searched(search: BeamSearch, model: Model, seen: Callable[[list[Weighed]], None] = lambda weighed: None) -> None:
    for _ in count():
        if search.over:
            return
        ranked = {}
        for place, path in search.live.items():
            after = model(tuple(path.tokens))
            ranked[place] = tuple(sorted(enumerate(after), key=lambda one: -one[1]))
        seen(search.advance(ranked))


def search_of(width: int, penalty: float, stopping: bool | str, limit: int) -> BeamSearch:
    return BeamSearch(width, penalty, stopping, limit, lambda path: path.token == END or path.length == limit)


def plain(model: Model, width: int, penalty: float, stopping: bool | str, limit: int) -> list[tuple[Tokens, float]]:
    """The rules of transformers' `_beam_search` written out over lists of tokens, for one prompt."""
    running: list[tuple[float, Tokens]] = [(0.0, ())]
    pool: list[tuple[float, Tokens]] = []
    for length in range(1, limit + 1):
        joined = [(total + p, (*said, t)) for total, said in running for t, p in enumerate(model(said))]
        best = sorted(joined, key=lambda one: -one[0])[: 2 * width]
        ended = [said[-1] == END or length == limit for _, said in best]
        fresh = [(total / length**penalty, said) for (total, said), ends in zip(best[:width], ended) if ends]
        pool = sorted(pool + fresh, key=lambda one: -one[0])[:width]
        running = [one for one, ends in zip(best, ended) if not ends][:width]
        if not running:
            break
        if len(pool) == width:
            reach = limit if stopping == "never" and penalty > 0 else length
            if stopping is True or running[0][0] / reach**penalty <= pool[-1][0]:
                break
    return [(said, score) for score, said in pool]


rules = st.tuples(
    st.integers(2, 5), st.sampled_from([-1.0, 0.0, 0.7, 1.0, 2.0]), st.sampled_from([True, False, "never"])
)


@settings(max_examples=200)
@given(st.integers(0, 10_000), rules, st.integers(1, 9))
def test_sequences_and_scores_are_those_of_the_rules_written_out(
    seed: int, rule: tuple[int, float, bool | str], limit: int
) -> None:
    model, search = toy(seed, 11), search_of(*rule, limit)
    said: list[list[int]] = []

    def seen(weighed: list[Weighed]) -> None:
        assert [one.path.total for one in weighed] == sorted((one.path.total for one in weighed), reverse=True)
        going = {one.place: one.path for one in weighed if one.fate is Fate.LIVE}
        assert search.live == going
        assert all(0 <= place < search.width for place in going)
        said.append(search.certain.tokens)

    searched(search, model, seen)
    expected = plain(model, *rule, limit)
    assert [(tuple(path.tokens), pytest.approx(search.score(path))) for path in search.best()] == expected
    for certain in said:
        assert all(path.tokens[: len(certain)] == certain for path in search.best()), "what is certain stays so"


@pytest.mark.parametrize("seed", range(5))
def test_a_search_that_prunes_nothing_finds_the_best_of_all_texts(seed: int) -> None:
    vocabulary, limit = 4, 3
    model, search = toy(seed, vocabulary), search_of(vocabulary**limit, 1.0, "never", limit)
    searched(search, model)
    texts = {t[: t.index(END) + 1] if END in t else t for t in product(range(vocabulary), repeat=limit)}
    scored = {text: sum(model(text[:i])[text[i]] for i in range(len(text))) / len(text) for text in texts}
    best = sorted(scored, key=lambda text: -scored[text])[: len(search.best())]
    assert [tuple(path.tokens) for path in search.best()] == best
    assert len(best) == len(texts)


def test_the_best_child_stays_in_its_parents_place() -> None:
    search = search_of(2, 1.0, False, 5)
    search.advance({0: ((1, -0.1), (2, -0.2), (3, -3.0), (4, -4.0))})
    assert {place: path.token for place, path in search.live.items()} == {0: 1, 1: 2}
    search.advance({0: ((5, -5.0), (6, -6.0)), 1: ((7, -0.1), (8, -0.2))})
    assert {place: path.tokens for place, path in search.live.items()} == {1: [2, 7], 0: [2, 8]}
    assert search.certain.tokens == [2]


def test_what_stands_before_the_end_is_told_best_first() -> None:
    search = search_of(2, 0.0, False, 5)
    search.advance({0: ((1, -0.1), (END, -0.2), (3, -3.0), (4, -4.0))})
    assert [(path.tokens, path.total) for path in search.best()] == [([1], -0.1), ([END], -0.2)]
    assert not search.over


def test_the_common_beginning_of_paths_of_any_lengths() -> None:
    stem = Path(Path(Path(), 1), 2)
    leaves = [Path(stem, 3), Path(Path(Path(stem, 4), 5), 6), stem]
    assert common(leaves[:2]) is stem
    assert common(leaves) is stem
    assert common([leaves[0]]) is leaves[0]
