import pytest
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QFrame
from pytestqt.qtbot import QtBot

from app.bench.synthetic_lanes import lane_trace
from app.compare.race.chart import RaceChart
from app.compare.race.charts import RaceCharts
from app.plot.marks import draw_mark, lane_color
from app.plot.scales import axis_words, tick_words
from app.ui.look import theme

LANES = ("static", "continuous")


@pytest.fixture
def charts(qtbot: QtBot) -> RaceCharts:
    charts = RaceCharts()
    qtbot.addWidget(charts)
    charts.resize(1400, 300)
    for mode in LANES:
        lane = charts.add_lane(mode)
        charts.feed(lane, lane_trace(mode, slots=8, requests=16))
    charts.show()
    qtbot.waitExposed(charts)
    charts.refresh()
    return charts


def columns(chart: RaceChart, color: QColor, least: int = 1) -> list[int]:
    """The x of all pixels of about this colour."""
    image = chart.grab().toImage()
    hue = color.hsvHue()
    return [
        x
        for x in range(image.width())
        if sum(near(image, x, y, hue) for y in range(24, image.height() - 20)) >= least
    ]  # fmt: skip


def near(image: QImage, x: int, y: int, hue: int) -> bool:
    pixel = image.pixelColor(x, y)
    return abs(pixel.hsvHue() - hue) < 10 and pixel.hsvSaturation() > 70


def test_every_lane_is_drawn_in_its_colour_in_every_chart(charts: RaceCharts) -> None:
    for chart in charts.charts:
        for lane in range(2):
            assert len(columns(chart, lane_color(lane))) > 10, (chart.objectName(), lane)


def test_a_cursor_hides_what_came_later_and_leaves_the_axes(charts: RaceCharts) -> None:
    chart = charts.tokens
    whole = columns(chart, lane_color(0))
    words = chart.figure(chart.lanes[0])
    charts.set_cursor(0, charts.extent / 4)
    charts.refresh()
    early = columns(chart, lane_color(0))
    inside = [x for x in early if x < chart.width() - 60]
    assert max(inside) < (min(whole) + max(whole)) / 2
    assert min(inside) <= min(whole) + 12
    assert float(chart.figure(chart.lanes[0]).replace(",", "")) < float(words.replace(",", ""))
    assert chart._top() == pytest.approx(3000)
    charts.set_cursor(0, None)
    charts.refresh()
    assert columns(chart, lane_color(0)) == whole


def test_all_charts_show_the_seconds_of_the_longest_lane(charts: RaceCharts) -> None:
    assert charts.extent == max(lane.series.now for lane in charts.tokens.lanes)
    assert {chart.span for chart in charts.charts} == {chart.span for chart in charts.charts[:1]}
    assert charts.extent <= charts.tokens.span <= 1.25 * charts.extent


def test_a_lane_that_is_over_stays_level_and_one_under_way_ends_where_it_is(charts: RaceCharts, qtbot: QtBot) -> None:
    short, long = sorted(charts.tokens.lanes, key=lambda lane: lane.series.now)
    assert short.end(charts.tokens.span) == charts.tokens.span
    half = charts.add_lane("half")
    records = lane_trace("continuous", slots=8, requests=16)
    charts.feed(half, records[: len(records) // 2])
    lane = charts.tokens.lanes[half]
    assert lane.end(99.0) == lane.series.now < long.series.now


def test_new_records_are_drawn_within_a_few_ticks_and_then_the_timer_rests(charts: RaceCharts, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: not charts._timer.isActive())
    lane = charts.add_lane("chunked")
    charts.feed(lane, lane_trace("chunked", slots=8, requests=16))
    assert charts._timer.isActive()
    qtbot.waitUntil(lambda: not charts._timer.isActive())
    assert "chunked" in charts.queue.accessibleDescription()
    charts.hide()
    charts.set_cursor(lane, 1.0)
    assert not charts._timer.isActive()
    charts.show()
    assert charts._timer.isActive()


def test_another_run_of_a_lane_forgets_the_last_even_with_as_many_values(charts: RaceCharts) -> None:
    before = charts.ttft.figure(charts.ttft.lanes[0])
    charts.reset(0)
    assert charts.ttft.figure(charts.ttft.lanes[0]) == "–"
    charts.feed(0, lane_trace("static", slots=8, requests=16, seed=5))
    assert charts.ttft.figure(charts.ttft.lanes[0]) not in (before, "–")
    charts.clear()
    charts.refresh()
    assert charts.tokens.accessibleDescription() == ""
    assert len(columns(charts.tokens, lane_color(0))) == 0


def test_a_ratio_axis_spreads_small_gaps(charts: RaceCharts) -> None:
    chart = charts.itl
    chart.logarithmic = False
    plain = columns(chart, lane_color(1), 4)
    chart.logarithmic = True
    spread = columns(chart, lane_color(1), 4)
    assert max(spread) - min(spread) > 1.2 * (sorted(plain)[len(plain) // 2] - min(plain))
    assert spread != plain


def test_tooltips_tell_the_formula_and_each_lanes_percentiles(charts: RaceCharts) -> None:
    words = charts.ttft.tooltip().split("\n")
    assert words[0].startswith("TTFT = first token − submit")
    assert [line.split(":")[0] for line in words[1:]] == list(LANES)
    assert all("p50" in line and "p95" in line for line in words[1:])
    assert charts.tokens.accessibleName() == "Tokens over time"


def test_what_tells_lanes_apart_is_never_cut(qtbot: QtBot) -> None:
    charts = RaceCharts()
    qtbot.addWidget(charts)
    for name in ("continuous · 64", "chunked · 64", "continuous · 64 · tp 2", "continuous · 64 · pp 2"):
        charts.feed(charts.add_lane(name), lane_trace("continuous", slots=4, requests=8))
    whole, split = charts.ttft.lanes[0], charts.ttft.lanes[2]
    figure = charts.ttft.figure(split)
    wide = charts.ttft.head_words(split, 1000)
    assert wide == (split.name, figure)
    for width in range(600, 90, -10):
        name, words = charts.ttft.head_words(split, width)
        assert name.endswith("tp 2")
        assert figure.startswith(words)
        assert charts.ttft.small.width(name) + charts.ttft.tiny.width(words) <= width
    assert charts.ttft.head_words(split, 200) == ("continuous · tp 2", figure.partition(" · ")[0])
    assert charts.ttft.head_words(whole, 200)[0] == "continuous"


def test_lanes_differ_in_shape_as_well_as_in_colour(qtbot: QtBot) -> None:
    from PySide6.QtGui import QPainter

    shapes = []
    for index in range(8):
        image = QImage(24, 24, QImage.Format.Format_RGB32)
        image.fill(theme.current().panel)
        painter = QPainter(image)
        draw_mark(painter, index, 12, 12, 14)
        painter.end()
        ground = theme.current().panel.rgb()
        shapes.append(tuple(image.pixel(x, y) != ground for x in range(24) for y in range(24)))
    assert len(set(shapes[:4])) == 4
    assert all(lane_color(i) == lane_color(i + 4) for i in range(4))
    hollow = QImage(24, 24, QImage.Format.Format_RGB32)
    hollow.fill(theme.current().panel)
    painter = QPainter(hollow)
    draw_mark(painter, 4, 12, 12, 14)
    painter.end()
    assert hollow.pixelColor(12, 12) == theme.current().panel


@pytest.mark.parametrize("zoom", [1.0, 2.0])
@pytest.mark.parametrize("lanes", [1, 8])
def test_no_word_touches_a_charts_rim(qtbot: QtBot, zoom: float, lanes: int) -> None:
    theme.set_zoom(zoom)
    charts = RaceCharts()
    qtbot.addWidget(charts)
    charts.resize(int(1100 * zoom), int(320 * zoom))
    for i in range(lanes):
        charts.feed(
            charts.add_lane(f"a lane with a rather long name {i}"), lane_trace("continuous", slots=4, requests=9)
        )
    charts.refresh()
    for frame in charts.findChildren(QFrame):
        image = frame.grab().toImage()
        ground = image.pixelColor(image.width() // 2, image.height() - 4)
        for y in range(image.height()):
            for x in (*range(4, 9), *range(image.width() - 9, image.width() - 4)):
                assert image.pixelColor(x, y) == ground or y < 4 or y > image.height() - 4


def test_ticks_are_said_briefly() -> None:
    assert [tick_words(v) for v in (0, 150, 2500, 25_000)] == ["0", "150", "2,500", "25k"]
    assert [axis_words(v) for v in (0, 0.0447, 0.5, 1.5, 20)] == ["0", "44.7 ms", "500 ms", "1.5 s", "20 s"]
