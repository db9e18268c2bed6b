"""Garbage that Qt has a part in is collected by the thread that Qt is of."""

import gc
import threading
import weakref

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from app.ui.garbage import Collector, collected_here


class Circle(QObject):
    """Garbage as soon as nobody has it."""

    def __init__(self) -> None:
        super().__init__()
        self.own = self


def make_garbage(circles: int = 100_000) -> None:
    for _ in range(circles):
        circle: list[object] = []
        circle.append(circle)


def left_to_others(found: list[threading.Thread]) -> None:
    """A circle whose end is told in `found`, while another thread makes more garbage."""
    gc.collect()
    weakref.finalize(Circle(), lambda: found.append(threading.current_thread()))
    other = threading.Thread(target=make_garbage)
    other.start()
    other.join()


def test_what_other_threads_make_collects_nothing_of_the_windows(qtbot: QtBot) -> None:
    found: list[threading.Thread] = []
    with collected_here():
        left_to_others(found)
        assert found == []
        qtbot.waitUntil(lambda: bool(found))
    assert found == [threading.main_thread()]


def test_python_would_collect_it_on_any_thread_and_does_so_again_at_the_end() -> None:
    before = gc.isenabled()
    gc.enable()
    try:
        with collected_here():
            assert not gc.isenabled()
            with collected_here():
                pass
            assert not gc.isenabled(), "the outer one goes on"
        assert gc.isenabled()
        found: list[threading.Thread] = []
        left_to_others(found)
        assert threading.main_thread() not in found
        assert len(found) == 1
    finally:
        if not before:
            gc.disable()


def test_a_long_collection_is_followed_by_a_long_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    now, taken = 0.0, list[int]()

    def collect(age: int = 2) -> None:
        nonlocal now
        taken.append(age)
        now += 0.1 * (age == 2)

    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr(gc, "collect", collect)
    monkeypatch.setattr(gc, "get_threshold", lambda: (700, 10, 10))
    counts = [(700, 10, 10), (701, 10, 10), (701, 11, 0), (0, 0, 11), (0, 0, 11), (0, 0, 11)]
    collector = Collector()
    for place, count in enumerate(counts):
        now += 10.0 * (place == len(counts) - 1)
        monkeypatch.setattr(gc, "get_count", lambda count=count: count)
        collector.collect()
    assert taken == [0, 1, 2, 1, 2]
