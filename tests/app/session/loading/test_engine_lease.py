"""The session's engine lent out and taken back, over the real engine process and the demo model."""

import os
import signal
from collections.abc import Callable
from types import SimpleNamespace

import psutil
import pytest
from pytestqt.qtbot import QtBot

from app.session.loading.engine_lease import EngineLease
from app.session.session import LEASED_WORDS, MEASURED_WORDS, Session, SessionState
from app.window.main_window import MODELS, MainWindow
from engine import EngineConfig, InvalidInput, ModelSpec, SamplingParams, Submission
from engine.jobs import LoadCancelled

WAIT = 30_000
DEMO, OTHER = ModelSpec("demo"), ModelSpec("demo-draft")
SHORT = Submission("Once upon a time", SamplingParams(max_tokens=8, temperature=0))


def lend(qtbot: QtBot, session: Session) -> EngineLease:
    task = session.start(session.lease())
    qtbot.waitUntil(task.done, timeout=WAIT)
    return task.result()


def off_thread(qtbot: QtBot, session: Session, work: Callable[[], object]) -> object:
    task = session.start(session.off_thread(work))
    qtbot.waitUntil(task.done, timeout=WAIT)
    return task.result()


def take_back(qtbot: QtBot, session: Session) -> None:
    task = session.start(session.take_back())
    qtbot.waitUntil(task.done, timeout=WAIT)
    task.result()


def test_a_lent_engine_is_refused_to_others_and_comes_back_with_its_config(qtbot: QtBot, doomed: Session) -> None:
    pid, before = doomed.engine_pid, doomed.trace
    lease = lend(qtbot, doomed)
    assert doomed.state is SessionState.LEASED
    with qtbot.waitSignal(doomed.submit_failed) as failed:
        doomed.send([SHORT])
    assert failed.args == [LEASED_WORDS]
    with qtbot.waitSignal(doomed.load_failed):
        doomed.start(doomed.load(DEMO))
    with qtbot.waitSignal(doomed.notice_raised):
        doomed.start(doomed.unload())
    second = doomed.start(doomed.lease())
    qtbot.waitUntil(second.done)
    assert isinstance(second.exception(), InvalidInput)
    engine = off_thread(qtbot, doomed, lambda: lease.open(DEMO, EngineConfig(max_running=2)))
    off_thread(qtbot, doomed, lambda: engine.begin(EngineConfig(max_running=2)))  # type: ignore[attr-defined]
    assert doomed.trace is before, "what Play shows stays"
    take_back(qtbot, doomed)
    assert doomed.engine_pid == pid, "the same model is not loaded again"
    assert doomed.state is SessionState.READY
    assert doomed.trace is not None
    assert doomed.trace.header.config.max_running == 8
    assert len(doomed.trace.records) >= 1
    with pytest.raises(LoadCancelled):
        lease.open(DEMO, EngineConfig())


def test_another_model_takes_the_engines_place_and_the_first_comes_back(qtbot: QtBot, doomed: Session) -> None:
    pid = doomed.engine_pid
    lease = lend(qtbot, doomed)
    engine = off_thread(qtbot, doomed, lambda: lease.open(OTHER, EngineConfig()))
    assert pid is not None
    assert not psutil.pid_exists(pid), "never two models in memory"
    assert engine.card.source == "demo-draft"  # type: ignore[attr-defined]
    take_back(qtbot, doomed)
    assert doomed.state is SessionState.READY
    assert doomed.card is not None
    assert doomed.card.source == "demo"


def test_an_engine_that_died_on_loan_is_replaced_by_a_fresh_one(qtbot: QtBot, doomed: Session) -> None:
    lease = lend(qtbot, doomed)
    os.kill(doomed.engine_pid or 0, signal.SIGKILL)
    qtbot.waitUntil(lambda: not lease.engine.alive, timeout=WAIT)
    assert doomed.state is SessionState.LEASED
    engine = off_thread(qtbot, doomed, lambda: lease.open(DEMO, EngineConfig()))
    assert engine.alive  # type: ignore[attr-defined]
    take_back(qtbot, doomed)
    assert doomed.ready


def test_an_empty_session_is_empty_again(qtbot: QtBot, session: Session) -> None:
    lease = lend(qtbot, session)
    off_thread(qtbot, session, lambda: lease.open(OTHER, EngineConfig()))
    take_back(qtbot, session)
    assert session.state is SessionState.EMPTY
    assert session.engine_pid is None


def test_nothing_is_lent_while_requests_run(qtbot: QtBot, session: Session) -> None:
    session.requests = SimpleNamespace(running=True)
    task = session.start(session.lease())
    qtbot.waitUntil(task.done)
    assert "Stop them first" in str(task.exception())
    assert session.state is SessionState.EMPTY


def test_nothing_is_lent_while_quality_is_measured(qtbot: QtBot, window: MainWindow) -> None:
    window.show_page(MODELS)
    assert window.models is not None
    page, session, quality = window.models, window.session, window.models.quality
    qtbot.waitUntil(lambda: page.subject is not None and page.subject.info is not None, timeout=WAIT)
    quality.compare_action.trigger()
    qtbot.waitUntil(lambda: quality.panel.quality.subject is not None, timeout=WAIT)
    quality.panel.begin.click()
    assert quality.measuring.running
    task = session.start(session.lease())
    qtbot.waitUntil(task.done)
    assert str(task.exception()) == MEASURED_WORDS
    quality.measuring.cancel()
    qtbot.waitUntil(lambda: not quality.measuring.running, timeout=WAIT)
    lend(qtbot, session)
    take_back(qtbot, session)


def test_a_session_that_closes_ends_the_engine_on_loan(qtbot: QtBot, doomed: Session) -> None:
    lease = lend(qtbot, doomed)
    pid = doomed.engine_pid
    closing = doomed.start(doomed.close())
    qtbot.waitUntil(closing.done, timeout=WAIT)
    assert lease.cancelled.is_set()
    assert pid is not None
    assert not psutil.pid_exists(pid)
