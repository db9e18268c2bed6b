"""The KV map driven offscreen, live and from saved runs of the demo model."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtTest import QTest
from pytestqt.qtbot import QtBot

from app.bench.synthetic import header, synthetic_trace
from app.inside.kv_map import flashes
from app.inside.kv_map.contiguous import strips_of
from app.inside.kv_map.history import KvHistory
from app.inside.kv_map.legend import KvLegend
from app.inside.kv_map.panel import KvMap, KvPicture
from app.inside.kv_map.pixels import front_of, grid_for
from app.inside.kv_map.state import CACHED, FREE, KvState
from app.inside.kv_map.words import ALL_FREE, EMPTY, HINT, NO_CACHE, SHORT_HINTS
from app.ui.look import theme
from engine import Engine, EngineConfig, SamplingParams, Trace, Workload, load_trace, save_trace
from engine.trace import Header, Step
from engine.workloads import Arrival
from tests.app.contrast import contrast
from tests.app.inside.kv_map.plain_pool import PlainPool
from tests.app.inside.kv_map.test_state import assert_equal, assert_tables

BLOCK = 6144 * 16  # bytes of a block of 16 tokens of the demo model
STORIES = Workload(
    "stories",
    tuple(
        Arrival(
            0.0,
            "Once upon a time there was a fox who lived by the sea"[: 20 + 4 * i],
            SamplingParams(max_tokens=32 + 5 * i, temperature=0, ignore_eos=True),
        )
        for i in range(9)
    ),
)
ALIKE = Workload(
    "alike",
    tuple(
        Arrival(0.0, [*range(100, 140), 7, i], SamplingParams(max_tokens=20 + i, temperature=0, ignore_eos=True))
        for i in range(9)
    ),
)

Show = Callable[..., KvMap]


@pytest.fixture(scope="module")
def runs(engine: Engine) -> dict[str, Trace]:
    """One real run of each kind, complete."""
    small = EngineConfig("continuous", 6, kv_memory=16 * BLOCK)
    ahead = EngineConfig("chunked", 6, kv_memory=16 * BLOCK, depth=1)
    prefix = EngineConfig("chunked", 3, token_budget=64, kv_memory=24 * BLOCK, prefix_caching=True)
    configs = {
        "small": (STORIES, small),
        "small, a step ahead": (STORIES, ahead),
        "prefix": (ALIKE, prefix),
        "static": (STORIES, EngineConfig("static", 4, kv_memory=40 * BLOCK)),
        "padded": (STORIES, EngineConfig("continuous-padded", 4, kv_memory=40 * BLOCK, depth=1)),
        "recompute": (Workload("two", STORIES.arrivals[:2]), EngineConfig("recompute")),
    }
    samples = [([9, 8, 7, 6, 5] * 9, SamplingParams(n=4, max_tokens=24, seed=1)), ([5] * 30, SamplingParams(n=2))]
    engine.begin(EngineConfig("continuous", 8, kv_memory=64 * BLOCK))
    for stream in [engine.submit(ids, params) for ids, params in samples]:
        stream.result()
    result = {"samples": Trace(list(engine.trace.records))}
    result |= {name: engine.run(workload, config).result() for name, (workload, config) in configs.items()}
    return result


@pytest.fixture
def shown(open_panel) -> Show:
    return lambda trace, width=640, height=420: open_panel(KvMap, trace, width, height)


def go(panel: KvMap, place: int) -> KvState:
    """Moves the cursor to a step."""
    panel.scope.seek(float(panel.scope.step_ends[place]))
    panel.scope.catch_up()
    state = panel.state()
    assert state is not None
    return state


def pools(trace: Trace) -> Iterator[PlainPool]:
    """The pool after each step, in plain arithmetic."""
    pool = None
    for record in trace.records:
        if isinstance(record, Header):
            pool = PlainPool(record)
            continue
        assert pool is not None
        if isinstance(record, Step) and pool.at >= 0:
            yield pool
        pool.feed(record)
    assert pool is not None
    yield pool


def place_where(panel: KvMap, wanted: Callable[[KvState], bool]) -> KvState:
    """Moves the cursor to the middle one of the steps after which something holds."""
    history, records = panel.history, panel.scope.trace.records
    places = [place for place in range(history.steps) if wanted(history.at(place, records))]
    assert places, "the run has no such moment"
    return go(panel, places[len(places) // 2])


def center(panel: KvMap, block: int) -> QPoint:
    return panel.view.grid.box(block).center().toPoint()


def click(panel: KvMap, block: int) -> None:
    QTest.mouseClick(panel.view.grid, Qt.MouseButton.LeftButton, pos=center(panel, block))
    panel.scope.catch_up()


def cell(panel: KvMap, block: int) -> QImage:
    return panel.view.grid.grab(panel.view.grid.box(block).toRect()).toImage()


def near(one: QColor, other: QColor) -> bool:
    parts = zip(one.getRgb()[:3], other.getRgb()[:3])  # type: ignore[arg-type]
    return max(abs(a - b) for a, b in parts) <= 2


# -- what it holds ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["small", "small, a step ahead", "prefix", "samples", "static", "padded"])
def test_a_run_read_back_from_a_file_shows_what_plain_arithmetic_gives(
    shown: Show, runs: dict[str, Trace], name: str, tmp_path: Path
) -> None:
    save_trace(runs[name], tmp_path / "a.bsrun")
    trace = load_trace(tmp_path / "a.bsrun")
    panel = shown(trace)
    steps = panel.scope.steps
    chosen = set(random.Random(name).sample(range(steps), min(25, steps))) | {steps - 1}
    plain = {pool.at: (pool.cells(), pool.kinds()) for pool in pools(trace) if pool.at in chosen}
    for place in random.Random(7).sample(sorted(chosen), len(chosen)):
        state = go(panel, place)
        cells, kinds = plain[place]
        assert state.at == place
        assert_equal(state, cells)
        counted = state.kinds()
        assert (counted.used, counted.reserved, counted.internal) == kinds
        if trace.header.depth == 0:
            step = panel.scope.step_at(place)
            assert kinds == (step.kv_used, step.kv_reserved, step.kv_internal)


def test_the_runs_have_what_the_map_is_to_show(runs: dict[str, Trace]) -> None:
    """Else the test before this one would prove nothing."""
    steps = {name: trace.steps for name, trace in runs.items()}
    assert any(len(step.preempted) for step in steps["small"])
    assert any(len(step.preempted) for step in steps["small, a step ahead"])
    assert any(len(step.copied) for step in steps["samples"])
    assert any(step.cached_blocks for step in steps["prefix"])
    assert any((step.reused > 0).any() for step in steps["prefix"])
    assert any(step.kv_internal for step in steps["static"])


def test_a_run_under_way_is_followed(shown: Show, engine: Engine, qtbot: QtBot) -> None:
    run = engine.run(STORIES, EngineConfig("continuous", 4, kv_memory=30 * BLOCK))
    panel = shown(run.trace)
    pool, fed, compared = None, 0, 0
    while not run.done:
        qtbot.wait(10)
        panel.scope.catch_up()
        records = list(run.trace.records[fed : panel._position])
        fed += len(records)
        for record in records:
            if isinstance(record, Header):
                pool = PlainPool(record)
            assert pool is not None
            pool.feed(record)
        if pool is None or not records:
            continue
        state = panel.state()
        assert state is not None
        assert_equal(state, pool.cells())
        assert_tables(state, pool)
        compared += bool(state.references.any())
    assert compared
    panel.scope.catch_up()
    assert panel.summary.accessibleName() == "0 of 30 blocks · 0 %"


# -- how it looks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dark", "light"])
def test_a_block_is_filled_from_its_bottom_in_its_owners_colour(shown: Show, runs: dict[str, Trace], name: str) -> None:
    theme.set_theme(name)
    panel = shown(runs["small"])
    state = place_where(panel, lambda s: bool(((s.filled > 4) & (s.filled < 12) & (s.references > 0)).any()))
    block = int(np.flatnonzero((state.filled > 4) & (state.filled < 12) & (state.references > 0))[0])
    image, own = cell(panel, block), theme.request_color(int(state.owner[block]))
    middle, height = image.width() // 2, image.height()
    solid = [near(image.pixelColor(middle, y), own) for y in range(1, height - 2)]
    assert not solid[0]
    assert solid[-1]
    assert sum(solid) / len(solid) == pytest.approx(int(state.filled[block]) / state.size, abs=0.12)
    assert contrast(image.pixelColor(middle, 1), own) > 1.5
    free = int(np.flatnonzero(state.owner == FREE)[0])
    ground = theme.over(theme.current().hairline, theme.current().panel)
    assert near(cell(panel, free).pixelColor(4, 4), ground)


def test_cached_blocks_are_hatched_and_shared_ones_have_a_cut_corner_and_a_count(
    shown: Show, runs: dict[str, Trace]
) -> None:
    panel = shown(runs["prefix"])
    state = place_where(panel, lambda s: bool((s.owner == CACHED).any() and (s.references > 1).any()))
    cached = cell(panel, int(np.flatnonzero(state.owner == CACHED)[0]))
    colors = {cached.pixelColor(x, y).name() for x in range(2, 18) for y in range(2, 18)}
    assert len(colors) >= 2
    block = int(np.flatnonzero(state.references > 1)[0])
    shared = cell(panel, block)
    assert near(shared.pixelColor(shared.width() - 3, 1), theme.current().panel)
    own = theme.request_color(int(state.owner[block]))
    inside = [shared.pixelColor(x, y) for x in range(4, shared.width() - 6) for y in range(6, shared.height() - 6)]
    assert any(near(color, own) for color in inside)
    assert not all(near(color, own) for color in inside), "the count is written in it"
    assert "shared" in panel.summary.accessibleName()
    assert "cached" in panel.summary.accessibleName()


def test_the_selected_requests_blocks_stay_strong_and_others_are_muted(shown: Show, runs: dict[str, Trace]) -> None:
    panel = shown(runs["small"])
    state = place_where(panel, lambda s: len(s.tables.live) >= 3)
    full = np.flatnonzero((state.filled == state.size) & (state.references > 0))
    one, other = int(full[0]), int(next(b for b in full if state.owner[b] != state.owner[full[0]]))
    panel.scope.select(int(state.owner[one]))
    panel.scope.catch_up()
    corner = 2, 2
    assert near(cell(panel, one).pixelColor(*corner), theme.request_color(int(state.owner[one])))
    muted = cell(panel, other).pixelColor(*corner)
    strong = theme.request_color(int(state.owner[other]))
    assert not near(muted, strong)
    ground = theme.current().panel
    share = (muted.red() - ground.red()) / (strong.red() - ground.red())
    assert share == pytest.approx(0.55, abs=0.03)


def test_a_hit_a_copy_and_an_eviction_are_marked_for_a_moment_each_in_its_way(
    shown: Show, runs: dict[str, Trace], qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = shown(runs["samples"])
    steps = runs["samples"].steps
    place = next(i for i, step in enumerate(steps) if i and len(step.copied_to))
    go(panel, place - 1)
    assert not panel.view.grid.marks, "going there from the end is no event"
    quiet = panel.view.grid.grab().toImage()
    go(panel, place)
    assert panel.view.grid.marks
    marked = panel.view.grid.grab().toImage()
    qtbot.waitUntil(lambda: not panel.view.grid.marks, timeout=2000)
    qtbot.waitUntil(lambda: not panel.view.grid._fade.isActive(), timeout=2000)
    assert panel.view.grid.grab().toImage() != marked
    assert marked != quiet
    panel.view.grid.marks.note(panel.history.at(place, runs["samples"].records), place - 1)
    panel.hide()
    assert not panel.view.grid.marks
    assert not panel.view.grid._fade.isActive()
    pictures = []
    for mark in (flashes.Mark.SHARED, flashes.Mark.COPIED, flashes.Mark.EVICTED):
        image = QImage(30, 30, QImage.Format.Format_RGB32)
        image.fill(theme.current().panel)
        painter = flashes.QPainter(image)
        flashes.draw_mark(painter, mark, flashes.QRectF(5, 5, 20, 20))
        painter.end()
        ground = QColor(theme.current().panel)
        pictures.append(np.array([[not near(image.pixelColor(x, y), ground) for x in range(30)] for y in range(30)]))
    for i, one in enumerate(pictures):
        for other in pictures[:i]:
            assert (one != other).sum() > 30, "told apart by shape alone"


def test_every_block_has_a_place_in_the_picture_that_finds_it_again() -> None:
    for blocks in (1, 7, 64, 1024, 5000, 65_536):
        for width, height in ((300, 180), (500, 600), (1600, 200), (160, 80)):
            check_grid(blocks, width, height)


def check_grid(blocks: int, width: int, height: int) -> None:
    grid = grid_for(blocks, width, height, 22)
    assert grid.columns * grid.pitch <= width
    assert grid.rows * grid.rise <= height
    assert grid.pitch <= 22
    corners = {grid.corner(block) for block in range(blocks)}
    assert len(corners) == -(-blocks // grid.each)
    for block in range(0, blocks, max(1, blocks // 500)):
        x, y = grid.corner(block)
        assert grid.block_at(x, y) // grid.each == block // grid.each
    assert grid.block_at(-1, 0) == grid.block_at(0, grid.rows * grid.rise) == -1
    if grid.each == 1 and grid.pitch < 22:
        larger = grid.pitch + 1
        assert (width // larger) * (height // larger) < blocks, "cells are as large as they can be"


def test_of_a_large_pool_those_blocks_are_shown_that_were_taken(shown: Show, engine: Engine) -> None:
    assert [front_of(reach, 4096) for reach in (0, 64, 65, 700, 1025)] == [64, 64, 128, 1024, 4096]
    assert front_of(3, 100) == 100, "nothing is won by leaving out a few"
    engine.run(STORIES, EngineConfig("continuous", 6, kv_memory=1000 * BLOCK)).result(60)
    panel = shown(engine.trace)
    view, grid = panel.view, panel.view.grid
    taken = max(int(r.block.max()) for r in engine.trace.records if isinstance(r, Step) and len(r.block))
    assert grid.shown == front_of(taken + 1, 1000) <= 128
    assert grid.block_at(QPointF(grid.width() - 1, grid.height() - 1)) < grid.shown
    assert view.words.text() in ALL_FREE, "the requests are over"
    state = go(panel, 20)
    owned = np.flatnonzero(state.references)
    assert cell(panel, int(owned[0])).width() >= 20, "and large enough to be seen"
    assert view.rest.isVisible()
    assert f"{1000 - grid.shown} blocks" in view.rest.text()
    QTest.keyClick(grid, Qt.Key.Key_End)
    assert grid.pointed == grid.shown - 1
    view.rest.click()
    panel.scope.catch_up()
    assert grid.shown == state.blocks == 1000
    assert panel.whole_pool.isChecked()
    assert view.rest.isVisible()
    other = shown(engine.trace)
    assert other.view.grid.shown == 1000, "remembered"
    view.rest.click()
    panel.share_range(0, 1)
    panel.stale()
    panel.scope.catch_up()
    assert grid.shown == 1000, "beside other lanes"
    assert not view.rest.isVisible()


def test_65536_blocks_are_drawn(shown: Show) -> None:
    records = synthetic_trace(streams=64, seconds=0.5, tokens_per_second=20_000)
    start = records[0]
    assert isinstance(start, Header)
    trace = Trace([type(start)(**{f: getattr(start, f) for f in start.__slots__} | {"blocks": 65_536}), *records[1:]])
    panel = shown(trace, 500, 700)
    state = panel.state()
    assert state is not None
    panel.whole_pool.setChecked(True)
    panel.scope.catch_up()
    QTest.qWait(0)  # laid out
    image, grid = panel.view.grid.grab().toImage(), panel.view.grid
    assert grid.grid.columns * grid.grid.rows >= 65_536
    for block in np.flatnonzero(state.filled == state.size)[:200].tolist():
        assert near(image.pixelColor(center(panel, block)), theme.request_color(int(state.owner[block])))
    panel.scope.select(int(state.owner[state.owner >= 0][0]))
    panel.scope.catch_up()
    assert grid.grab().toImage() != image


@pytest.mark.parametrize("zoom", [1.0, 2.0])
@pytest.mark.parametrize("width", [300, 1600])
def test_it_fits_narrow_and_wide(shown: Show, runs: dict[str, Trace], zoom: float, width: int) -> None:
    theme.set_zoom(zoom)
    panel = shown(runs["samples"], width, int(420 * zoom))
    state = place_where(panel, lambda s: 0 in s.samples(0))
    panel.scope.select(0)
    panel.view.grid.point_at(int(state.samples(0)[0][0]))
    panel.stale()
    panel.scope.catch_up()
    view = panel.view
    beside = width >= theme.px(520)
    assert (view.table.x() > view.maps.x()) == beside
    assert view.table.geometry().bottom() <= view.words.y()
    assert view.words.height() >= view.words.heightForWidth(view.words.width()) - 2, "no line is cut"
    assert panel.minimumSizeHint().width() <= 300 * zoom


# -- the person ---------------------------------------------------------------------------------------------------


def test_a_click_says_whose_a_block_is_and_selects_its_owner(shown: Show, runs: dict[str, Trace]) -> None:
    panel = shown(runs["small"])
    state = place_where(panel, lambda s: len(s.tables.live) >= 3)
    block = int(np.flatnonzero(state.references > 0)[-1])
    owner, since = int(state.owner[block]), int(state.since[block])
    click(panel, block)
    assert panel.scope.request == owner
    words = panel.view._said
    assert words.startswith(f"Block {block} belongs to #{owner} since ")
    seconds = float(panel.scope.step_ends[since]) - panel.scope.origin
    assert f"since {seconds:.2f} s" in words
    assert f"{int(state.filled[block])} of {state.size} tokens filled" in words
    click(panel, int(np.flatnonzero(state.owner == FREE)[0]))
    assert panel.scope.request == -1
    assert "is free" in panel.view._said


def test_the_tokens_in_a_block_are_told_by_their_text(shown: Show, runs: dict[str, Trace]) -> None:
    trace = runs["small"]
    panel = shown(trace)
    state = place_where(panel, lambda s: bool((s.place[s.references > 0] >= 3).any()))
    checked = 0
    for block in np.flatnonzero(state.references > 0).tolist():
        view = trace.requests[int(state.owner[block])]
        begin = int(state.place[block]) * state.size - len(view.prompt_ids)
        end = begin + int(state.filled[block])
        if begin <= 0 or end <= begin:
            continue
        sample = view.samples[0]
        ends = [0, *sample.text_ends]
        text = " ".join(sample.text[ends[begin] : ends[end]].split())
        click(panel, block)
        assert panel.view._said.endswith(f"“{text}”")
        checked += 1
    assert checked >= 2
    prompt = next(b for b in np.flatnonzero(state.references > 0).tolist() if state.place[b] == 0)
    ids = trace.requests[int(state.owner[prompt])].prompt_ids
    click(panel, prompt)
    if len(ids) > state.size:
        assert f"prompt tokens' ids {int(ids[0])}, {int(ids[1])}" in panel.view._said


def test_a_shared_block_names_all_its_owners(shown: Show, runs: dict[str, Trace]) -> None:
    panel = shown(runs["samples"])
    state = place_where(panel, lambda s: int(s.references.max()) == 4)
    click(panel, int(state.references.argmax()))
    assert "belongs to #0 samples 1, 2, 3, 4" in panel.view._said
    assert "4 references, one copy" in panel.view._said


def test_keys_move_a_cursor_over_the_blocks_and_enter_selects(shown: Show, runs: dict[str, Trace]) -> None:
    panel = shown(runs["samples"])
    state = place_where(panel, lambda s: len(s.tables.live) >= 3)
    grid = panel.view.grid
    grid.setFocus()
    for key, block in ((Qt.Key.Key_Right, 0), (Qt.Key.Key_Right, 1), (Qt.Key.Key_Down, 1 + grid.grid.columns)):
        QTest.keyClick(grid, key)
        panel.scope.catch_up()
        assert grid.pointed == block
        assert f"Block {block} " in grid.accessibleDescription()
    QTest.keyClick(grid, Qt.Key.Key_End)
    assert grid.pointed == state.blocks - 1
    QTest.keyClick(grid, Qt.Key.Key_Right)
    assert grid.pointed == state.blocks - 1
    target = int(np.flatnonzero(state.references > 0)[0])
    grid.point_at(target)
    QTest.keyClick(grid, Qt.Key.Key_Return)
    assert panel.scope.request == int(state.owner[target])


def test_the_block_table_tells_logical_and_physical_of_every_sample(shown: Show, runs: dict[str, Trace]) -> None:
    panel = shown(runs["samples"])
    state = place_where(panel, lambda s: len(s.samples(0)) == 4)
    pool = next(pool for pool in pools(runs["samples"]) if pool.at == state.at)
    panel.scope.select(0)
    panel.scope.catch_up()
    table = panel.view.table
    assert table.isVisible()
    rows = [(line.place, line.block, line.references) for line in table.lines if line.block >= 0]
    told = [pool.told.tables[0, branch] for branch in range(4)]
    assert rows == [(i, t[i], len(pool.told.owners(t[i]))) for t in told for i in range(len(t))]
    assert [line.text for line in table.lines if line.block < 0] == [
        f"sample {i + 1} · {len(t)} blocks" for i, t in enumerate(told)
    ]
    QTest.mouseClick(table.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(20, int(3.5 * theme.px(20))))
    panel.scope.catch_up()
    assert panel.view.grid.pointed == told[0][0]
    QTest.keyClick(table, Qt.Key.Key_Down)
    assert panel.view.grid.pointed == told[0][1]
    panel.scope.select(-1)
    panel.scope.catch_up()
    assert not table.isVisible()


def test_the_table_view_and_the_exports_have_the_same_facts(
    shown: Show, runs: dict[str, Trace], tmp_path: Path
) -> None:
    panel = shown(runs["prefix"])
    state = place_where(panel, lambda s: bool((s.owner == CACHED).any() and (s.references > 1).any()))
    pool = next(pool for pool in pools(runs["prefix"]) if pool.at == state.at)
    panel.show_table(True)
    panel.scope.catch_up()
    facts = panel.table.facts_model.facts
    expected = []
    for block, plain in enumerate(pool.cells()):
        if plain.owner != FREE:
            first = plain.place * state.size
            state_word = "cached" if plain.owner == CACHED else "owned"
            owners = ", ".join(f"#{request}" for request, _ in plain.owners) or None
            since = float(panel.scope.step_ends[plain.since]) - panel.scope.origin
            tokens = f"{first}–{first + plain.filled - 1}" if plain.filled else None
            expected.append(
                (block, state_word, owners, plain.place, tokens, plain.filled, plain.references, round(since, 6))
            )
    assert [facts.rows[i] for i in range(len(facts.rows))] == expected
    assert panel.table.facts_model.rowCount() == len(expected)
    chosen = next(i for i, row in enumerate(expected) if row[1] == "owned")
    panel.row_chosen(chosen)
    assert panel.scope.request in [request for request, _ in pool.cells()[expected[chosen][0]].owners]
    panel.show_table(False)
    panel.scope.catch_up()
    for ending in ("png", "svg", "csv"):
        panel.menu.save(tmp_path / f"map.{ending}")
    assert QImage(str(tmp_path / "map.png")).width() == 2 * panel.picture.width()
    assert (tmp_path / "map.svg").read_text().count("<image") >= 1
    assert len((tmp_path / "map.csv").read_text().splitlines()) == len(expected) + 1


# -- strips and no cache ------------------------------------------------------------------------------------------


def test_a_padded_mode_is_drawn_as_strips(shown: Show, runs: dict[str, Trace]) -> None:
    panel = shown(runs["static"])
    state = place_where(panel, lambda s: any(strip.over for strip in strips_of(s)) and s.kinds().used > 0)
    strips, view = panel.view.strips, panel.view
    assert view.maps.currentWidget() is strips
    kinds = state.kinds()
    assert sum(s.used for s in strips.strips) == kinds.used
    assert sum(s.reserved for s in strips.strips) == kinds.reserved
    assert sum(s.never for s in strips.strips) == kinds.internal
    assert [s.slot for s in strips.strips] == sorted(s.slot for s in strips.strips)
    assert "strips" in panel.summary.accessibleName()
    assert view._said.startswith(f"{kinds.used:,} tokens used · {kinds.reserved:,} reserved")
    assert "%" not in view._said, "what share is wasted is told once, of the run"
    index = next(i for i, s in enumerate(strips.strips) if s.used > 20)
    strip, box = strips.strips[index], strips.box(index)
    image = strips.grab().toImage()
    inside = QPointF(box.left() + 0.5 * box.width() * strip.used / strip.tokens, box.center().y()).toPoint()
    assert near(image.pixelColor(inside), theme.request_color(strip.request))
    never = image.copy(int(box.right()) - 30, int(box.top()) + 2, 28, int(box.height()) - 4)
    greys = {never.pixelColor(x, y).name() for x in range(28) for y in range(never.height())}
    assert len(greys) >= 2
    QTest.mouseClick(strips, Qt.MouseButton.LeftButton, pos=box.center().toPoint())
    panel.scope.catch_up()
    assert panel.scope.request == strip.request
    assert strip.words in view._said
    QTest.keyClick(strips, Qt.Key.Key_Down)
    assert panel.scope.request == strips.strips[min(index + 1, len(strips.strips) - 1)].request
    strips.resize(100, 0)
    assert strips.index_at(0.0) == -1, "there is no room for any"


def test_without_a_cache_or_a_trace_it_says_so(shown: Show, runs: dict[str, Trace]) -> None:
    panel = shown(runs["recompute"])
    assert panel.view.nothing.text() == NO_CACHE
    assert panel.view.maps.currentWidget() is panel.view.nothing
    panel.scope.show(Trace())
    panel.scope.catch_up()
    assert panel.view.nothing.text() == EMPTY
    assert not panel.facts().rows
    panel.scope.show(Trace([header(4, 64)]))
    panel.scope.catch_up()
    assert panel.summary.accessibleName() == "0 of 64 blocks · 0 %"


def test_another_trace_makes_it_forget(shown: Show, runs: dict[str, Trace]) -> None:
    panel = shown(runs["small"])
    go(panel, 20)
    panel.view.grid.point_at(3)
    panel.scope.show(runs["prefix"])
    panel.scope.catch_up()
    assert panel.view.grid.pointed == -1
    history = KvHistory()
    history.take(runs["prefix"].records)
    state = panel.state()
    assert state is not None
    assert history.tip is not None
    assert np.array_equal(state.owner, history.tip.owner)


def test_what_stands_below_the_map_is_whole_where_a_shorter_wording_has_room(qtbot: QtBot) -> None:
    picture = KvPicture()
    qtbot.addWidget(picture)
    picture.say(HINT, *SHORT_HINTS)
    picture.show()
    for zoom in (1.0, 1.5, 2.0):
        theme.set_zoom(zoom)
        said = set[str]()
        for width in range(round(640 * zoom), round(120 * zoom), -20):
            picture.resize(width, 200)  # a line
            said.add(picture.words.text())
        assert said == {HINT, *SHORT_HINTS}


def test_the_legend_names_every_look_however_narrow(qtbot: QtBot) -> None:
    legend = KvLegend()
    qtbot.addWidget(legend)
    for strips, looks in ((False, 4), (True, 3)):
        legend.show_strips(strips)
        said = set[int]()
        for width in range(480, 230, -10):
            legend.resize(width, 20)
            signs = legend.signs()
            said.add(len("".join(words for _, words, _ in signs)))
            assert len(signs) == looks
            assert signs[-1][2] + theme.px(15) + legend.face.width(signs[-1][1]) <= width
        assert len(said) == 2, "in long words and in short"
