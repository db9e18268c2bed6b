"""When all objects of the process are looked at for garbage."""

import gc
import threading
import time

import pytest

from engine import Engine, SamplingParams
from engine.core import garbage


@pytest.fixture(autouse=True)
def _of_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage.Process, "engines", True)


def test_all_is_looked_at_only_while_nobody_has_steps_to_do() -> None:
    usual = gc.get_threshold()
    begun, over = threading.Event(), threading.Event()

    def step() -> None:
        garbage.put_off()
        begun.set()
        over.wait(20)
        garbage.resume()

    other = threading.Thread(target=step)
    garbage.put_off()
    assert gc.get_threshold() == (*usual[:2], garbage.SELDOM)
    other.start()
    begun.wait(20)
    garbage.resume()
    assert gc.get_threshold()[2] == garbage.SELDOM, "the other one has"
    over.set()
    other.join()
    assert gc.get_threshold() == usual
    garbage.resume()
    assert gc.get_threshold() == usual


def test_an_engine_puts_it_off_until_its_requests_are_over(demo: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    usual, own, seen = gc.get_threshold()[2], Engine.step, []

    def step(engine: Engine) -> bool:
        seen.append(gc.get_threshold()[2])
        return own(engine)

    monkeypatch.setattr(Engine, "step", step)
    demo.submit("Once upon a time", SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)).result()
    assert len(seen) > 5
    assert {*seen} == {garbage.SELDOM}
    deadline = time.monotonic() + 20
    while gc.get_threshold()[2] != usual and time.monotonic() < deadline:
        time.sleep(0.01)
    assert gc.get_threshold()[2] == usual != garbage.SELDOM
