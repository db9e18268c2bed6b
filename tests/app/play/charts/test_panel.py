from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt

from app.bench.synthetic import synthetic_trace
from app.play.charts.panel import LiveCharts
from app.play.streams.wall import StreamWall
from app.ui.look import theme
from engine import Trace, measure
from engine.trace import Telemetry


def figure(charts: LiveCharts, name: str) -> tuple[str, str]:
    return next(c for c in charts.charts if c.measure.name == name)._said[0]


def test_every_chart_has_a_figure_once_there_is_something_to_say(qtbot, bridge, charts) -> None:
    assert figure(charts, "throughput") == ("", "")
    bridge.show(Trace(synthetic_trace(streams=16, tokens_per_second=800, seconds=5, faults=0)))
    qtbot.waitUntil(lambda: bridge.behind == 0)
    charts.refresh()
    number, unit = figure(charts, "throughput")
    assert 600 < float(number.replace(",", "")) < 1000
    assert unit == "tok/s"
    assert figure(charts, "ttft")[1] in ("ms", "s")
    assert figure(charts, "itl")[1] == "ms"
    last = bridge.trace.steps[-1]
    assert figure(charts, "requests")[0] == f"{last.running} · {last.waiting}"
    assert figure(charts, "blocks")[1].startswith("of ")
    assert figure(charts, "cpu")[0].endswith("%")


def test_header_and_chart_tell_one_rate_and_nothing_when_all_is_over(qtbot, bridge, charts, tell, story) -> None:
    wall = StreamWall(bridge)
    qtbot.addWidget(wall)
    tell([story.submitted(1)] + [story.step({1: "a"}) for _ in range(20)])
    qtbot.waitUntil(lambda: bridge.live_rate == pytest.approx(10))
    charts.refresh()
    wall._tell_figures()
    assert figure(charts, "throughput") == ("10", "tok/s")
    assert wall.figures.text().startswith("10 tok/s")
    tell([story.ended(1), Telemetry(2.1, 5.0, 1 << 30, 8 << 30)])
    qtbot.waitUntil(lambda: bridge.live_rate == 0.0)


def test_an_axis_reaches_as_far_as_its_figure(qtbot, bridge, charts, tell, story) -> None:
    chart, all_of = next(c for c in charts.charts if c.measure.name == "throughput"), range(1, 9)
    tell([*(story.submitted(r) for r in all_of), *(story.step(dict.fromkeys(all_of, "a")) for _ in range(2))])
    qtbot.waitUntil(lambda: bridge.live_rate > 0)
    for run in (None, replace(measure(bridge.trace), output_throughput=4174.0)):
        charts._look()
        chart.run = run
        chart.refresh(charts.span())
        assert float(chart._said[0][0].replace(",", "")) <= chart.top
    assert chart._said[0][0] == "4,174"


def test_the_gpu_has_a_chart_only_where_there_is_one(qtbot, bridge, charts, tell) -> None:
    gpu = next(c for c in charts.charts if c.measure.name == "gpu")
    assert gpu.isHidden()
    tell([Telemetry(1.0, 50.0, 1 << 30, 8 << 30, gpu_percent=97.0, gpu_memory=71 << 30, gpu_memory_total=140 << 30)])
    qtbot.waitUntil(lambda: not gpu.isHidden())
    charts.refresh()
    assert figure(charts, "gpu") == ("97 %", "71 GB")


def test_the_same_seconds_are_in_sight_everywhere(qtbot, bridge, charts) -> None:
    bridge.show(Trace(synthetic_trace(streams=4, tokens_per_second=40, seconds=90, faults=0)))
    qtbot.waitUntil(lambda: bridge.behind == 0)
    now = charts.series.worked
    assert charts.span() == (pytest.approx(now - 60), now)
    qtbot.mouseClick(charts.span_button, Qt.MouseButton.LeftButton)
    assert charts.span() == (0.0, now)
    charts.refresh()
    assert {c.span for c in charts.charts} == {(0.0, now)}
    assert charts.span_button.text().startswith("all ")


def test_figures_of_the_past_are_those_of_that_moment(qtbot, bridge, charts) -> None:
    bridge.show(Trace(synthetic_trace(streams=16, tokens_per_second=800, seconds=3, faults=0)))
    qtbot.waitUntil(lambda: bridge.behind == 0)
    for step in bridge.trace.steps[::17]:
        bridge.scope.seek(step.ended)
        charts.refresh()
        then = bridge.tally.at(step.ended)
        assert figure(charts, "requests")[0] == f"{then.running} · {then.waiting}"
        assert figure(charts, "blocks")[0] == f"{charts.series.blocks - step.free_blocks:,}"


def test_charts_stand_still_where_the_last_run_ended(qtbot, bridge, charts, tell, story) -> None:
    tell([story.submitted(1), *(story.step({1: "a"}) for _ in range(20)), story.ended(1)])
    ended = charts.series.worked
    tell([Telemetry(ended + 200.0, 5.0, 1 << 30, 8 << 30)])
    assert charts.span() == (0.0, max(ended, 10.0))
    tell([story.submitted(2)])
    assert charts.span()[1] == pytest.approx(ended + 200.0)


def test_the_pointer_draws_one_hairline_through_all_charts(qtbot, bridge, charts) -> None:
    bridge.show(Trace(synthetic_trace(streams=4, tokens_per_second=100, seconds=5, faults=0)))
    qtbot.waitUntil(lambda: bridge.behind == 0)
    charts.refresh()
    chart = charts.charts[0]
    qtbot.mouseMove(chart, QPoint(60, 40))
    assert {c.hair for c in charts.charts} == {60 / chart.area().width()}
    assert charts.span_button.text().endswith("ago")
    chart.hovered.emit(-1.0)
    assert charts.span_button.text() == "last 60 s"


def test_the_tooltip_tells_the_formula_and_p99(qtbot, bridge, charts) -> None:
    bridge.show(Trace(synthetic_trace(streams=4, tokens_per_second=100, seconds=5, faults=0)))
    qtbot.waitUntil(lambda: bridge.behind == 0)
    charts.refresh()
    tips = {c.measure.name: c.tip(QPointF()) for c in charts.charts}
    assert "first token − submit" in tips["ttft"]
    assert all(f"p{q}" in tips["itl"] for q in (50, 95, 99))


def test_lines_are_painted_in_the_metrics_colour(qtbot, bridge, charts) -> None:
    bridge.show(Trace(synthetic_trace(streams=8, tokens_per_second=300, seconds=8, faults=0)))
    qtbot.waitUntil(lambda: bridge.behind == 0)
    charts.refresh()
    chart = next(c for c in charts.charts if c.measure.name == "cpu")
    image = chart.grab().toImage()
    hue = chart.measure.color(theme.current()).hsvHue()
    area = chart.area().toRect()
    painted = sum(
        abs(image.pixelColor(x, y).hsvHue() - hue) < 12 and image.pixelColor(x, y).hsvSaturation() > 60
        for x in range(area.left(), area.right())
        for y in range(area.top(), area.bottom())
    )
    assert painted > area.width() / 2


def test_nothing_is_drawn_while_hidden(qtbot, charts) -> None:
    charts.hide()
    assert not charts._timer.isActive()
    charts.show()
    assert charts._timer.isActive()


def test_a_new_trace_clears_the_charts(qtbot, bridge, charts) -> None:
    bridge.show(Trace(synthetic_trace(streams=4, tokens_per_second=100, seconds=5, faults=0)))
    qtbot.waitUntil(lambda: bridge.behind == 0)
    charts.refresh()
    bridge.show(Trace())
    charts.refresh()
    assert figure(charts, "throughput") == ("", "")
