"""A target for the gaps between tokens is chosen in words, in a form and while requests run, and is shown where it
acts."""

import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from app.play.charts.metrics import all_metrics
from app.play.charts.series import ChartSeries
from app.play.setup.run import batching_facts
from app.refusals import refusals
from app.ui.forms.config_form import ConfigForm
from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Submission
from engine.compare import lane_name, parse_lane
from engine.trace import Refusal, TallyIndex, Trace, measure

LONG = SamplingParams(max_tokens=24, temperature=0, ignore_eos=True)
TARGET = 0.001  # seconds, in which hardly two of these fit anywhere


def crowd() -> list[Submission]:
    return [Submission([5 + n] * (40 * n + 1), LONG) for n in range(8)]


@pytest.fixture(scope="module")
def trace() -> Trace:
    said = []
    with Engine(ModelSpec("demo"), threads=1) as engine:
        for target, depth in ((None, 0), (TARGET, 0), (TARGET, 1)):
            found = engine.begin(EngineConfig("chunked", 8, 512, target_itl=target, depth=depth))
            said.append([list(stream.result(60).token_ids) for stream in engine.submit_many(crowd())])
        engine.steer(target_itl=0.5)
        engine.submit([3] * 9, LONG).result(60)
    assert said[0] == said[1] == said[2], "whatever a step takes in"
    return found


def test_it_is_chosen_in_words_and_in_the_form(qtbot: QtBot) -> None:
    lane = parse_lane("chunked:8:itl=0.0125")
    assert lane.config == EngineConfig("chunked", 8, target_itl=0.0125)
    assert lane_name(lane) == "chunked · 8 · ITL ≤ 0.0125 s"
    form = ConfigForm("test")
    qtbot.addWidget(form)
    form.set_config(lane.config)
    target = form["target_itl"]
    assert target.control.text() == "12.50 ms"  # type: ignore[union-attr]
    assert form.config(EngineConfig()) == lane.config
    form["mode"].set("continuous")
    assert form.config(EngineConfig()).target_itl is None
    form["mode"].set("chunked")
    target.set(None)
    assert target.control.text() == "none"  # type: ignore[union-attr]
    assert form.config(EngineConfig()).target_itl is None


def test_who_waits_for_it_is_told_so(trace: Trace) -> None:
    told = {
        words.why
        for step in trace.steps
        if Refusal.PACE in step.refused_reason
        for _, words in refusals(step, trace.header)
    }
    assert told == {"with more in a step, gaps would be longer than the target"}


def test_the_chart_of_gaps_shows_what_was_aimed_at_and_the_measures_what_was_kept(trace: Trace) -> None:
    series, tally = ChartSeries(), TallyIndex()
    tally.feed(trace.records)
    series.feed(list(trace.records), tally)
    itl = next(metric for metric in all_metrics() if metric.name == "itl")
    _, (low, high) = itl.drawing(series).lines
    assert low[0] == high[0] == np.float32(TARGET)
    assert high[-1] == 0.5
    kept = measure(trace).gaps_within
    assert kept is not None
    assert 0 <= kept < 1
    assert itl.last(measure(trace))[0] == f"ITL  p50 · {100 * kept:.0f} % in time"  # type: ignore[index]
    assert ("target_itl", "Target ITL", "1.00 ms") in batching_facts(trace.header)  # type: ignore[arg-type]
