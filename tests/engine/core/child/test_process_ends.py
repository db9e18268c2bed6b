"""An engine's process that is closed or unwanted is gone, and the texts are kept. Ten times: ends are races."""

import threading

import pytest

from engine import EngineProcess
from engine.jobs import LoadCancelled
from engine.trace import FinishReason
from tests.children import children
from tests.engine.core.child.ending_processes import DRAFT, SMALL, TIMES, busy, check_texts, gone

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]


def test_closing_while_requests_run_loses_no_text_and_leaves_no_process() -> None:
    for _ in range(TIMES):
        engine, over, open_ones = busy()
        engine.close()
        assert gone(engine.pid)
        check_texts(engine, over, open_ones, FinishReason.CANCELLED)
        assert engine.error == ""


def test_a_load_that_is_cancelled_leaves_no_process() -> None:
    before = children()
    for turn in range(TIMES):
        cancelled = threading.Event()
        timer = threading.Timer(0.03 * turn, cancelled.set)
        timer.start()
        try:
            EngineProcess(DRAFT, SMALL, cancelled=cancelled, threads=1).close()
        except LoadCancelled:
            assert cancelled.is_set()
        else:
            assert turn, "what was cancelled before it began"
        timer.cancel()
        timer.join()
        assert all(gone(pid) for pid in children() - before)
