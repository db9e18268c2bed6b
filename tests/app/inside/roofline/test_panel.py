"""The bottleneck panel: points as one would reckon them by hand, the limit in words, and the way to a point's step."""

from dataclasses import replace
from itertools import combinations, product
from math import inf
from pathlib import Path
from time import process_time

import numpy as np
import pytest
import torch
from PySide6.QtCore import QPoint, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPolygonF
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from app.bench.synthetic import synthetic_trace
from app.inside.roofline.elsewhere import BESIDE, elsewhere_words
from app.inside.roofline.panel import COLUMNS, ROWS, Roofline
from app.inside.roofline.parts import TITLES, part_words
from app.inside.roofline.points import Bound, RooflinePoints
from app.inside.roofline.words import FORMULAS, amount, detail, headline, rate_words, summary
from app.playback.scope import Scope
from app.plot.scales import decade_ticks
from app.ui.look import theme
from app.ui.look.font_face import FontFace
from app.words import duration
from engine import Engine, EngineConfig, Trace, load_trace, load_workload, save_trace
from engine.bench.cpu.alone import alone
from engine.core.setup.roof import measure_roof
from engine.memory import datasheets
from engine.trace import Header, Kind, Record, Roof, Step, count_work
from tests.engine.trace.hand_made import CARD, header, step

ROOF = Roof((1000, 1_000_000), (1e9, 1e8), 5e9)
USUAL_ROOF = Roof((1 << 18, 1 << 21, 1 << 24, 1 << 27), (70e9, 40e9, 20e9, 8e9), 45e9)


@pytest.fixture(scope="module")
def run(engine: Engine) -> Trace:
    config = EngineConfig(mode="chunked", max_running=8, token_budget=64)
    return engine.run(load_workload("mixed-lengths", count=8), config).result()


@pytest.fixture
def panel(qtbot: QtBot, scope: Scope) -> Roofline:
    panel = Roofline(scope)
    qtbot.addWidget(panel)
    panel.resize(560, 380)
    panel.show()
    return panel


def steps_of(trace: Trace) -> list[Step]:
    return [record for record in trace.records if isinstance(record, Step) and record.rows]


def made(mode: str = "continuous", roof: Roof | None = ROOF, seconds: float = 1.0, wall: float = 1.0) -> RooflinePoints:
    """Points of one decode step of three rows and one prefill of 900 tokens, their forwards of so many seconds."""
    card = replace(CARD, body_parameters=1000, head_parameters=10, bytes_per_weight=4.0, kv_token_bytes=8)
    points = RooflinePoints()
    points.take([replace(header(EngineConfig(mode=mode)), model=card, roof=roof)])
    decode = step(0, 0.0, wall, [(i, 4, 1, Kind.DECODE) for i in range(3)], {0: 1, 1: 1, 2: 1})
    prefill = step(1, wall, 2 * wall, [(0, 0, 900, Kind.PREFILL)], {0: 1})
    points.take([replace(each, seconds={"forward": seconds}) for each in (decode, prefill)])
    return points


def test_a_point_is_what_its_step_computes_over_what_it_reads() -> None:
    point = made().point(0)
    size = 1000 * 4 + 10 * 4 + 3 * 1 * 4 + 3 * (5 + 1) * 8
    operations = 2 * 1000 * 3 + 2 * 10 * 3 + 3 * 4 * 5
    assert (point.bytes, point.operations, point.tokens, point.rows) == (size, operations, 3, 3)
    assert point.intensity == operations / size
    assert point.achieved == operations
    bandwidth = 1e9 + (1e8 - 1e9) * np.log(size / 1000) / np.log(1000)
    assert point.limit == pytest.approx(bandwidth * operations / size)
    assert point.share == pytest.approx(operations / point.limit)


def test_the_limit_that_binds_is_the_lower_part_of_the_roof() -> None:
    near = 6300 / 2e9
    assert made(seconds=near, wall=near).point(0).bound is Bound.MEMORY
    prefill = made(seconds=5e-4, wall=5e-4).point(1)
    assert prefill.limit == 5e9
    assert prefill.bound is Bound.COMPUTE
    assert prefill.intensity > made().point(0).intensity


def test_a_step_far_below_the_roof_is_held_up_by_something_else() -> None:
    assert made(seconds=1.0).point(0).bound is Bound.OVERHEAD
    point = made(seconds=0.25, wall=1.0).point(0)
    assert point.bound is Bound.OUTSIDE
    assert point.outside == 0.75
    assert headline(point) == "On memory's side of the roof: each weight is read for 3 tokens"
    assert "Neither limit binds here: 75 % of the step is outside the model" in detail(point)
    assert headline(made(seconds=1.0).point(1)).startswith("On compute's side of the roof")


def test_without_a_roof_the_intensity_is_still_told() -> None:
    point = made(roof=None).point(0)
    assert (point.bound, point.limit, point.share) == (Bound.UNKNOWN, 0, 0)
    assert "operations per byte" in headline(point)
    assert "no measured roof" in summary(point)
    assert "no measured roof" in detail(point)


def test_a_gpus_step_takes_the_time_between_ends() -> None:
    """Its forward only launches: two steps of 10 ms, the second launched while the first was computed."""
    points = RooflinePoints()
    points.take([replace(header(EngineConfig()), model=replace(CARD, device="cuda:0"), roof=ROOF)])
    rows = [(0, 4, 1, Kind.DECODE)]
    points.take([step(0, 0.000, 0.010, rows, {0: 1}), step(1, 0.002, 0.020, rows, {0: 1})])
    assert [points.point(i).seconds for i in (0, 1)] == pytest.approx([0.010, 0.010])


def test_words_for_numbers() -> None:
    assert [amount(v) for v in (0.0, 0.5, 12.34, 999.6, 2.3e11, 1e13)] == ["0", "0.5", "12.3", "1 k", "230 G", "10 T"]
    assert rate_words(2.219e11) == "222 GFLOP/s"
    assert decade_ticks(-0.1, 3.2) == [1, 10, 100, 1000]
    assert decade_ticks(0, 1) == [1, 2, 5, 10]


def test_a_step_beyond_the_roof_says_that_the_roof_was_measured_low() -> None:
    point = made(seconds=1e-7, wall=1e-7).point(0)
    assert point.share > 1.05
    assert "more than the bandwidth that was measured" in detail(point)


def highest_roof(header: Header) -> Roof:
    """Of that of the load and one of now: another program may have used what the run had to itself."""

    def measure() -> Roof:
        torch.set_num_threads(header.machine.threads)
        return measure_roof(torch.device("cpu"), torch.float32, header.model.hidden, 4 * header.model.hidden)

    then, now = header.roof, alone(measure)
    assert then is not None
    assert then.working_sets == now.working_sets
    fastest = tuple(map(max, then.bandwidths, now.bandwidths))
    return Roof(now.working_sets, fastest, max(then.operations, now.operations))


def test_prefill_lands_right_of_decode_and_both_below_the_roof(run: Trace) -> None:
    points = RooflinePoints()
    points.take(list(steps_of(run))[:0])
    points.take([run.header])
    points.take(steps_of(run))
    across, up = points.places(0, len(points))
    kinds = np.array([point.kind for point in map(points.point, range(len(points)))])
    assert np.median(across[kinds != "decode"]) > 2 * np.median(across[kinds == "decode"])
    assert points.density.sum() == len(points)
    best = RooflinePoints()
    best.take([replace(run.header, roof=highest_roof(run.header))])
    best.take(steps_of(run))
    limits = np.array([best.point(i).limit for i in range(len(best))])
    assert np.median(up / limits) <= 1.2, "counted work is no more than the machine can do"


@pytest.mark.parametrize("saved", [False, True])
def test_the_panel_tells_of_the_step_at_the_cursor(panel: Roofline, run: Trace, tmp_path: Path, saved: bool) -> None:
    if saved:
        save_trace(run, tmp_path / "a run.batchscope")
        run = load_trace(tmp_path / "a run.batchscope")
    scope = panel.scope
    scope.show(run)
    scope.catch_up()
    steps = steps_of(run)
    for place in (len(steps) - 1, 3, len(steps) // 2):
        scope.seek(steps[place].ended)
        scope.catch_up()
        point = panel.plot.point
        assert point is not None
        work = count_work(run.header, [steps[place]])
        assert point.step == steps[place].step
        assert point.operations == work.operations[0]
        assert point.seconds == steps[place].seconds["forward"]
        facts = panel.facts()
        assert facts.columns == COLUMNS
        assert len(facts.rows) == min(ROWS, place + 1)
        row = dict(zip(facts.columns, facts.rows[-1]))
        assert row["step"] == steps[place].step
        assert row["operations a second"] == pytest.approx(row["operations"] / steps[place].seconds["forward"])
        assert row["operations per byte"] == pytest.approx(row["operations"] / row["bytes"])
        assert panel.summary.accessibleName() == summary(point)
        assert headline(point) in panel.plot.accessibleDescription()


def test_products_and_attention_stand_apart_where_they_were_timed(panel: Roofline, run: Trace) -> None:
    scope, plot = panel.scope, panel.plot
    panel.resize(820, 460)
    scope.show(run)
    steps = steps_of(run)
    place = max(range(len(steps)), key=lambda place: steps[place].rows)
    scope.seek(steps[place].ended)
    scope.catch_up()
    plot.grab()
    step, kernels, work = steps[place], run.header.kernels, count_work(run.header, [steps[place]])
    assert kernels is not None
    products, attention = plot.point.parts
    spent = sum(float(s) for s, weights in zip(step.kernel, kernels.weights) if weights)
    assert products.achieved == pytest.approx(work.matmul_operations[0] / spent)
    assert attention.achieved == pytest.approx(work.attention_operations[0] / step.attention)
    assert attention.intensity < plot.point.intensity < products.intensity
    assert products.bytes + attention.bytes == pytest.approx(plot.point.bytes)
    (box, part), _ = plot._parts
    assert part == products
    assert plot.tip(box.center()) == part_words(products)
    assert "matrix products: " in part_words(products)
    scope.show(Trace())
    scope.catch_up()
    assert plot.tip(box.center()) == FORMULAS
    assert made().point(0).parts == [], "nobody timed them"


def test_before_the_first_step_and_without_a_run_it_says_so(panel: Roofline, run: Trace) -> None:
    scope = panel.scope
    scope.catch_up()
    assert "nothing has run yet" in panel.plot.accessibleDescription()
    assert not panel.facts().rows
    scope.show(run)
    scope.seek(0.0)
    scope.catch_up()
    assert panel.plot.point is None
    assert not panel.facts().rows
    scope.show(Trace())
    scope.catch_up()
    assert len(panel.points) == 0


def test_a_click_on_a_point_goes_to_its_step(qtbot: QtBot, panel: Roofline, run: Trace) -> None:
    scope, plot = panel.scope, panel.plot
    scope.show(run)
    scope.catch_up()
    plot.grab()
    first, xs, ys = plot._drawn
    place = plot.nearest(xs[5], ys[5])
    assert place >= 0
    assert (xs[place - first], ys[place - first]) == (xs[5], ys[5])
    assert f"step {plot.points.point(place).step:,}" in plot.tip(QPointF(xs[5], ys[5]))
    assert plot.nearest(xs[5], plot.height() + 500.0) == -1
    assert plot.tip(QPointF(-500, -500)) == FORMULAS
    at = QPoint(round(xs[5]), round(ys[5]))
    near = plot.nearest(at.x(), at.y())
    qtbot.mouseMove(plot, at)
    qtbot.mouseClick(plot, Qt.MouseButton.LeftButton, pos=at)
    assert scope.moment == plot.points.ended[near]


def test_keys_go_from_step_to_step_and_a_row_of_the_table_to_its_step(
    qtbot: QtBot, panel: Roofline, run: Trace
) -> None:
    scope = panel.scope
    scope.show(run)
    scope.catch_up()
    steps = steps_of(run)
    scope.seek(steps[10].ended)
    qtbot.keyClick(panel.plot, Qt.Key.Key_Left)
    assert scope.moment == steps[9].ended
    qtbot.keyClick(panel.plot, Qt.Key.Key_Right)
    assert scope.moment == steps[10].ended
    scope.catch_up()
    panel.row_chosen(4)
    assert scope.moment == steps[4].ended
    scope.follow()
    assert scope.moment == inf


@pytest.mark.parametrize("look", ["dark", "light"])
@pytest.mark.parametrize(("width", "zoom"), [(300, 1.0), (1600, 1.0), (620, 2.0)])
def test_it_is_drawn_at_every_size_and_zoom(panel: Roofline, run: Trace, look: str, width: int, zoom: float) -> None:
    theme.set_theme(look)
    theme.set_zoom(zoom)
    panel.resize(width, 420)
    panel.scope.show(run)
    panel.scope.catch_up()
    image = panel.plot.grab().toImage()
    colors = {QColor(image.pixel(x, y)).name() for x in range(0, image.width(), 2) for y in range(0, image.height(), 2)}
    assert theme.current().accent.name() in colors, "the point at the cursor"
    assert len(colors) > 20


def test_what_was_not_counted_on_the_card_is_marked_as_an_estimate(panel: Roofline) -> None:
    records: list[Record] = synthetic_trace(streams=16, tokens_per_second=1600, seconds=3.0)
    assert isinstance(records[0], Header)
    records[0] = replace(records[0], roof=None)
    panel.scope.show(Trace(records))
    panel.scope.catch_up()
    assert len(panel.points) > 20
    assert panel.summary.text().startswith("~ ")
    assert "no measured roof" in panel.plot.accessibleDescription()
    panel.plot.grab()


def test_taking_steps_costs_little(run: Trace) -> None:
    """An hour at 100 steps a second is 360,000: each must cost some tens of microseconds, here with room for noise."""
    points, steps = RooflinePoints(), steps_of(run)
    points.take([run.header])
    begun = process_time()
    for i in range(0, len(steps), 8):
        points.take(steps[i : i + 8])
    assert (process_time() - begun) / len(steps) < 0.001


def test_where_a_trace_has_no_step_nothing_of_the_one_before_is_pointed_at(
    panel: Roofline, scope: Scope, run: Trace
) -> None:
    scope.show(run)
    scope.catch_up()
    panel.plot.repaint()
    plot = panel.plot
    first, xs, ys = plot._drawn
    assert plot.nearest(float(xs[-1]), float(ys[-1])) >= 0
    scope.show(Trace([run.header]))
    assert plot.nearest(float(xs[-1]), float(ys[-1])) == -1, "before it is drawn"
    scope.catch_up()
    plot.repaint()
    assert plot.tip(QPointF(xs[-1], ys[-1])) == FORMULAS
    chosen: list[float] = []
    plot.sought.connect(chosen.append)
    QTest.mouseClick(plot, Qt.MouseButton.LeftButton, pos=QPoint(round(float(xs[-1])), round(float(ys[-1]))))
    assert not chosen


@pytest.mark.parametrize("beside", ["", "H100"])
@pytest.mark.parametrize("size", [(290, 150), (290, 180), (420, 260), (900, 600)])
def test_words_do_not_lie_over_each_other_however_low_it_is(
    panel: Roofline, run: Trace, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], beside: str
) -> None:
    """Whatever this machine measures, on a usual one: also with parts that are as fast, or far from each other."""
    BESIDE.set(beside)
    panel.resize(*size)
    usual = [replace(each, seconds={"forward": 1.5e-3 + 1e-4 * int(each.count.sum())}) for each in steps_of(run)]
    panel.scope.show(Trace([replace(run.header, roof=USUAL_ROOF), *usual]))
    panel.scope.catch_up()
    plot, said = panel.plot, list[tuple[str, QPolygonF]]()
    say = FontFace.say

    def noted(self: FontFace, painter: QPainter, x: float, y: float, text: str, color: QColor, *, before=0.0) -> None:
        box = QRectF(x - before * self.width(text), y - self.cap, self.width(text), self.cap)
        said.append((text, painter.worldTransform().map(QPolygonF(box))))
        say(self, painter, x, y, text, color, before=before)

    monkeypatch.setattr(FontFace, "say", noted)
    measured, named = plot.point, 0
    assert measured is not None
    for shares in [(0.8, 0.1), *product((0.05, 0.2, 0.4, 0.8, 1.0), repeat=2)]:
        made = replace(measured, products=shares[0] * measured.seconds, attention=shares[1] * measured.seconds)
        monkeypatch.setattr(RooflinePoints, "point", lambda self, place, made=made: made)
        said.clear()
        plot.grab()
        over = [(a, b) for (a, one), (b, two) in combinations(said, 2) if one.intersects(two)]
        assert said
        assert over == [], shares
        named += sum(text.startswith(tuple(TITLES.values())) for text, _ in said)
    assert (named > (5 if beside else 25)) == (size[1] > 150), "of 52; none where there is no room"
    assert plot._verdict(0.0) == [], "the drawing comes first: the panel's head has the verdict in short"
    assert next(text for *_, text in plot._verdict(inf)) == headline(made)


def test_a_device_that_is_not_here_has_its_roof_beside_this_machines(panel: Roofline, run: Trace) -> None:
    panel.scope.show(run)
    panel.scope.catch_up()
    assert panel.plot.elsewhere is None
    plain = panel.plot.grab().toImage()
    (menu,) = [each.menu() for each in panel.menu.actions() if each.text() == "Beside another device"]
    assert isinstance(menu, QMenu)
    (h100,) = [each for each in menu.actions() if each.text() == "H100"]
    h100.trigger()
    panel.catch_up()
    menu.aboutToShow.emit()
    assert [each.text() for each in menu.actions() if each.isChecked()] == ["H100"]
    points, point, place = panel.points, panel.plot.point, panel.plot.place
    assert point is not None
    dtype = run.header.model.dtype
    (sheet,) = [each for each in datasheets() if each.name == "H100"]
    least = [max(b / 3.35e12, n / sheet.operations[dtype]) for b, n in zip(points.bytes, points.operations)]
    assert panel.facts().rows[-1][-2:] == ("H100", pytest.approx(least[place]))
    assert points.least_until(place, sheet.bandwidth, sheet.rate(dtype)) == pytest.approx(sum(least[: place + 1]))
    there = panel.plot.elsewhere
    assert there is not None
    words = elsewhere_words(points, point, place, there)
    assert "H100, as published" in words
    assert duration(sum(least)) in words
    assert duration(least[place]) in words
    assert panel.plot.grab().toImage() != plain
    assert BESIDE.value == "H100"
