"""The machine panel: the readings of a run, their values at the cursor, and the way back to a time."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from pytestqt.qtbot import QtBot

from app.inside.machine.panel import MachinePanel
from app.inside.machine.readings import READINGS, MachineReadings
from app.playback.scope import Scope
from app.plot.scales import nice_bytes
from app.ui.look import theme
from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Trace, load_trace, save_trace
from engine.trace import Kind, Telemetry
from tests.engine.trace.hand_made import header, step, submitted

GIB = 1 << 30
BY_FIELD = {reading.field: reading for reading in READINGS}


def made(gpu: bool, count: int = 40) -> Trace:
    """A run of 20 s, from 1 s on, with a reading each half second."""
    trace = Trace([header(EngineConfig()), submitted(1.0, 0, 4)])
    for i in range(count):
        reading = Telemetry(1.0 + i / 2, 50.0 + i, GIB + i, 8 * GIB, memory_free=4 * GIB - i)
        if gpu:
            reading = replace(
                reading, gpu_percent=90.0 - i, gpu_memory=2 * GIB, gpu_memory_total=16 * GIB, gpu_watts=300.0 + i,
                gpu_celsius=60.0,
            )  # fmt: skip
        trace.append(reading)
        trace.append(step(i, 1.0 + i / 2, 1.4 + i / 2, [(0, 4 + i, 1, Kind.DECODE)], {0: 1}))
    return trace


@pytest.fixture
def panel(qtbot: QtBot) -> Iterator[MachinePanel]:
    scope = Scope()
    panel = MachinePanel(scope)
    qtbot.addWidget(panel)
    panel.resize(420, 420)
    panel.show()
    yield panel
    scope.stop()


def fields(panel: MachinePanel) -> list[str]:
    return [cell.reading.field for cell in panel.charts.cells()]


def test_without_a_gpu_only_processor_and_memory_are_shown(panel: MachinePanel) -> None:
    panel.scope.show(made(gpu=False))
    panel.scope.catch_up()
    assert fields(panel) == ["cpu_percent", "memory", "memory_free"]
    assert panel.summary.accessibleName() == "CPU 89 % · Process memory 1 GB"


def test_with_a_gpu_its_load_memory_power_and_heat_are_shown_too(panel: MachinePanel) -> None:
    panel.scope.show(made(gpu=True))
    panel.scope.catch_up()
    assert fields(panel) == [reading.field for reading in READINGS]
    assert "339 W" in panel.summary.accessibleName()
    assert "Temperature 60 °C" in panel.charts.accessibleDescription()


def test_what_a_gpu_does_not_tell_hides_nothing_else_of_it() -> None:
    readings = MachineReadings()
    telemetry = [
        replace(r, gpu_percent=-1.0, gpu_watts=0.0) for r in made(gpu=True).records if isinstance(r, Telemetry)
    ]
    readings.take(telemetry)
    assert [r.field for r in readings.known() if r.of_gpu] == ["gpu_memory", "gpu_celsius"]


def test_the_figures_are_those_of_the_last_reading_at_the_cursor(panel: MachinePanel) -> None:
    panel.scope.show(made(gpu=True))
    panel.scope.seek(6.3)
    panel.scope.catch_up()
    readings = panel.readings
    assert readings.value_at(BY_FIELD["cpu_percent"], 6.3) == 60
    assert readings.value_at(BY_FIELD["gpu_watts"], math.inf) == 339
    assert math.isnan(readings.value_at(BY_FIELD["memory"], 0.5))
    assert "CPU 60 %" in panel.charts.accessibleDescription()
    facts = panel.facts()
    assert facts.columns == (
        "time s", "CPU %", "Process memory bytes", "Free memory bytes", "GPU %", "GPU memory bytes", "Power W",
        "Temperature °C",
    )  # fmt: skip
    assert len(facts.rows) == 11
    assert facts.rows[-1] == (5.0, 60.0, GIB + 10, 4 * GIB - 10, 80.0, 2 * GIB, 310.0, 60.0)


def test_an_axis_ends_at_all_there_is_or_above_the_highest() -> None:
    readings = MachineReadings()
    trace = made(gpu=True)
    readings.take(trace.records)
    tops = {reading.field: readings.top(reading) for reading in READINGS}
    assert tops == {
        "cpu_percent": 200, "memory": 1.5 * GIB, "memory_free": 8 * GIB, "gpu_percent": 100, "gpu_memory": 16 * GIB,
        "gpu_watts": 400, "gpu_celsius": 100,
    }  # fmt: skip
    assert readings.scale(BY_FIELD["cpu_percent"]) == "of 2 cores"
    assert nice_bytes(700 * (1 << 20)) == 800 * (1 << 20)
    assert nice_bytes(0) == 1


def test_a_press_goes_to_its_time_and_keys_go_from_step_to_step(qtbot: QtBot, panel: MachinePanel) -> None:
    scope, charts = panel.scope, panel.charts
    trace = made(gpu=False)
    scope.show(trace)
    scope.catch_up()
    plot = charts.cells()[1].plot
    at = QPoint(round(plot.center().x()), round(plot.center().y()))
    qtbot.mouseClick(charts, Qt.MouseButton.LeftButton, pos=at)
    expected = scope.origin + (at.x() - plot.left()) / plot.width() * (scope.end - scope.origin)
    assert scope.moment == pytest.approx(expected)
    place = scope.place
    qtbot.keyClick(charts, Qt.Key.Key_Right)
    assert scope.place == place + 1
    qtbot.keyClick(charts, Qt.Key.Key_Left)
    assert scope.place == place
    tip = charts.tip(QPointF(at))
    assert tip.startswith("1 GB at ")
    assert "Process memory" in tip
    before = scope.moment
    qtbot.mouseClick(charts, Qt.MouseButton.LeftButton, pos=QPoint(charts.width() - 1, at.y()))
    assert scope.moment == before, "beside the chart there is no time"
    panel.row_chosen(3)
    assert scope.moment == 2.5


def test_an_empty_panel_says_what_it_is_for(panel: MachinePanel) -> None:
    panel.scope.catch_up()
    assert panel.charts.cells() == []
    assert "nothing was read yet" in panel.charts.accessibleDescription()
    assert not panel.facts().rows
    panel.scope.show(made(gpu=False))
    panel.scope.catch_up()
    panel.scope.show(Trace())
    panel.scope.catch_up()
    assert panel.charts.cells() == []


@pytest.mark.parametrize("look", ["dark", "light"])
@pytest.mark.parametrize(("width", "height", "zoom"), [(300, 560, 1.0), (1600, 300, 1.0), (1000, 760, 2.0)])
def test_every_chart_fits_and_is_drawn(panel: MachinePanel, look: str, width: int, height: int, zoom: float) -> None:
    theme.set_theme(look)
    theme.set_zoom(zoom)
    panel.resize(width, height)
    panel.scope.show(made(gpu=True))
    panel.scope.catch_up()
    charts = panel.charts
    cells = charts.cells()
    assert len(cells) == 7
    for cell in cells:
        assert cell.plot.height() > 10
        assert cell.room.bottom() <= charts.height()
        assert cell.plot.right() < cell.room.right() <= charts.width() + 1
    image = charts.grab().toImage()
    ratio = image.devicePixelRatio()
    for cell in cells:
        x = int(cell.plot.center().x() * ratio)
        top, bottom = int(cell.plot.top() * ratio), int((cell.plot.bottom() - 1) * ratio)
        colors = {image.pixel(x, y) for y in range(top, bottom)}
        assert len(colors) >= 3, f"the ground, the line of {cell.reading.title} and what lies below it"


def test_a_long_run_keeps_its_peaks(panel: MachinePanel) -> None:
    trace = Trace([header(EngineConfig()), submitted(0.0, 0, 4)])
    for i in range(7200):
        trace.append(Telemetry(i / 2, 190.0 if i == 3601 else 5.0, GIB, 8 * GIB, memory_free=GIB))
    panel.scope.show(trace)
    panel.scope.catch_up()
    image = panel.charts.grab().toImage()
    plot = panel.charts.cells()[0].plot
    ratio = image.devicePixelRatio()
    ground = image.pixel(int(plot.left() + 20), int((plot.top() + 12) * ratio))
    row = int((plot.top() + plot.height() * 0.3) * ratio)
    around = range(int((plot.center().x() - 6) * ratio), int((plot.center().x() + 6) * ratio))
    assert any(image.pixel(x, row) != ground for x in around), "a peak of one reading in an hour is seen"


@pytest.mark.parametrize("saved", [False, True])
def test_a_real_run_live_and_from_its_file(panel: MachinePanel, tmp_path: Path, saved: bool) -> None:
    with Engine(ModelSpec("demo"), EngineConfig(max_running=4), threads=1) as engine:
        trace = engine.trace
        panel.scope.show(trace)
        engine.submit("A fox", SamplingParams(max_tokens=40)).result(60)
        until = time.monotonic() + 20
        while not any(isinstance(record, Telemetry) for record in trace.records) and time.monotonic() < until:
            time.sleep(0.05)
    if saved:
        save_trace(trace, tmp_path / "a run.batchscope")
        trace = load_trace(tmp_path / "a run.batchscope")
        panel.scope.show(trace)
    panel.scope.catch_up()
    told = [record for record in trace.records if isinstance(record, Telemetry)]
    assert len(panel.readings) == len(told) > 0
    assert panel.facts().rows[-1][2:4] == (told[-1].memory, told[-1].memory_free)
    assert told[-1].memory_free > 0


def test_beside_others_it_shows_their_seconds_and_ends_where_its_run_does(panel: MachinePanel) -> None:
    panel.scope.show(made(gpu=False))
    panel.scope.catch_up()
    panel.share_range(0.0, 40.0)
    panel.scope.seek(11.0)
    panel.scope.catch_up()
    charts = panel.charts
    assert (charts.begin, charts.end) == (1.0, 41.0)
    assert charts.until < 22.0
    plot = charts.cells()[0].plot
    at = QPointF(plot.left() + plot.width() / 4, plot.center().y())
    assert charts.moment_at(at) == pytest.approx(11.0, abs=0.2)
    picture = charts.grab().toImage()
    ratio = picture.devicePixelRatio()

    def color(share: float) -> int:
        x, y = plot.left() + share * plot.width(), plot.bottom() - 2
        return picture.pixel(int(x * ratio), int(y * ratio))

    assert color(0.2) != color(0.7) == color(0.9), "nothing is drawn where the run is over"
