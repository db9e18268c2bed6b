"""What the banner says of the engine without being asked, over the real engine process."""

import shutil
from math import inf
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

import resources
from app.bench.synthetic import synthetic_trace
from app.compare.lanes.view import LaneView
from app.compare.race.lane_show import LaneShow, LaneState
from app.compare.race.session import RaceSession
from app.session.session import Session, SessionState
from app.window.main_window import MainWindow
from engine import EngineConfig, Lane, ModelSpec, SamplingParams, Submission, Trace, save_trace
from engine.trace import RUN_SUFFIX, FinishReason, Notice
from tests.engine.core.test_faults import ILLEGAL, LOSING
from tests.engine.tiny_models import change_config

WAIT = 30_000
NARROWED = "a step of 2,048 tokens ran out of memory; prompts now go 1,024 at a time"
LONG = SamplingParams(max_tokens=400, temperature=0.8, ignore_eos=True)
POISON = Submission([5, 3000, 7], SamplingParams(max_tokens=4))


@pytest.fixture
def losing(tmp_path: Path) -> ModelSpec:
    """The demo model, whose process loses the GPU when it meets token 3000."""
    folder = tmp_path / "losing"
    shutil.copytree(resources.path("models/stories-5m"), folder)
    (folder / "losing.py").write_text(LOSING, "utf-8")
    change_config(folder, auto_map={"AutoModelForCausalLM": "losing.Losing"})
    return ModelSpec(str(folder), trust_remote_code=True)


def load(qtbot: QtBot, session: Session, spec: ModelSpec) -> None:
    with qtbot.waitSignal(session.config_changed, timeout=WAIT):
        session.start(session.load(spec, EngineConfig(max_running=8)))


def test_a_lost_gpu_starts_the_engine_again_once_with_texts_kept(
    qtbot: QtBot, window: MainWindow, losing: ModelSpec
) -> None:
    session, bridge, banner = window.session, window.bridge, window.banner
    load(qtbot, session, losing)
    pid, config = session.engine_pid, session.config
    session.send([Submission("Tell me a story about a fox.", LONG)])
    qtbot.waitUntil(lambda: any(view.tokens for view in bridge.requests.values()), timeout=WAIT)
    told: list[tuple[str, str, str]] = []
    for signal in (session.engine_restarts, session.model_loaded):
        signal.connect(lambda _: told.append((banner.property("level"), banner.title.text(), banner.text.text())))
    with qtbot.waitSignal(session.model_loaded, timeout=WAIT):
        session.send([POISON])
    (level, title, text), _ = told
    assert (level, title) == ("warning", "The engine is being started again")
    assert f"The GPU reported an unrecoverable error ({ILLEGAL})" in text
    assert "The requests that ran have ended" in text
    assert session.ready
    assert (session.spec, session.config) == (losing, config)
    assert session.engine_pid not in (None, pid)
    assert banner.title.text() == "The engine was started again"
    views = list(bridge.requests.values())
    assert views[0].text, "what was said stays on show"
    assert {view.reason for view in views} == {FinishReason.ERROR}
    with qtbot.waitSignal(session.engine_died, timeout=WAIT) as died:
        session.send([POISON])
    assert ILLEGAL in died.args[0]
    assert session.state is SessionState.DIED, "a second loss within a minute is left to the person"
    assert (banner.title.text(), banner.action.text()) == ("The engine has stopped", "Restart")
    qtbot.waitUntil(lambda: not bridge.busy and bridge.behind == 0)
    assert banner.title.text() == "The engine has stopped", "the trace's own word of it is not told beside"


def test_what_the_trace_tells_a_person_to_know_is_on_the_banner(qtbot: QtBot, window: MainWindow) -> None:
    trace = Trace(synthetic_trace(streams=4, requests=4, seconds=1))
    window.bridge.show(trace)
    qtbot.waitUntil(lambda: window.bridge.behind == 0)
    assert not window.banner.isVisible()
    trace.append(Notice(0.9, "info", "nothing to see"))
    qtbot.waitUntil(lambda: window.bridge.behind == 0)
    assert not window.banner.isVisible()
    trace.append(Notice(1.0, "warning", NARROWED))
    qtbot.waitUntil(window.banner.isVisible)
    assert (window.banner.property("level"), window.banner.title.text()) == ("warning", NARROWED.capitalize())
    trace.append(Notice(1.1, "error", "a step failed: it did"))
    qtbot.waitUntil(lambda: window.banner.property("level") == "error")
    assert window.banner.title.text() == "A step failed: it did"


def test_the_words_of_a_saved_run_stand_beside_the_way_back(qtbot: QtBot, window: MainWindow, tmp_path: Path) -> None:
    trace = Trace(synthetic_trace(streams=4, requests=4, seconds=1))
    for text in (NARROWED, "and again"):
        trace.append(Notice(0.5, "warning", text))
    path = tmp_path / f"told{RUN_SUFFIX}"
    save_trace(trace, path)
    window.open_path(path)
    qtbot.waitUntil(lambda: "and 1 more" in window.banner.text.text(), timeout=WAIT)
    assert NARROWED in window.banner.text.text()
    assert window.banner.action.text() == "Back to the engine"


def test_what_was_said_of_a_dead_engine_is_gone_while_a_race_has_its_own(qtbot: QtBot, window: MainWindow) -> None:
    window.banner.tell("error", "The engine has stopped", "")
    assert window.banner.isVisible()
    window.session.state_changed.emit(SessionState.LEASED)
    assert not window.banner.isVisible()


def test_long_words_do_not_widen_the_window(qtbot: QtBot, window: MainWindow) -> None:
    window.banner.tell("warning", "word", "")
    before = window.minimumSizeHint().width()
    window.banner.tell("warning", "word " * 200, "")
    assert window.minimumSizeHint().width() == before


def test_a_lane_of_a_race_says_what_its_trace_told(qtbot: QtBot, session: Session) -> None:
    show = LaneShow(0, Lane(), "continuous", 4)
    view = LaneView(show, RaceSession(session))
    qtbot.addWidget(view)
    trace = Trace(synthetic_trace(streams=4, requests=4, seconds=1))
    show.playback.show(trace)
    show.playback.advance(inf)
    assert not view.error.text()
    trace.append(Notice(0.5, "warning", NARROWED))
    show.playback.advance(inf)
    assert (view.error.text(), view.error.property("role")) == (NARROWED.capitalize(), "warning")
    show.finish(0, trace)
    assert view.error.text() == NARROWED.capitalize(), "it stays"
    show.set_state(LaneState.FAILED, "no room")
    assert (view.error.text(), view.error.property("role")) == ("No room", "error")
    view.close_down()
    show.scope.stop()
