import math
from dataclasses import replace
from itertools import combinations

import pytest
from PySide6.QtCore import QPointF, Qt
from pytestqt.qtbot import QtBot

from app.plot.marks import scheme_color
from app.quality.axes import across_axis, divergence_axis, perplexity_axis
from app.quality.charts import QualityCharts
from app.ui.look import theme
from tests.app.quality.reports import ORIGINAL, REPORT, row


@pytest.fixture
def charts(qtbot: QtBot) -> QualityCharts:
    charts = QualityCharts()
    qtbot.addWidget(charts)
    charts.resize(1000, 300)
    charts.show_report(REPORT, "divergence")
    charts.chosen.connect(charts.select)
    charts.show()
    return charts


def test_tenfold_divergences_are_equally_far_apart_and_none_at_all_lies_below() -> None:
    axis = divergence_axis([0.0, 1e-4, 1e-3, 1e-2])
    shares = [axis.share(v) for v in (1e-4, 1e-3, 1e-2)]
    assert shares[2] - shares[1] == pytest.approx(shares[1] - shares[0])
    assert axis.share(0.0) == 0.0 < shares[0]
    assert {word for _, word in axis.ticks} >= {"0", "0.0001", "0.001", "0.01"}
    assert all(0 <= share <= 1 for share, _ in axis.ticks)


def test_axes_of_one_value_and_of_none_have_room() -> None:
    for axis in (divergence_axis([]), divergence_axis([0.0]), perplexity_axis([3.0]), across_axis("rate", [])):
        assert axis.high > axis.low
        assert axis.ticks
    assert [word for _, word in across_axis("weight_bytes", [20_316_160]).ticks] == ["0", "15 MB", "30 MB"]
    assert across_axis("rate", [282.0]).share(0) == 0


def test_points_lie_where_their_figures_say(charts: QualityCharts) -> None:
    charts.grab()
    memory, speed = charts.memory.places, charts.speed.places
    assert set(memory) == {0, 1, 2, 3, 4, 6}, "the one that failed has no point"
    assert memory[0].x() > memory[6].x() > memory[1].x() > memory[2].x(), "more bytes lie further right"
    assert memory[3].y() < memory[2].y() < memory[4].y() < memory[1].y() < memory[6].y() < memory[0].y()
    assert max(speed, key=lambda i: speed[i].x()) == 4
    image = charts.speed.grab().toImage()
    for place, name in ((1, "int8"), (2, "nf4"), (4, "awq")):
        color = image.pixelColor(speed[place].toPoint())
        assert color.hsvHue() == pytest.approx(scheme_color(name).hsvHue(), abs=6)
    charts.show_report(REPORT, "perplexity")
    charts.grab()
    assert charts.memory.places[0].y() > charts.memory.places[3].y()


@pytest.mark.parametrize("up", ["divergence", "perplexity"])
@pytest.mark.parametrize("zoom", [1.0, 2.0])
def test_names_lie_on_no_other_name_and_on_no_point(charts: QualityCharts, up: str, zoom: float) -> None:
    theme.set_zoom(zoom)
    theme.set_theme("light")
    charts.resize(int(1000 * zoom), int(300 * zoom))
    charts.show_report(REPORT, up)
    charts.grab()
    for plot in (charts.memory, charts.speed):
        assert set(plot.boxes) == set(plot.places)
        assert not any(a.intersects(b) for a, b in combinations(plot.boxes.values(), 2))
        for box in plot.boxes.values():
            assert not any(box.contains(place) for place in plot.places.values())
            assert plot.rect().toRectF().contains(box)


def test_points_on_one_spot_still_have_each_its_name(qtbot: QtBot, charts: QualityCharts) -> None:
    same = tuple(
        replace(row(name, 3.5, 0.01, 0.95, 100, 500, 1.0, size=5_000_000)) for name in ("int8", "nf4", "awq", "none")
    )
    charts.show_report(replace(REPORT, rows=same), "divergence")
    charts.grab()
    boxes = list(charts.memory.boxes.values())
    assert len(boxes) == 5
    assert not any(a.intersects(b) for a, b in combinations(boxes, 2))


def test_the_keyboard_goes_from_point_to_point_and_both_charts_follow(qtbot: QtBot, charts: QualityCharts) -> None:
    charts.grab()
    charts.speed.setFocus()
    seen = []
    for _ in range(8):
        qtbot.keyClick(charts.speed, Qt.Key.Key_Right)
        seen.append(charts.speed.selected)
    assert seen[:6] == sorted(charts.speed.places, key=lambda i: charts.speed.points()[i])
    assert seen[-1] == 4, "it stops at the last"
    assert charts.memory.selected == 4
    qtbot.keyClick(charts.memory, Qt.Key.Key_Left)
    assert charts.speed.selected == charts.memory.selected != 4


def test_the_pointer_chooses_a_point_or_its_name(qtbot: QtBot, charts: QualityCharts) -> None:
    plot = charts.memory
    plot.grab()
    qtbot.mouseClick(plot, Qt.MouseButton.LeftButton, pos=plot.places[1].toPoint())
    assert charts.speed.selected == 1
    qtbot.mouseClick(plot, Qt.MouseButton.LeftButton, pos=plot.boxes[6].center().toPoint())
    assert plot.selected == 6
    far = QPointF(plot.width() - 4, plot.height() / 2)
    assert plot.nearest(far) == -1
    qtbot.mouseClick(plot, Qt.MouseButton.LeftButton, pos=far.toPoint())
    assert plot.selected == -1


def test_everything_is_said_to_those_who_cannot_see_it(charts: QualityCharts) -> None:
    words = charts.memory.accessibleDescription()
    assert "KL divergence from the original, nats, logarithmic, against bytes of the weights" in words
    assert "nf4: perplexity 3.600 (+5.5 %)" in words
    assert "torchao is not installed" in words


@pytest.mark.parametrize("rows", [(), REPORT.rows[4:5]])
@pytest.mark.parametrize("up", ["divergence", "perplexity"])
def test_an_original_alone_and_a_narrow_place_are_drawn(charts: QualityCharts, rows: tuple, up: str) -> None:  # type: ignore[type-arg]
    charts.show_report(replace(REPORT, rows=rows), up)
    charts.grab()
    assert set(charts.memory.places) == {0}
    charts.resize(120, 90)
    charts.grab()
    charts.show_report(None, up)
    charts.grab()
    charts.show_report(replace(REPORT, original=replace(ORIGINAL, perplexity=math.nan)), "perplexity")
    charts.grab()
    assert 0 not in charts.memory.places
