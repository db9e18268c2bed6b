"""The sliders of the live budget: they act on the engine that runs, and keep to what goes together."""

from dataclasses import astuple

import pytest
from pytestqt.qtbot import QtBot

from app.play.charts.live_budget import ACTS, ALONE, LiveBudgetButton, LiveBudgetSheet
from app.session.session import Session
from engine import EngineConfig, SamplingParams, Submission
from engine.config import LiveBudget
from engine.trace import Steered


@pytest.fixture
def button(qtbot: QtBot, shared: Session) -> LiveBudgetButton:
    button = LiveBudgetButton(shared)
    qtbot.addWidget(button)
    button.show()
    return button


def opened(qtbot: QtBot, button: LiveBudgetButton, session: Session, config: EngineConfig) -> LiveBudgetSheet:
    task = session.start(session.begin(config))
    qtbot.waitUntil(task.done)
    assert task.result()
    button.click()
    assert button.sheet is not None
    return button.sheet


def test_what_is_slid_holds_for_the_requests_that_run(qtbot: QtBot, button: LiveBudgetButton, shared: Session) -> None:
    sheet = opened(qtbot, button, shared, EngineConfig("chunked", max_running=8, token_budget=256))
    assert set(sheet.sliders) == {"token_budget", "prefill_share", "target_itl", "max_running"}
    assert not sheet.restore.isEnabled()
    params = SamplingParams(max_tokens=300, temperature=0, ignore_eos=True)
    sent = shared.send([Submission("A story", params) for _ in range(6)])
    qtbot.waitUntil(sent.done)
    sheet.sliders["max_running"].set_value(2)
    sheet.sliders["prefill_share"].set_value(0.25)
    sheet.sliders["target_itl"].set_value(12.5)
    trace = shared.trace
    assert trace is not None
    qtbot.waitUntil(lambda: any(isinstance(record, Steered) for record in trace.records))
    told = [record for record in trace.records if isinstance(record, Steered)]
    assert [astuple(r)[1:] for r in told] == [(256, 2, 0.25, 0.0125)], "all in one"
    assert shared.steering.budget == LiveBudget(256, 2, 0.25, 0.0125)
    assert sheet.note.text() == ACTS
    sheet.restore.click()
    qtbot.waitUntil(lambda: shared.steering.budget == LiveBudget(256, 8))
    assert [slider.value() for slider in sheet.sliders.values()] == [256, 1.0, 0.0, 8]
    shared.stop()
    qtbot.waitUntil(lambda: not trace.open)
    closing = shared.start(shared.close_file())
    qtbot.waitUntil(closing.done)


def test_a_budget_below_what_may_run_takes_that_with_it(
    qtbot: QtBot, button: LiveBudgetButton, shared: Session
) -> None:
    sheet = opened(qtbot, button, shared, EngineConfig("continuous", max_running=8, token_budget=256))
    sheet.sliders["token_budget"].set_value(3)
    assert sheet.sliders["max_running"].value() == 3
    sheet.sliders["max_running"].set_value(5)
    assert sheet.sliders["token_budget"].value() == 5
    qtbot.waitUntil(lambda: shared.steering.budget == LiveBudget(5, 5))


@pytest.mark.parametrize(("mode", "shown"), [("static", {"max_running"}), ("sequential", set())])
def test_a_mode_has_the_sliders_that_it_has_a_use_for(
    qtbot: QtBot, button: LiveBudgetButton, shared: Session, mode: str, shown: set[str]
) -> None:
    sheet = opened(qtbot, button, shared, EngineConfig(mode, max_running=4))
    assert set(sheet.sliders) == shown
    assert (sheet.note.text() == ALONE) is not shown
