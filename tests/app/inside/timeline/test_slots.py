from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, Qt
from PySide6.QtGui import QColor, QImage, QMouseEvent, QWheelEvent
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.bench.synthetic_lanes import lane_trace
from app.inside.timeline.runs import Shade
from app.inside.timeline.slots import Timeline
from app.plot.scales import nice_end
from app.ui.look import theme
from engine.trace import Step
from tests.app.contrast import contrast

Show = Callable[..., Timeline]


@pytest.fixture
def shown(qtbot: QtBot) -> Show:
    """A timeline of a generated lane, on screen."""

    def show(mode: str = "static", width: int = 900, height: int = 180, **lane) -> Timeline:
        timeline = Timeline()
        qtbot.addWidget(timeline)
        timeline.resize(width, height)
        timeline.feed(lane_trace(mode, **({"slots": 8, "requests": 16} | lane)))
        timeline.show()
        qtbot.waitExposed(timeline)
        return timeline

    return show


def picture(timeline: Timeline) -> QImage:
    return timeline.grab().toImage()


def place(timeline: Timeline, shade: int, least: float = 20.0) -> tuple[int, float, float, float]:
    """Request, slot's middle, left and right of a run of this shade, in pixels of the widget."""
    cells, area = timeline.cells, timeline.area()
    pitch = area.height() / timeline.slots
    for i in np.flatnonzero(cells.shade == shade):
        left, right = timeline.x_at(float(cells.begins[i])), timeline.x_at(float(cells.ends[i]))
        if right - left >= least and area.left() <= left and right <= area.right():
            return int(cells.request[i]), (int(cells.slot[i]) + 0.5) * pitch, left, right
    raise AssertionError(f"no run has shade {shade}")


def inside(timeline: Timeline, shade: Shade) -> tuple[int, Counter[str]]:
    """The request of a run of this shade, and the colours of its pixels."""
    request, y, left, right = place(timeline, shade)
    image = picture(timeline)
    xs, ys = range(int(left) + 3, int(right) - 3), range(int(y) - 4, int(y) + 4)
    return request, Counter(image.pixelColor(x, y).name() for x in xs for y in ys)


def distance(one: QColor | str, other: QColor) -> int:
    one = QColor(one)
    return max(abs(one.red() - other.red()), abs(one.green() - other.green()), abs(one.blue() - other.blue()))


@pytest.mark.parametrize("name", ["dark", "light"])
@pytest.mark.parametrize("height", [60, 96, 160])
def test_held_and_padded_rows_stand_out_on_bars_as_low_as_those_of_a_lane(shown: Show, name: str, height: int) -> None:
    theme.set_theme(name)
    timeline = shown("static", height=height, slots=12, requests=24)
    _, y, left, right = place(timeline, Shade.GREY)
    image, half = picture(timeline), timeline._bars().bar // 2
    xs, ys = range(int(left) + 3, int(right) - 3), range(int(y) - half, int(y) + max(1, half))
    colors = [image.pixelColor(x, y) for x in xs for y in ys]
    mean = QColor(*(sum(channel) // len(colors) for channel in zip(*(color.getRgb()[:3] for color in colors))))
    ground = theme.current().panel
    assert contrast(mean, ground) > 1.9, "the bar against what is empty"
    assert max(contrast(color, mean) for color in colors) > 1.6, "the lines against the bar"


@pytest.mark.parametrize("name", ["dark", "light"])
def test_decode_is_solid_prefill_is_hatched_and_held_rows_are_grey(shown: Show, name: str) -> None:
    theme.set_theme(name)
    timeline = shown("static")
    request, solid = inside(timeline, Shade.SOLID)
    assert list(solid) == [theme.request_color(request).name()]
    request, hatch = inside(timeline, Shade.HATCH)
    assert len(hatch) >= 3
    assert min(distance(color, theme.request_color(request)) for color in hatch) < 40
    _, grey = inside(timeline, Shade.GREY)
    assert len(grey) >= 3
    ground = theme.current().panel
    assert max(contrast(QColor(color), ground) for color in grey) > 2
    most = max(ground.hsvSaturation(), theme.current().secondary.hsvSaturation()) + 8
    assert all(QColor(color).hsvSaturation() <= most for color in grey)


def test_what_is_thrown_away_is_an_outline_with_a_cross(shown: Show) -> None:
    timeline = shown("continuous", lag=1)
    cells = timeline.cells
    run = int(np.flatnonzero(cells.shade == Shade.CROSS)[-1])
    begin, end = float(cells.begins[run]), float(cells.ends[run])
    timeline.set_range(begin - (end - begin), end + (end - begin))
    request, y, left, right = place(timeline, Shade.CROSS)
    image, color = picture(timeline), theme.request_color(request)
    bars = timeline._bars()
    top = int(y - bars.pitch / 2) + bars.top
    assert all(distance(image.pixelColor(x, top), color) < 70 for x in range(int(left) + 2, int(right) - 2))
    line = [distance(image.pixelColor(x, int(y)), color) > 100 for x in range(int(left) + 8, int(right) - 8)]
    assert any(line)
    assert not all(line)


def test_work_done_again_leaves_only_the_new_tokens_solid(shown: Show) -> None:
    timeline = shown("recompute", requests=3, prompt=(2, 3), output=(8, 12))
    request, y, left, right = place(timeline, Shade.AGAIN + 1, 4)
    bars, image = timeline._bars(), picture(timeline)
    x = int(left) + 6  # within the first step, beside its border
    color = theme.request_color(request)
    solid = [distance(image.pixelColor(x, bars.top + i), color) < 8 for i in range(bars.bar)]
    foot = round(bars.bar / 4)  # two of three tokens were known, which is nearest to three of four
    assert all(solid[-foot:])
    assert not any(solid[1:-foot])


def test_a_waiting_request_is_a_thin_line_through_the_gap(shown: Show) -> None:
    timeline = shown("continuous", prompt=(300, 600))
    request, y, left, right = place(timeline, Shade.LINE, 8)
    image, x = picture(timeline), int((left + right) / 2)
    pitch = timeline._bars().pitch
    column = [image.pixelColor(x, int(y - pitch / 2) + i) for i in range(pitch - 1)]
    ground = theme.current().panel
    drawn = [color for color in column if distance(color, ground) > 30]
    assert 1 <= len(drawn) <= 2
    assert abs(drawn[0].hsvHue() - theme.request_color(request).hsvHue()) < 15


def test_the_cursor_hides_the_future_and_stands_at_its_time(shown: Show) -> None:
    timeline = shown("static")
    everything = picture(timeline)
    timeline.set_cursor(timeline.cells.end / 2)
    half, x = picture(timeline), round(timeline.x_at(timeline.cells.end / 2))
    area = timeline.area()
    past = QRect(0, 0, x - 1, area.bottom())  # the cursor may begin within the pixel before its own
    assert half.copy(past) == everything.copy(past)
    assert half.pixelColor(x, area.center().y()) == theme.current().accent
    beyond = {half.pixelColor(i, j).name() for i in range(x + 1, area.right()) for j in range(area.height())}
    ground = theme.current().panel
    assert all(distance(color, ground) < 30 for color in beyond)
    assert timeline.cell_at(QPointF(x + 5, 20)) is None
    timeline.set_cursor(None)
    assert picture(timeline) == everything


def test_a_lane_fed_piece_by_piece_looks_like_one_read_whole(shown: Show, qtbot: QtBot) -> None:
    records = lane_trace("continuous", slots=8, requests=16)
    whole, live = shown("continuous"), Timeline()
    qtbot.addWidget(live)
    live.resize(whole.size())
    for begin in range(0, len(records), 11):
        live.feed(records[begin : begin + 11])
        picture(live)
    assert picture(live) == picture(whole)


def test_a_deep_zoom_shows_the_same_pixels_as_a_trace_of_that_part_alone(shown: Show) -> None:
    timeline = shown("continuous", requests=60)
    begin, end = 0.4 * timeline.cells.end, 0.45 * timeline.cells.end
    timeline.set_range(begin, end)
    culled = picture(timeline)
    alone = shown("continuous", requests=60)
    cells = alone.cells
    keep = (cells.ends > begin) & (cells.begins < end)
    kept = [column.values[keep].copy() for column in cells.settled().values()]
    for column in (*cells.settled().values(), *cells._blocks.settled().values()):
        column.count = 0
    cells._append(*kept)
    alone.set_range(begin, end)
    assert picture(alone) == culled
    assert len({culled.pixelColor(x, 12).name() for x in range(culled.width())}) > 3


def test_borders_of_steps_show_only_when_steps_are_wide(shown: Show) -> None:
    timeline = shown("chunked", requests=8)
    _, y, left, right = place(timeline, Shade.SOLID, 60)
    image = picture(timeline)
    assert len({image.pixelColor(x, int(y)).name() for x in range(int(left) + 2, int(right) - 2)}) == 1
    middle = timeline.time_at((left + right) / 2)
    timeline.set_range(middle - 0.1, middle + 0.1)
    image = picture(timeline)
    row = [image.pixelColor(x, int(y)).name() for x in range(timeline.area().left() + 2, timeline.area().right() - 2)]
    assert len(set(row)) == 2
    steps = timeline.cells.step_begins
    assert Counter(row).most_common()[1][1] == pytest.approx(
        ((steps > middle - 0.1) & (steps < middle + 0.1)).sum(), abs=1
    )


def test_a_selected_request_dims_the_others(shown: Show) -> None:
    timeline = shown("static")
    request, y, left, right = place(timeline, Shade.SOLID)
    x, own = int((left + right) / 2), theme.request_color(request)
    timeline.select(request)
    assert picture(timeline).pixelColor(x, int(y)).name() == own.name()
    timeline.select(request + 1)
    faded = picture(timeline).pixelColor(x, int(y))
    ground = theme.current().panel
    expected = [0.55 * c + 0.45 * g for c, g in zip(own.getRgb()[:3], ground.getRgb()[:3])]
    assert faded.getRgb()[:3] == pytest.approx(expected, abs=2)
    timeline.select(None)
    assert picture(timeline).pixelColor(x, int(y)).name() == own.name()


def test_a_click_tells_the_request(shown: Show, qtbot: QtBot) -> None:
    timeline = shown("static")
    request, y, left, right = place(timeline, Shade.SOLID)
    with qtbot.waitSignal(timeline.request_clicked) as clicked:
        qtbot.mouseClick(timeline, Qt.MouseButton.LeftButton, pos=QPoint(int((left + right) / 2), int(y)))
    assert clicked.args == [request]


def turn(timeline: Timeline, x: float, y: int, sideways: int = 0, control: bool = False) -> None:
    modifiers = Qt.KeyboardModifier.ControlModifier if control else Qt.KeyboardModifier.NoModifier
    at = QPointF(x, 30.0)
    event = QWheelEvent(
        at, QPointF(timeline.mapToGlobal(at.toPoint())), QPoint(), QPoint(sideways, y), Qt.MouseButton.NoButton,
        modifiers, Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    QApplication.sendEvent(timeline, event)


@pytest.mark.parametrize("control", [False, True])
def test_the_wheel_zooms_at_the_pointer(shown: Show, control: bool) -> None:
    timeline = shown("static")
    told: list[tuple[float, float]] = []
    timeline.range_changed.connect(lambda begin, end: told.append((begin, end)))
    at, whole = timeline.time_at(500.0), timeline.range()
    for _ in range(4):
        turn(timeline, 500.0, 120, control=control)
    begin, end = timeline.range()
    assert end - begin == pytest.approx((whole[1] - whole[0]) / 1.25**4)
    assert timeline.time_at(500.0) == pytest.approx(at)
    assert told[-1] == (begin, end)
    turn(timeline, 500.0, 0, sideways=-120)
    assert timeline.range() == pytest.approx((begin + 0.1 * (end - begin), end + 0.1 * (end - begin)))
    for _ in range(20):
        turn(timeline, 100.0, -120)
    assert timeline.range() == whole


def test_dragging_moves_the_time_under_the_pointer(shown: Show, qtbot: QtBot) -> None:
    timeline = shown("static")
    timeline.zoom_by(0.25)
    clicked: list[int] = []
    timeline.request_clicked.connect(clicked.append)
    at = timeline.time_at(400.0)
    button, none = Qt.MouseButton.LeftButton, Qt.MouseButton.NoButton
    for kind, x, buttons in (
        (QEvent.Type.MouseButtonPress, 400, button), (QEvent.Type.MouseMove, 370, button),
        (QEvent.Type.MouseMove, 300, button), (QEvent.Type.MouseButtonRelease, 300, none),
    ):  # fmt: skip
        own = none if kind is QEvent.Type.MouseMove else button
        place = QPointF(x, 44)
        QApplication.sendEvent(
            timeline,
            QMouseEvent(kind, place, timeline.mapToGlobal(place), own, buttons, Qt.KeyboardModifier.NoModifier),
        )
    assert timeline.time_at(300.0) == pytest.approx(at)
    assert not clicked
    qtbot.mouseDClick(timeline, button, pos=QPoint(300, 44))
    qtbot.mouseRelease(timeline, button, pos=QPoint(300, 44))  # else it is held down in all tests that follow
    assert timeline.range() == (0.0, nice_end(timeline.extent))


def test_every_move_has_its_key(shown: Show, qtbot: QtBot) -> None:
    timeline = shown("static")
    whole = timeline.range()
    qtbot.keyClick(timeline, Qt.Key.Key_W)
    zoomed = timeline.range()
    assert zoomed[1] - zoomed[0] < whole[1]
    qtbot.keyClick(timeline, Qt.Key.Key_D)
    assert timeline.range()[0] > zoomed[0]
    qtbot.keyClick(timeline, Qt.Key.Key_Left)
    assert timeline.range() == pytest.approx(zoomed)
    qtbot.keyClick(timeline, Qt.Key.Key_0)
    assert timeline.range() == whole
    timeline.select(3)
    with qtbot.waitSignal(timeline.range_changed):
        qtbot.keyClick(timeline, Qt.Key.Key_Home)
    span = timeline.cells.span(3)
    assert span is not None
    assert timeline.range()[0] <= span[0] < span[1] <= timeline.range()[1]
    for _ in range(60):
        qtbot.keyClick(timeline, Qt.Key.Key_Up)
    assert timeline.range()[1] - timeline.range()[0] >= 1e-4 * 0.999
    picture(timeline)


def test_setting_the_range_emits_nothing_and_refuses_an_empty_one(shown: Show) -> None:
    timeline = shown("static")
    told: list[float] = []
    timeline.range_changed.connect(lambda begin, end: told.append(begin))
    timeline.set_range(1.0, 2.0)
    assert timeline.range() == (1.0, 2.0)
    assert not told
    with pytest.raises(ValueError, match="after the beginning"):
        timeline.set_range(2.0, 2.0)


@pytest.mark.parametrize("slots", [1, 8, 64, 300])
@pytest.mark.parametrize("zoom", [1.0, 2.0])
def test_all_slots_have_their_place_and_no_word_is_cut(shown: Show, slots: int, zoom: float) -> None:
    theme.set_zoom(zoom)
    timeline = shown("static", width=int(700 * zoom), height=int(190 * zoom), slots=slots, requests=slots)
    area, bars = timeline.area(), timeline._bars()
    assert area.bottom() + timeline._foot() <= timeline.height() + 1
    image = picture(timeline)
    ground = theme.current().panel
    assert distance(image.pixelColor(area.left() + 30, area.bottom() - bars.pitch // 2), ground) >= 0
    assert timeline.slot_at(0) == 0
    last = timeline.slot_at(area.bottom() + 0.5)
    assert slots - timeline._slots_a_row() <= last < slots
    if slots == 8:
        assert 10 * zoom <= bars.bar <= 20 * zoom
    if slots == 64:
        assert bars.bar == bars.pitch or zoom == 2.0
    edges = [image.pixelColor(x, y) for x in (0, image.width() - 1) for y in range(image.height())]
    edges += [image.pixelColor(x, image.height() - 1) for x in range(image.width())]
    rule = theme.over(theme.current().hairline, ground)
    assert all(min(distance(c, ground), distance(c, rule)) < 12 for c in edges), "a word touches the rim"


def test_an_empty_timeline_says_so(qtbot: QtBot) -> None:
    timeline = Timeline()
    qtbot.addWidget(timeline)
    timeline.resize(600, 120)
    timeline.show()
    image = picture(timeline)
    assert len({image.pixelColor(x, y).name() for x in range(0, 600, 3) for y in range(40, 80)}) > 4
    assert timeline.accessibleName() == "Timeline"
    assert timeline.accessibleDescription() == timeline.empty_text
    timeline.feed(lane_trace("static", slots=2, requests=2))
    assert timeline.accessibleDescription().startswith("2 slots, ")
    timeline.clear()
    assert timeline.accessibleDescription() == timeline.empty_text


def test_a_change_of_theme_or_zoom_is_drawn_at_once(shown: Show) -> None:
    timeline = shown("static")
    request, y, left, right = place(timeline, Shade.SOLID)
    theme.set_theme("light")
    color = picture(timeline).pixelColor(int((left + right) / 2), int(y))
    assert color.name() == theme.request_color(request).name()
    assert picture(timeline).pixelColor(1, timeline.height() - 1) == theme.current().panel
    theme.set_zoom(2.0)
    assert timeline._bars().period == 12


@pytest.mark.parametrize("mode", ["recompute", "static", "continuous", "chunked"])
def test_drawing_only_what_is_new_gives_the_picture_that_drawing_everything_gives(qtbot: QtBot, mode: str) -> None:
    records = list(lane_trace(mode, slots=8, requests=40))
    whole, growing = Timeline(), Timeline()
    end = max(record.ended for record in records if isinstance(record, Step))
    for timeline in (whole, growing):
        qtbot.addWidget(timeline)
        timeline.resize(900, 200)
        timeline.set_slots(8)
        timeline.set_range(0.0, 1.1 * end)
    drawings, rng, at = 0, np.random.default_rng(0), 0
    while at < len(records):
        more = int(rng.integers(1, 30))
        growing.feed(records[at : at + more])
        at += more
        if len(growing.cells):
            growing._draw()
            drawings += 1
    whole.feed(records)
    whole._draw()
    assert drawings > 5
    np.testing.assert_array_equal(growing._pixels, whole._pixels)
