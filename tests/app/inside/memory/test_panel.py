import random
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot

from app.bench.synthetic import header as synthetic_header
from app.bench.synthetic import synthetic_trace
from app.inside.memory import panel as memory_bill
from app.inside.memory.area import MemoryArea
from app.inside.memory.panel import MemoryBill
from app.inside.memory.series import KINDS, MemorySeries
from app.playback.scope import Scope
from app.plot import patterns
from app.plot.inked import plate_of
from app.plot.pixels import textured
from app.session.memory.device import device_bill
from app.ui.look import theme
from engine import Engine, EngineConfig, SamplingParams, Trace, load_trace, load_workload, measure, save_trace
from engine.trace import Ended, FinishReason, Kind, KvShares, MemoryBreakdown, Step, Submitted, Telemetry
from tests.app.made_up_gpu import on_gpu
from tests.engine.trace.hand_made import header, two_sends

Show = Callable[..., MemoryBill]
BATCHED = ("static", "sequential")


@pytest.fixture(scope="module")
def traces(engine: Engine) -> dict[str, Trace]:
    """Real runs of every way of keeping memory."""
    made: dict[str, Trace] = {}
    token = engine.card.kv_token_bytes

    def play(name: str, config: EngineConfig, workload: str = "mixed-lengths", count: int = 10) -> None:
        loaded = load_workload(workload, count=count)
        arrivals = [replace(a, params=a.params.with_(max_tokens=min(40, a.params.max_tokens))) for a in loaded.arrivals]
        made[name] = engine.run(replace(loaded, arrivals=tuple(arrivals)), config).result(timeout=120)

    play("tight", EngineConfig(max_running=8, kv_memory=320 * token))
    play("chunked", EngineConfig(mode="chunked", max_running=4, token_budget=24, kv_memory=640 * token))
    play("static", EngineConfig(mode="static", max_running=4, kv_memory=4096 * token))
    play("delivered", EngineConfig(mode="static", max_running=4, delivery="batch", kv_memory=4096 * token))
    play("padded", EngineConfig(mode="continuous-padded", max_running=4, kv_memory=4096 * token))
    play("sequential", EngineConfig(mode="sequential"), count=3)
    play("recompute", EngineConfig(mode="recompute"), count=2)
    play("forgets", EngineConfig(max_running=4, block_size=4, kv_window=12, kv_sinks=0))
    play("prefix", EngineConfig(max_running=4, prefix_caching=True), "shared-system-prompt", count=8)
    made["cancelled"] = engine.begin(EngineConfig(max_running=6, kv_memory=4096 * token))
    params = SamplingParams(n=4, temperature=1.0, max_tokens=60, ignore_eos=True)
    streams = [engine.submit(f"Tell me a story about {i} foxes.", params) for i in range(3)]
    while len(made["cancelled"].steps) < 25:
        sleep(0.001)
    engine.cancel([1])
    for stream in streams:
        stream.result(timeout=60)
    return made


@pytest.fixture
def show(qtbot: QtBot, scope: Scope) -> Show:
    panel = MemoryBill(scope)
    qtbot.addWidget(panel)

    def shown(trace: Trace, width: int = 900, height: int = 240) -> MemoryBill:
        panel.resize(width, height)
        panel.show()
        scope.show(trace)
        scope.catch_up()
        qtbot.wait(1)  # laid out
        scope.catch_up()
        return panel

    return shown


def fed(trace: Trace) -> MemorySeries:
    series = MemorySeries()
    records = list(trace.records)
    for begin in range(0, len(records), 8):
        series.take(records[begin : begin + 8])
        if begin % 40 == 0:
            series.place_at(0.0)
    return series


def steps_of(trace: Trace) -> list[Step]:
    return [record for record in trace.records if isinstance(record, Step)]


def ceil(number: int, size: int) -> int:
    return -(-number // size)


def by_hand(trace: Trace) -> list[dict[str, int]]:
    """After each step, from rows, ends and preemptions alone: who has a slot, and what that comes to in tokens."""
    header, records = trace.header, list(trace.records)
    assert header is not None
    assert header.depth == 0
    context, size, mode = header.model.context, header.config.block_size, header.config.mode
    reach: dict[int, int] = {}
    running: set[tuple[int, int]] = set()
    over: set[tuple[int, int]] = set()
    held: set[tuple[int, int]] = set()
    tokens: dict[tuple[int, int], int] = {}
    result = []

    def count() -> dict[str, int]:
        live = running - over - held
        ended = [tokens[branch] for branch in over if branch in tokens]
        return {
            "to_limit": sum(reach[request] for request, _ in running),
            "to_context": len(running) * context,
            "paged": 0 if header.config.paged else sum(ceil(tokens[b], size) * size for b in live),
            "running": len(running),
            "done": len(ended),
            "done_tokens": sum(ended),
        }

    for record in records:
        if isinstance(record, Submitted):
            reach[record.request] = min(context, len(record.token_ids) + record.params.max_tokens)
        elif isinstance(record, Step):
            running -= set(zip(record.preempted.tolist(), record.preempted_branch.tolist()))
            for i in range(record.rows):
                branch = int(record.request[i]), int(record.branch[i])
                running.add(branch)
                if record.kind[i] == Kind.HELD:
                    held.add(branch)
                else:
                    tokens[branch] = int(record.first[i] + record.count[i])
            result.append(count())
        elif isinstance(record, Ended):
            over.add((record.request, record.branch))
            if mode not in BATCHED:
                running.discard((record.request, record.branch))
            elif running <= over:
                running.clear()
            if result:
                result[-1] = count()
    return result


NAMES = [
    "tight",
    "chunked",
    "static",
    "delivered",
    "padded",
    "sequential",
    "recompute",
    "prefix",
    "forgets",
    "cancelled",
]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_computed_equals_plain_arithmetic_over_the_trace(traces, name) -> None:
    trace = traces[name]
    series, expected = fed(trace), by_hand(trace)
    assert series.count == len(expected)
    for key in expected[0]:
        told = series.values(key).tolist()
        wanted = [each[key] for each in expected]
        wrong = [i for i, (a, b) in enumerate(zip(told, wanted)) if a != b]
        assert not wrong, f"{key} after step {wrong[0]}: {told[wrong[0]]}, by hand {wanted[wrong[0]]}"
    assert max(each["to_limit"] for each in expected) > 0


def test_the_runs_contain_what_they_are_for(traces) -> None:
    assert sum(len(s.preempted) for s in steps_of(traces["tight"])) > 0
    assert any(s.kv_external for s in steps_of(traces["tight"]))
    assert any(0 < s.rows < s.running for s in steps_of(traces["tight"])), "a running branch without a row"
    assert any(((s.kind == Kind.PREFILL) & (s.first > 0)).any() for s in steps_of(traces["chunked"]))
    reasons = {r.reason for r in traces["cancelled"].records if isinstance(r, Ended)}
    assert reasons >= {FinishReason.CANCELLED, FinishReason.LENGTH}
    assert any((s.kind == Kind.HELD).any() for s in steps_of(traces["static"]))
    assert any(s.cached_blocks for s in steps_of(traces["prefix"]))
    assert any(((s.block_place == 0) & (s.running > 0)).any() for s in steps_of(traces["forgets"])[10:])


@pytest.mark.parametrize("name", ["tight", "padded", "prefix"])
def test_the_series_equal_the_records_at_random_moments(traces, name) -> None:
    trace, rng = traces[name], random.Random(name)
    series, steps = fed(trace), steps_of(trace)
    pool = trace.header.blocks * trace.header.config.block_size
    for _ in range(60):
        time = rng.uniform(0, steps[-1].ended * 1.05)
        before = [step for step in steps if step.ended <= time]
        moment = series.at(series.place_at(time))
        if not before:
            assert moment is None
            continue
        step = before[-1]
        assert moment is not None
        assert moment.step == step.step
        assert moment.time == step.ended
        wanted = (step.kv_used, step.kv_reserved, step.kv_internal, step.kv_external)
        assert tuple(getattr(moment, kind) for kind in KINDS) == wanted
        assert moment.free == pool - sum(wanted) >= 0
        assert moment.cached == step.cached_blocks * trace.header.config.block_size
        assert moment.held == pool - (step.free_blocks + step.cached_blocks) * trace.header.config.block_size


@pytest.mark.parametrize("name", ["tight", "static", "prefix"])
def test_shares_of_the_run_are_those_of_the_measures(traces, name) -> None:
    series, wanted = fed(traces[name]), measure(traces[name]).kv
    told = series.shares_until(series.count - 1)
    assert isinstance(told, KvShares)
    assert wanted is not None
    for kind in (*KINDS, "waste"):
        assert getattr(told, kind) == pytest.approx(getattr(wanted, kind))


def test_idle_time_between_two_sends_counts_for_nothing_in_the_shares() -> None:
    series = fed(Trace([header(EngineConfig()), *two_sends()]))
    told = series.shares_until(series.count - 1)
    assert told is not None
    assert told.waste == pytest.approx(0.5625)


@pytest.mark.parametrize("columns", [7, 100, 3000])
def test_a_pixel_column_is_the_mean_over_its_time(traces, columns) -> None:
    trace = traces["tight"]
    series, steps = fed(trace), steps_of(trace)
    edges = np.linspace(-0.1, steps[-1].ended + 0.2, columns + 1)
    means = series.means(("used", "external"), edges)
    for name in means:
        for place in {0, columns // 3, columns // 2, columns - 1}:
            begin, end = edges[place], edges[place + 1]
            total = 0.0
            for step, until in zip(steps, [s.ended for s in steps[1:]] + [inf]):
                total += getattr(step, f"kv_{name}") * max(0.0, min(until, end) - max(step.ended, begin))
            assert means[name][place] == pytest.approx(total / (end - begin), abs=1e-6)
        whole = series.means((name,), edges[[0, -1]])[name][0]
        assert (means[name] * np.diff(edges)).sum() == pytest.approx(whole * (edges[-1] - edges[0]))


# -- the device ---------------------------------------------------------------------------------------------------


def parts(bill) -> int:
    return bill.weights + bill.kv_pool + (bill.activations or 0) + bill.runtime + bill.other + bill.free


def test_the_bill_of_the_device_adds_up(traces) -> None:
    header = traces["tight"].header
    card = header.model
    pool = header.blocks * header.config.block_size * card.kv_token_bytes
    bare = device_bill(replace(header, bill=None), None)
    assert (bare.weights, bare.kv_pool, bare.total) == (card.weight_bytes, pool, 0)
    assert "no bill" in bare.source
    total, rest = 8 << 30, (100 << 20, 300 << 20, 2 << 30)
    free = total - card.weight_bytes - pool - sum(rest)
    billed = replace(header, bill=MemoryBreakdown(total, card.weight_bytes, pool, *rest, free))
    assert parts(device_bill(billed, None)) == total
    for memory, left in ((900 << 20, 4 << 30), (20 << 20, 7 << 30), (6 << 30, 3 << 30)):
        measured = device_bill(billed, Telemetry(1.0, 50.0, memory, total, memory_free=left))
        assert parts(measured) == measured.total >= total
        assert measured.source == "measured"
    usual = device_bill(billed, Telemetry(1.0, 50.0, 900 << 20, total, memory_free=4 << 30))
    assert usual.free == 4 << 30
    assert usual.own == 900 << 20
    assert usual.total == total
    assert device_bill(replace(header, bill=None), Telemetry(1.0, 50.0, 900 << 20, total, memory_free=4 << 30)).own == (
        900 << 20
    )
    on_gpu = replace(billed, model=replace(card, device="cuda:0"))
    taken = card.weight_bytes + pool + sum(rest[:2]) + (1 << 30)
    measured = device_bill(on_gpu, Telemetry(1.0, 50.0, 1 << 30, 64 << 30, 50.0, taken, total))
    assert (measured.other, measured.free, measured.total) == (1 << 30, total - taken, total)


# -- the panel ----------------------------------------------------------------------------------------------------


def test_captured_decode_steps_and_what_they_hold_are_told_of_any_trace(traces, show) -> None:
    panel = show(Trace(on_gpu(synthetic_trace(streams=4, requests=4, seconds=1))))
    assert "graphs 420 MB" in panel.device.accessibleDescription()
    assert "Decode graphs: 1–256 rows (35)" in panel.toolTip()
    assert ("Decode graphs" in show(traces["tight"]).toolTip()) == bool(traces["tight"].header.graphs)


def test_live_and_saved_traces_show_the_same(qtbot, engine, traces, show, scope, tmp_path: Path) -> None:
    trace = engine.begin(EngineConfig(max_running=4, kv_memory=8 << 20))
    panel = show(trace)
    assert panel.area.message == memory_bill.EMPTY
    assert not panel.facts().rows
    streams = [engine.submit("Tell me a story.", SamplingParams(max_tokens=24, temperature=0)) for _ in range(6)]
    qtbot.waitUntil(lambda: panel.series.count > 2 and not panel.area.message, timeout=20_000)
    for stream in streams:
        stream.result(timeout=60)
    engine.begin(EngineConfig(max_running=4))
    scope.catch_up()
    live = panel.facts()
    assert len(live.rows) == len(trace.steps)
    save_trace(trace, tmp_path / "run.bsrun")
    show(load_trace(tmp_path / "run.bsrun"))
    assert panel.facts() == live


def test_the_table_has_a_row_a_step(traces, show, scope) -> None:
    trace = traces["tight"]
    panel, card = show(trace), trace.header.model
    facts, hand = panel.facts(), by_hand(trace)
    steps = steps_of(trace)
    assert len(facts.rows) == len(steps)
    column = facts.columns.index
    for row, step, computed in zip(facts.rows, steps, hand):
        assert row[column("step")] == step.step
        assert row[0] == pytest.approx(step.ended - scope.origin)
        assert row[column("used tokens")] == step.kv_used
        assert row[column("external bytes")] == step.kv_external * card.kv_token_bytes
        assert row[column("contiguous to max_tokens (computed) bytes")] == computed["to_limit"] * card.kv_token_bytes
        assert row[column("paged (computed) bytes")] is None
    assert len({len(row) for row in facts.rows} | {len(facts.columns)}) == 1


def test_a_long_table_has_every_nth_step_and_says_so(traces, show, monkeypatch) -> None:
    monkeypatch.setattr(memory_bill, "FACT_ROWS", 40)
    trace = traces["static"]
    facts, steps = show(trace).facts(), steps_of(trace)
    every = ceil(len(steps), 40)
    assert every > 1
    assert facts.columns[1] == f"step (every {every}th)"
    assert [row[1] for row in facts.rows] == [step.step for step in steps[::every]]
    paged = facts.columns.index("paged (computed) bytes")
    assert any(row[paged] for row in facts.rows)


def test_a_click_seeks_and_the_pointer_only_reads(qtbot, traces, show, scope) -> None:
    panel = show(traces["tight"])
    area = panel.area.area()
    middle = QPoint(round(area.center().x()), round(area.center().y()))
    qtbot.mouseMove(panel.area, middle)
    scope.catch_up()
    assert scope.following
    assert panel.span_button.text().startswith("at ")
    time = panel.area.time_at(middle.x())
    wanted = [s for s in steps_of(traces["tight"]) if s.ended <= time][-1]
    assert panel.ledger.moment is not None
    assert panel.ledger.moment.step == wanted.step
    assert f"used {wanted.kv_used:,} tokens" in panel.ledger.accessibleDescription()
    qtbot.mouseClick(panel.area, Qt.MouseButton.LeftButton, pos=middle)
    assert scope.moment == pytest.approx(time)
    panel.area.hovered.emit(None)
    qtbot.keyClick(panel.area, Qt.Key.Key_Right)
    scope.catch_up()
    assert panel.ledger.moment.step == wanted.step + 1
    assert "of the pool used · waste" in panel.summary.accessibleName()
    qtbot.keyClick(panel.area, Qt.Key.Key_End)
    assert scope.following
    panel.show_table(True)
    panel.row_chosen(5)
    scope.catch_up()
    assert scope.place == 5


def test_the_summary_has_the_measures_definition_of_waste(traces, show, scope) -> None:
    panel, steps = show(traces["tight"]), steps_of(traces["tight"])
    step = next(s for s in steps if s.kv_external and s.kv_reserved)
    scope.seek(step.ended)
    scope.catch_up()
    lost = step.kv_reserved + step.kv_internal + step.kv_external
    waste = memory_bill.percent(lost / (lost + step.kv_used))
    assert f" · waste {waste} of what is held · KV " in panel.summary.accessibleName()
    assert "(reserved + internal + external) /" in panel.toolTip()
    assert "Kwon et al." in panel.toolTip()
    scope.follow()
    scope.catch_up()
    run = measure(traces["tight"]).kv
    assert memory_bill.percent(run.waste) in panel.summary.accessibleName()


def test_a_mode_without_a_cache_says_so(traces, show) -> None:
    panel = show(traces["recompute"])
    assert "no KV cache" in panel.summary.accessibleName()
    assert panel.area.message == memory_bill.NO_CACHE


def test_another_trace_leaves_nothing_of_the_last(traces, show) -> None:
    panel = show(traces["tight"])
    panel = show(Trace([replace(synthetic_header(8, 100), bill=None)]))
    assert panel.series.count == 0
    assert not panel.facts().rows
    assert panel.area.message == memory_bill.EMPTY
    assert "no bill" in panel.device.accessibleDescription()


def test_a_long_run_shows_a_minute_with_the_cursor_in_it(show, scope, story) -> None:
    records = [synthetic_header(4, 100), story.submitted(0)]
    records += [replace(story.step({0: "a"}, seconds=1.0), kv_used=i) for i in range(300)]
    panel = show(Trace(records))
    begin, end = panel.span()
    assert end - begin == pytest.approx(60)
    assert 300 <= end < 301
    scope.seek(100.5)
    scope.catch_up()
    begin, end = panel.span()
    assert begin <= 100.5 <= end
    assert end - begin == pytest.approx(60)
    scope.seek(end - 1)
    assert panel.span() == (begin, end)
    panel.span_button.click()
    assert panel.span()[0] == 0
    assert panel.span()[1] >= 300
    assert panel.span_button.text() != ""
    assert len(panel.facts().rows) == 300


def test_no_line_runs_under_the_pools_name(qtbot: QtBot, traces, show) -> None:
    untold = MemoryArea()
    qtbot.addWidget(untold)
    untold.resize(420, 200)
    assert not untold.grab().isNull(), "before it is told of any trace"
    area, above = show(traces["tight"]).area, set[bool]()
    for height in (60, 140, 300):
        area.resize(420, height)
        for pool in (0.2, 0.5, 0.9, 2.0):
            area.top = area.series.pool * area.series.token_bytes / pool
            for line in (0.0, 0.55, 0.95, 1.0):
                drawn = {"used": 0.1 * area.top, area.compared: line * area.top}
                area._means = {name: np.full(len(area._edges) - 1, drawn.get(name, 0.0)) for name in area._means}
                named = area.pool_words()
                if named is None:
                    assert height == 60, "its highest tick says it"
                    assert pool <= 1
                    continue
                words, x, baseline = named
                plate = plate_of(area.tiny, x, baseline, words)
                at = area.area().bottom() - line * area.area().height()
                assert not plate.top() + 1 < at < plate.bottom() - 1, (height, pool, line)
                above.add(baseline < area.area().bottom() - min(1.0, pool) * area.area().height())
    assert above == {True, False}, "beside the pool's line, where there is room"


def test_bands_are_as_high_as_they_are_told() -> None:
    textures = [np.full((50, 6), kind + 1, np.uint32) for kind in range(4)]
    heights = np.array([[10, 0, 5, 0, 20, 20], [5, 0, 0, 0.2, 0, 0], [0, 3, 0, 0, 0, 0], [0, 0, 40, 0, 8, 8]], float)
    picture = textured(heights, textures, {3: 9}, 0)
    assert [(picture[:, 0] == kind).sum() for kind in range(3)] == [35, 10, 5]
    assert picture[-1, 0] == 1
    assert picture[-11, 0] == 2
    assert (picture[:, 1] == 3).sum() == 3
    assert (picture[:, 3] == 2).sum() == 1, "a sliver is a pixel"
    assert set(picture[:45, 2].tolist()) == {0, 9}, "one column of an outline is all border"
    assert picture[30, 5] == 9 or picture[22, 5] == 9


@pytest.mark.parametrize("name", ["dark", "light"])
def test_the_kinds_are_painted_in_their_looks(qtbot, traces, show, name) -> None:
    panel = show(traces["static"])
    theme.set_theme(name)
    panel.scope.catch_up()
    image = panel.area.grab().toImage()
    area = panel.area.area().toRect()
    seen = {image.pixelColor(x, y).name() for x in range(area.left(), area.right()) for y in range(*_rows(area))}
    t = theme.current()
    assert {patterns.color(kind, t).name() for kind in ("used", "internal")} <= seen
    used = QColor(t.accent)
    assert patterns.color("reserved", t) == used, "told apart by the hatch"
    assert patterns.PATTERNS["reserved"] is not patterns.PATTERNS["used"]


def _rows(area) -> tuple[int, int]:
    return area.top(), area.bottom()


@pytest.mark.parametrize("zoom", [1.0, 2.0])
@pytest.mark.parametrize("size", [(300, 240), (320, 520), (700, 180), (900, 240), (1600, 400), (300, 60)])
def test_no_part_covers_another_at_any_size(qtbot, traces, show, size, zoom) -> None:
    theme.set_zoom(zoom)
    panel = show(traces["padded"], round(size[0] * zoom), round(size[1] * zoom))
    picture = panel.picture
    shown = [part for part in (panel.area, panel.ledger, panel.device) if part.isVisible()]
    for i, part in enumerate(shown):
        assert picture.rect().contains(part.geometry()) or part.height() <= 0
        assert not any(part.geometry().intersects(other.geometry()) for other in shown[i + 1 :])
    assert panel.area.isVisible()
    assert panel.area.height() > 0
    if size[1] > 100:
        assert panel.area.height() >= theme.px(58)
        assert panel.ledger.isVisible()
        assert panel.device.isVisible() or size == (300, 240)
