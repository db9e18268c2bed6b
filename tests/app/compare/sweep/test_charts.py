from dataclasses import replace
from itertools import combinations, pairwise

import pytest
from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QColor, QImage
from pytestqt.qtbot import QtBot

from app.compare.sweep.charts import CostPlot, SizePlot, SweepChart, SweptPoint
from app.plot.marks import lane_color
from app.ui.look import theme

SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def points(mode: str = "continuous", peak: float = 2000.0) -> list[SweptPoint]:
    return [
        SweptPoint(mode, n, peak * n / (n + 14), (n + 14) / peak / n, 0.012 + 0.001 * n, n == 16, n == 32)
        for n in SIZES
    ]  # fmt: skip


@pytest.fixture
def chart(qtbot: QtBot) -> SweepChart:
    chart = SweepChart()
    qtbot.addWidget(chart)
    chart.resize(1100, 340)
    chart.show_points([*points(), *points("static", 900.0)], latency="p99 ITL")
    return chart


def marks(plot: SizePlot | CostPlot, color: QColor) -> list[tuple[int, int]]:
    """The middles of marks of a colour: pixels with that colour all around."""
    image = plot.grab().toImage()

    def own(x: int, y: int) -> bool:
        pixel = image.pixelColor(x, y)
        return abs(pixel.hsvHue() - color.hsvHue()) < 6 and pixel.hsvSaturation() > 80

    return [
        (x, y)
        for x in range(4, image.width() - 4)
        for y in range(4, image.height() - 4)
        if own(x, y) and all(own(x + i, y + j) for i in (-2, 0, 2) for j in (-2, 0, 2))
    ]  # fmt: skip


def grouped(values: list[int]) -> list[float]:
    """The middles of runs of neighbours."""
    groups: list[list[int]] = []
    for value in sorted(set(values)):
        if groups and value - groups[-1][-1] <= 2:
            groups[-1].append(value)
        else:
            groups.append([value])
    return [sum(group) / len(group) for group in groups]


def test_doubled_sizes_are_equally_far_apart(chart: SweepChart) -> None:
    chart.show_points(points())
    upper = [x for x, y in marks(chart.sizes, lane_color(0)) if y > 40]
    places = grouped(upper)
    assert len(places) == len(SIZES)
    steps = [b - a for a, b in pairwise(places)]
    assert max(steps) - min(steps) <= 2


def test_more_throughput_is_higher_and_more_latency_further_right(chart: SweepChart) -> None:
    image = chart.cost.grab().toImage()
    drawn = [[place for point, place in chart.cost.spots if point.mode == mode] for mode in ("continuous", "static")]
    for index, places in enumerate(drawn):
        assert len(places) == len(SIZES)
        assert all(a.x() < b.x() and a.y() > b.y() for a, b in pairwise(places))
        assert image.pixelColor(places[3].toPoint()).hsvHue() == pytest.approx(lane_color(index).hsvHue(), abs=6)
    assert drawn[0][-1].y() < drawn[1][-1].y()


def test_knee_and_recommendation_have_a_ring_and_a_word(chart: SweepChart) -> None:
    plot = chart.cost
    chart.show_points(points())
    with_rings = plot.grab().toImage()
    assert {"continuous: 16 knee", "continuous: 32 recommended", "continuous: 64"} <= {words for words, _ in plot.said}
    chart.show_points([replace(p, knee=False, recommended=False) for p in points()])
    without = plot.grab().toImage()
    accent, text = theme.current().accent, theme.current().text

    def count(image: QImage, color: QColor) -> int:
        r, g, b, _ = color.getRgb()
        pixels = (image.pixelColor(x, y).getRgb() for x in range(image.width()) for y in range(60, image.height()))
        return sum(abs(p[0] - r) + abs(p[1] - g) + abs(p[2] - b) < 60 for p in pixels)

    assert count(with_rings, accent) > count(without, accent) + 8
    assert count(with_rings, text) > count(without, text) + 8
    assert replace(points()[0], knee=True, recommended=True).words == "recommended, knee"


def test_words_lie_on_no_point_no_line_and_no_other_words(chart: SweepChart) -> None:
    plot = chart.cost
    plot.grab()
    boxes = [box for _, box in plot.said]
    assert len(boxes) > len(SIZES)
    assert not any(one.intersects(other) for one, other in combinations(boxes, 2))
    lines = [(a, b) for (one, a), (other, b) in pairwise(plot.spots) if one.mode == other.mode]
    for box in boxes:
        assert QRectF(plot.rect()).contains(box)
        assert not any(box.contains(a + (b - a) * (i / 20)) for a, b in lines for i in range(21))


def test_everything_is_said_to_those_who_cannot_see_it(chart: SweepChart) -> None:
    words = chart.cost.accessibleDescription()
    assert "continuous 16: 1,067 tok/s" in words
    assert "p99 28 ms · knee" in words
    assert "p99 ITL" in chart.cost.tooltip()
    assert "total time ÷ tokens" in chart.sizes.tooltip()


@pytest.mark.parametrize("zoom", [1.0, 2.0])
@pytest.mark.parametrize("count", [0, 1, 8])
def test_few_points_and_narrow_places_are_drawn(qtbot: QtBot, zoom: float, count: int) -> None:
    theme.set_zoom(zoom)
    theme.set_theme("light")
    chart = SweepChart()
    qtbot.addWidget(chart)
    chart.resize(int(480 * zoom), int(200 * zoom))
    chart.show_points(points("a mode with a rather long name")[:count])
    image = chart.grab().toImage()
    ground = theme.current().panel
    plot = chart.cost
    corner = plot.mapTo(chart, QPointF(plot.width() - 1, plot.height() - 1)).toPoint()
    for y in range(corner.y()):
        assert image.pixelColor(image.width() - int(6 * zoom), y) == image.pixelColor(
            image.width() - int(6 * zoom), corner.y() - 2
        ) or y < 4  # fmt: skip
    assert ground.isValid()
