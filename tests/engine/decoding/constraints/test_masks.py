"""Many masks are found on a thread of their own, few where they are asked for; they are the same."""

import threading
from typing import Any

import numpy as np
import pytest

from engine import SamplingParams
from engine.decoding.constraints import Grammars, Masks, Matcher, allowed_bits, masks
from tests.engine.decoding.tokenizer_kinds import tokenizer

VOCABULARY = 3072
GRAMMARS = Grammars(tokenizer("demo"), VOCABULARY, [2])


def matchers_of(count: int) -> list[Matcher]:
    params = [SamplingParams(regex=f"[a-{'bdfhjlnp'[i % 8]}]{{3,}}") for i in range(count)]
    found = [GRAMMARS.matchers(p, 1)[0] for p in params]
    return [matcher for matcher in found if matcher is not None]


@pytest.mark.parametrize(("count", "apart"), [(2, False), (64, True)])
def test_who_asks_goes_on_while_many_are_found(count: int, apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    go_on = threading.Event()

    def watched(*given: Any) -> Any:
        threads.append(threading.current_thread().name)
        if apart:
            assert go_on.wait(20), "who asked does not go on"
        return allowed_bits(*given)

    monkeypatch.setattr(masks, "allowed_bits", watched)
    matchers = matchers_of(count)
    found = Masks(list(range(count)), matchers, VOCABULARY)
    go_on.set()
    expected = allowed_bits(matchers_of(count), VOCABULARY)
    assert np.array_equal(found.bits, expected)
    assert found.counts == [int(np.unpackbits(row.view(np.uint8)).sum()) for row in expected]
    assert len(threads) == 1
    assert threads[0].startswith("grammars") == apart


def test_masks_that_nobody_needs_any_more_leave_the_matchers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(20)
        return allowed_bits(*given)

    monkeypatch.setattr(masks, "allowed_bits", slow)
    found = Masks(list(range(64)), matchers_of(64), VOCABULARY)
    assert begun.wait(20)
    left = threading.Thread(target=found.leave)
    left.start()
    left.join(0.05)
    assert left.is_alive()
    go_on.set()
    left.join(20)
    assert not left.is_alive()


def test_a_row_that_has_given_up_has_no_bit() -> None:
    matchers = matchers_of(40)
    assert not matchers[3].advance(0)
    found = Masks(list(range(40)), matchers, VOCABULARY)
    assert [i for i, count in enumerate(found.counts) if not count] == [3]
    assert not found.bits[3].any()
