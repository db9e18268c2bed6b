"""The step inspector against the records: every figure is worked out again here in plain arithmetic."""

import csv
import io
import itertools
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QPainter, QPixmap
from pytestqt.qtbot import QtBot

from app.bench.synthetic import synthetic_trace
from app.inside.step.block_accounts import Change, account_words, block_words, totals
from app.inside.step.figure import StepFigure
from app.inside.step.history import StepHistory
from app.inside.step.marks import mark_of
from app.inside.step.panel import BEFORE, NOTHING, StepInspector
from app.inside.step.story import StepStory, Waste, millis
from app.inside.step.time_bar import StepBar
from app.inside.step.times import step_times
from app.plot.patterns import Mark
from app.refusals import refusal_words
from app.ui.look import theme
from app.ui.look.font_face import FontFace
from engine import Engine, EngineConfig, SamplingParams, Trace, Workload, load_trace, save_trace
from engine.trace import BlockEvent, Header, Kind, Refusal, Step, Submitted
from engine.workloads import Arrival
from tests.app.made_up_gpu import on_gpu

STORY = "Once upon a time there was a fox who lived by the sea and looked for a lantern every night until dawn."
THINGS = "kite boat map owl lantern violin ladder drum mirror wagon clock rose".split()
PHASES = ("plan", "prepare", "forward", "sample", "wait", "commit")


@pytest.fixture(scope="module")
def traces(engine: Engine) -> dict[str, Trace]:
    """Short real runs of the demo model, one of each kind that looks different."""
    prompts = [f"Tell me a story about {'a small ' * (i % 3)}fox and its {thing}." for i, thing in enumerate(THINGS)]
    greedy = [SamplingParams(max_tokens=4 + 5 * (i % 5), temperature=0.0) for i in range(len(prompts))]
    mixed = Workload("mixed", tuple(Arrival(0.0, *each) for each in zip(prompts, greedy)))
    rules = "You are a calm teller of stories who never hurries and always ends with a good night. " * 3
    alike = Workload("alike", tuple(Arrival(0.0, rules + p, params) for p, params in zip(prompts, greedy)))
    token = engine.card.kv_token_bytes

    def run(config: EngineConfig, workload: Workload = mixed) -> Trace:
        return Trace(engine.run(workload, config).result().records)

    def submit(config: EngineConfig, params: SamplingParams, times: int = 1) -> Trace:
        trace = engine.begin(config)
        for stream in [engine.submit(STORY, params) for _ in range(times)]:
            stream.result()
        engine.begin(config)  # so that a step that was launched ahead is read, which is after the last text was said
        return Trace(trace.records)

    result = {
        "continuous": run(EngineConfig(max_running=8)),
        "every third": run(EngineConfig(max_running=8, join_every=3)),
        "chunked": run(EngineConfig(mode="chunked", max_running=8, token_budget=32)),
        "static": run(EngineConfig(mode="static", max_running=4)),
        "delivered": run(EngineConfig(mode="static", max_running=4, delivery="batch")),
        "padded": run(EngineConfig(mode="continuous-padded", max_running=4)),
        "recompute": submit(EngineConfig(mode="recompute"), SamplingParams(max_tokens=6), 2),
        "preempted": run(EngineConfig(max_running=8, kv_memory=14 * 16 * token)),
        "prefix": run(EngineConfig(max_running=3, prefix_caching=True, kv_memory=14 * 16 * token), alike),
        "samples": submit(EngineConfig(), SamplingParams(n=4, temperature=1.0, max_tokens=20)),
        "ahead": submit(EngineConfig(depth=1), SamplingParams(max_tokens=30, temperature=0.0, stop=("a",)), 3),
    }
    trace = engine.begin(EngineConfig())
    stream = engine.submit(STORY, SamplingParams(max_tokens=1500, temperature=0.0, ignore_eos=True))
    next(iter(stream))
    engine.cancel()
    stream.result()
    while not any(step.rows == 0 for step in trace.steps):
        time.sleep(0.005)
    result["cancelled"] = Trace(trace.records)
    return result


Show = Callable[[Trace], StepInspector]


@pytest.fixture
def show(open_panel) -> Show:
    return lambda trace, width=900, height=260: open_panel(StepInspector, trace, width, height)


def go(panel: StepInspector, place: int) -> StepStory:
    panel.scope.seek(float(panel.scope.step_ends[place]))
    panel.scope.catch_up()
    story = panel._story
    assert story is not None
    assert story.place == place
    return story


def stories(trace: Trace) -> Iterator[StepStory]:
    """Every step of a trace, told."""
    history = StepHistory()
    history.take(trace.records)
    for place, step in enumerate(trace.steps):
        yield StepStory(step, history, place, 0.0)


def where(panel: StepInspector, found: Callable[[Step], bool]) -> StepStory:
    """Goes to the first step of which something is true."""
    return go(panel, next(i for i, step in enumerate(panel.scope.trace.steps) if found(step)))


# -- the rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("saved", [False, True])
def test_rows_are_the_records_columns(show: Show, traces, tmp_path: Path, saved: bool) -> None:
    panel = show(Trace())
    for name in ("continuous", "chunked", "static", "padded", "recompute", "samples", "ahead"):
        trace = traces[name]
        if saved:
            save_trace(trace, tmp_path / f"{name}.bsrun")
            trace = load_trace(tmp_path / f"{name}.bsrun")
        panel.scope.show(trace)
        panel.scope.catch_up()
        for place in {0, 1, 2, len(trace.steps) // 2, len(trace.steps) - 1}:
            check_rows(panel, place, traces[name].steps[place])


def check_rows(panel: StepInspector, place: int, step: Step) -> None:
    go(panel, place)
    facts = panel.facts()
    rows = [dict(zip(facts.columns, cells)) for cells in facts.rows if cells[0] == "row"]
    assert len(rows) == step.rows
    for column, cells in (
        ("request", step.request), ("slot", step.slot + 1), ("sample", step.branch + 1), ("first", step.first),
        ("tokens in", step.count), ("cached before", step.first), ("found by prefix", step.reused),
        ("padding", step.padding), ("wasted", step.wasted),
    ):  # fmt: skip
        assert [row[column] for row in rows] == cells.tolist(), column
    assert "".join(row["text"] or "" for row in rows) == step.text
    assert sum(row["tokens out"] for row in rows) == len(step.token)
    alone = [row["probability"] for row in rows if row["probability"] is not None]
    if len(alone) == len(step.token):
        assert alone == pytest.approx(np.exp(step.logprob).tolist())


def test_the_head_line_counts_what_the_record_says(show: Show, traces) -> None:
    panel = show(traces["padded"])
    story = where(panel, lambda step: bool(step.padding.any()))
    step, origin = story.step, next(r.time for r in traces["padded"].records if isinstance(r, Submitted))
    words = panel.summary._whole
    assert words.startswith(f"step {step.step:,} · {step.ended - origin:.3f} s · ")
    assert words.endswith(
        f"{step.rows} rows · {step.count.sum()} tokens in + {step.padding.sum()} padding, {len(step.token)} out"
    )
    panel.resize(320, 600)
    panel.scope.catch_up()
    assert "rows" not in panel.summary._whole, "a narrow head says when, the sheet says how much"
    assert panel.view.sheet._laid[0].paragraph.text == story.size_words


def test_a_replayed_graph_is_told_with_its_dummies_and_nothing_where_none_could_be(show: Show) -> None:
    records = on_gpu(synthetic_trace(streams=12, tokens_per_second=2000, seconds=0.2))
    told = list(stories(Trace(records)))
    replayed = [story for story in told if story.step.graph]
    assert replayed
    for story in told:
        step = story.step
        if step.graph:
            assert step.rows <= 12 < step.graph == 16
            assert f"replayed a graph of 16 rows ({16 - step.rows} dummies)" in story.size_words
        else:
            assert " · eager · " in story.size_words
        assert story.size_words.endswith(f"{millis(step.device)} by the GPU's clock")
    mixed = next(story for story in told if (story.step.kind == Kind.PREFILL).any())
    tokens = int(mixed.step.count.sum())
    submitted = [r for r in records if isinstance(r, Submitted)]
    of_tokens = next(stories(Trace([records[0], *submitted, replace(mixed.step, graph=tokens + 3)])))
    assert f"replayed a graph of {tokens + 3:,} tokens (3 of padding)" in of_tokens.size_words
    assert of_tokens.spare == 3
    exact = replace(replayed[0].step, graph=replayed[0].step.rows, device=0.0)
    panel = show(Trace([records[0], *submitted, exact]))
    assert panel.summary._whole.endswith(f"replayed a graph of {exact.rows} rows")
    assert [row for row in panel.facts().rows if row[0] == "graph"]
    plain = stories(Trace(on_gpu(synthetic_trace(streams=12, seconds=0.05), off="it waits")[:20]))
    assert not any(story.graph_words for story in plain if not story.step.graph)
    assert not any(story.graph_words for story in stories(Trace(synthetic_trace(streams=12, seconds=0.05))))


def test_chunks_are_counted_through_a_prompt(traces) -> None:
    found: dict[int, list[tuple[int, int | None, int]]] = {}
    prompts = {r.request: len(r.token_ids) for r in traces["chunked"].records if isinstance(r, Submitted)}
    for story in stories(traces["chunked"]):
        for row in map(story.row, range(len(story))):
            if row.kind is Kind.PREFILL:
                found.setdefault(row.request, []).append((*(row.chunk or (0, 0)), row.count))
    several = {request: chunks for request, chunks in found.items() if len(chunks) > 1}
    assert several
    assert any(len(chunks) == 1 for chunks in found.values())
    for request, chunks in found.items():
        assert sum(count for *_, count in chunks) == prompts[request]
        if request in several:
            assert [(i, n) for i, n, _ in chunks] == [(i + 1, len(chunks)) for i in range(len(chunks))]
        else:
            assert chunks[0][:2] == (0, 0), "a prompt that is computed whole has no chunks"


def test_a_chunk_is_not_said_to_be_of_so_many_before_it_is_known(traces) -> None:
    records = traces["chunked"].records
    cut = next(i for i, r in enumerate(records) if isinstance(r, Step) and r.rows > len(r.token)) + 1
    story = list(stories(Trace(records[:cut])))[-1]
    row = next(row for row in map(story.row, range(len(story))) if not row.tokens)
    assert row.chunk is not None
    assert row.chunk[1] is None
    assert row.kind_words == f"chunk {row.chunk[0]}"


def test_held_rows_are_grey_and_say_why_they_are_wasted(show: Show, traces) -> None:
    panel = show(traces["static"])
    story = where(panel, lambda step: bool((step.kind == Kind.HELD).any()))
    held = [at for at in range(len(story)) if story.row(at).kind is Kind.HELD]
    looks = {(row.waste, mark_of(row), row.kind_words) for row in map(story.row, held)}
    assert looks == {(Waste.HELD, Mark.GREY, "held")}
    assert "until the longest of its batch ends" in panel.view.rows.row_text(held[0])


def test_rows_past_their_end_are_crossed_where_a_step_is_launched_ahead(traces) -> None:
    past = [row for s in stories(traces["ahead"]) for row in map(s.row, range(len(s))) if row.waste is Waste.PAST]
    assert past
    assert all(mark_of(row) is Mark.CROSS and not row.tokens and row.wasted == row.count for row in past)


def test_tokens_computed_again_say_so(traces) -> None:
    again = [row for s in stories(traces["preempted"]) for row in map(s.row, range(len(s))) if row.wasted]
    assert again
    assert {row.waste for row in again} == {Waste.AGAIN}
    last = list(stories(traces["recompute"]))[-1].row(0)
    assert (last.waste, last.wasted) == (Waste.AGAIN, last.count - 1)


def test_a_batch_that_delivers_at_its_end_gives_many_tokens_at_once(traces) -> None:
    rows = [row for s in stories(traces["delivered"]) for row in map(s.row, range(len(s))) if row.tokens]
    assert any(row.out_note == f"{len(row.tokens):,} tokens" and len(row.tokens) > 1 for row in rows)


# -- the times --------------------------------------------------------------------------------------------------------


def test_the_parts_of_time_add_up_to_the_steps_duration(traces) -> None:
    for trace in traces.values():
        for step in trace.steps:
            times = step_times(step, trace.header)
            known = dict(times.parts)
            assert sum(known.values()) == pytest.approx(step.ended - step.started, abs=1e-7)
            assert {name: known[name] for name in PHASES if name in step.seconds} == {
                name: seconds for name, seconds in step.seconds.items() if name in PHASES
            }
            assert times.record == step.seconds["record"]
            assert times.matrices + times.attention == pytest.approx(times.forward)
            if step.ended > step.started:
                assert sum(map(times.share, times.parts)) == pytest.approx(1)


def test_attention_is_divided_by_the_positions_that_each_row_sees(traces) -> None:
    for name in ("continuous", "chunked", "prefix", "recompute"):
        for step in traces[name].steps[::7]:
            seen = [sum(first + i + 1 for i in range(count)) for first, count in zip(step.first, step.count)]
            rows = step_times(step, traces[name].header).rows
            assert rows.positions.tolist() == seen
            assert rows.useful.tolist() == [1.0] * step.rows
            if seen:
                assert rows.shares.tolist() == pytest.approx([n / sum(seen) for n in seen])


def test_padded_rows_attend_as_wide_as_the_widest(traces) -> None:
    for name in ("static", "padded"):
        for step in traces[name].steps[::5]:
            if not step.rows:
                continue
            width = max(f + c + p for f, c, p in zip(step.first, step.count, step.padding))
            rows = step_times(step, traces[name].header).rows
            tokens = int(step.count[0] + step.padding[0])
            rectangle = sum(width - i for i in range(tokens))
            seen = [sum(first + i + 1 for i in range(count)) for first, count in zip(step.first, step.count)]
            assert rows.useful.tolist() == pytest.approx([n / rectangle for n in seen])
            assert rows.shares.tolist() == pytest.approx([1 / step.rows] * step.rows)


def test_measured_attention_goes_before_computed(traces) -> None:
    from dataclasses import replace

    header, step = traces["continuous"].header, traces["continuous"].steps[3]
    unknown = step_times(replace(step, attention=0.0), header)
    model, seen = header.model, sum(int(f + c) for f, c in zip(step.first, step.count))
    attended = 4 * model.layers * model.heads * model.head_dim * seen
    weights = model.body_parameters * int(step.count.sum()) + model.head_parameters * len(step.token)
    share = attended / (attended + 2 * weights)
    assert unknown.origin == "computed"
    assert unknown.attention == pytest.approx(unknown.forward * share)
    known = step_times(replace(step, attention=step.seconds["forward"] / 4), header)
    assert (known.origin, known.attention_share) == ("measured", 0.25)
    assert not known.launched
    gpu = step_times(step, replace(header, model=replace(model, device="cuda:0")))
    assert gpu.launched


def test_the_bar_is_drawn_to_scale(show: Show, traces) -> None:
    panel = show(traces["continuous"])
    story = go(panel, 4)
    bar = panel.view.sheet._figure.bar
    whole = story.times.duration + story.times.record
    scale = bar._boxes["forward"].width() / story.times.forward
    for name, seconds in story.times.parts.items():
        if seconds:
            assert bar._boxes[name].width() == pytest.approx(seconds * scale)
    assert whole * scale == pytest.approx(panel.view.sheet._figure.bar._boxes["record"].right(), abs=8)
    assert bar.attention.width() / bar._boxes["forward"].width() == pytest.approx(story.times.attention_share)
    assert "% of the step's" in bar.tip(bar._boxes["forward"].center())


def test_kernels_of_a_replayed_step_are_bars_to_one_scale(show: Show, traces) -> None:
    panel = show(traces["continuous"], height=500)
    story = where(panel, lambda step: step.rows > 3 and bool(step.graph))
    kernels, step, bars = story.header.kernels, story.step, panel.view.sheet._kernels
    lines = story.kernels.shown
    titles = [line.title for line in lines]
    assert titles == ["q, k, v", "attention", "o", "gate, up", "down", "lm_head", "small kernels"]
    assert sum(line.seconds for line in lines) == pytest.approx(float(step.kernel.sum()))
    assert lines[1].seconds == pytest.approx(step.attention, rel=1e-5)
    down = kernels.names.index("down_proj")
    most = 2 * kernels.weights[down] * int(step.count.sum()) / story.header.roof.operations
    assert lines[4].least >= most * 0.999
    assert lines[4].bound.split()[0] in ("memory", "compute")
    assert (lines[-1].least, lines[-1].bound) == (0.0, "")
    assert [line.title for line in bars._lines] == titles
    at = QPointF(bars._left + 2, bars._top + theme.px(16) * 4.5)
    assert "layers: down_proj" in panel.view.sheet.tip(at)
    assert "M operations: at least" in panel.view.sheet.tip(at)
    sixth = QPointF(bars._left + 2, bars._top + theme.px(16) * 6.5)
    assert "norms: " in panel.view.sheet.tip(sixth)
    assert go(show(traces["padded"]), 2).kernels.shown == [], "no compiled step"


def test_every_row_has_its_lane_or_shares_the_last(show: Show, traces) -> None:
    panel = show(Trace(synthetic_trace(streams=256, tokens_per_second=20_000, seconds=1)))
    story = where(panel, lambda step: step.rows == 256)
    figure = panel.view.sheet._figure
    assert sorted(row for lane in figure._lanes for row in lane.rows) == list(range(256))
    rest = figure._lanes[-1].rows
    shares = story.times.rows.shares
    assert len(rest) > 100
    assert max(shares[list(rest)]) <= min(shares[row] for lane in figure._lanes[:-1] for row in lane.rows)
    assert figure.tip(figure._lanes[-1].box.center()).startswith(f"the {len(rest)} rows with the least attention")
    panel.resize(320, 900)
    few = show(traces["padded"])
    go(few, 0)
    assert [lane.rows for lane in few.view.sheet._figure._lanes] == [(0,), (1,), (2,), (3,)]


def test_the_figures_titles_are_whole_beside_each_other(show: Show, traces, monkeypatch: pytest.MonkeyPatch) -> None:
    story = go(show(traces["padded"]), 2)
    figure, said = StepFigure(), list[str]()
    monkeypatch.setattr(FontFace, "say", lambda self, painter, x, y, text, color, **places: said.append(text))
    pixmap = QPixmap(900, 400)
    for width in (900, 300, 198):
        figure.lay(story, 0.0, 0.0, width, 0.0)
        said.clear()
        painter = QPainter(pixmap)
        figure.draw(painter, -1)
        painter.end()
        assert {"Matrix products", "Attention"} <= set(said), width
        assert not any("…" in words for words in said)


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_every_reason_has_its_sentence(traces) -> None:
    said = set()
    for trace in traces.values():
        for reason in Refusal:
            words = refusal_words(reason, trace.steps[0], trace.header)
            assert words.why
            assert words.remedy
            said.add((reason, words.why.split(" ")[0]))
    assert {reason for reason, _ in said} == set(Refusal)
    assert (
        refusal_words("a reason of a later version", trace.steps[0], trace.header).why == "a reason of a later version"
    )


def test_what_the_scheduler_refused_is_told(show: Show, traces) -> None:
    seen = {reason for trace in traces.values() for step in trace.steps for reason in step.refused_reason}
    apart = {Refusal.BATCH_FILLS, Refusal.OTHER_ADAPTER, Refusal.PACE}  # of adapters, of a target: elsewhere
    assert seen >= set(Refusal) - apart, "the runs show every reason that a step of these can have"
    for name, reason, words in (
        ("continuous", Refusal.NO_SLOT, "all 8 slots are taken. Raise Running."),
        ("chunked", Refusal.BUDGET, "the step's 32 tokens are spent. Raise Budget."),
        ("preempted", Refusal.NO_BLOCKS, "its prompt finds too few KV blocks ("),
        ("static", Refusal.BATCH_RUNS, "a batch is running, and nobody joins until its longest ends."),
        ("every third", Refusal.JOIN_TURN, "new requests join only after 3 decode steps."),
    ):
        panel = show(traces[name])
        story = where(panel, lambda step, reason=reason: str(reason) in step.refused_reason)
        laid = [each.paragraph for each in panel.view.sheet._laid if "first in the queue" in each.paragraph.text]
        assert [p.request for p in laid] == story.step.refused.tolist()
        assert words in laid[0].text
        assert words in panel.view.sheet.accessibleDescription()


def test_nobody_refused_is_said_too(show: Show, traces) -> None:
    panel = show(traces["continuous"])
    story = where(panel, lambda step: not len(step.refused) and step.waiting == 0)
    assert story.refused == []
    assert "Nobody was refused, and nobody waits." in panel.view.sheet.accessibleDescription()


def test_preemption_is_told(show: Show, traces) -> None:
    panel = show(traces["preempted"])
    story = where(panel, lambda step: bool(len(step.preempted)))
    request = int(story.step.preempted[0])
    assert f"#{request} was preempted:" in panel.view.sheet.accessibleDescription()
    assert ("preempted", request) in {(cells[0], cells[2]) for cells in panel.facts().rows}


# -- blocks -----------------------------------------------------------------------------------------------------------


def test_every_block_event_is_in_one_account(traces) -> None:
    told = {
        Change.TAKEN: BlockEvent.TAKEN, Change.EVICTED: BlockEvent.TAKEN, Change.COPIED: BlockEvent.TAKEN,
        Change.PREFIX: BlockEvent.SHARED, Change.SIBLING: BlockEvent.SHARED, Change.LEFT: BlockEvent.LEFT,
        Change.KEPT: BlockEvent.KEPT, Change.FREED: BlockEvent.FREED, Change.LOST: BlockEvent.FREED,
    }  # fmt: skip
    for story in (
        s for name in ("continuous", "static", "preempted", "prefix", "samples") for s in stories(traces[name])
    ):
        step = story.step
        events = sorted(zip(step.block_event.tolist(), step.block.tolist(), step.block_request.tolist()))
        assert sorted((int(told[a.change]), b, a.request) for a in story.accounts for b in a.blocks) == events
        assert sum(totals(story.accounts).values()) == len(events)


def test_evictions_are_those_of_blocks_that_were_cached(traces) -> None:
    cached: set[int] = set()
    evictions = 0
    for story in stories(traces["prefix"]):
        expected = []
        for event, block in zip(story.step.block_event.tolist(), story.step.block.tolist()):
            if event == BlockEvent.TAKEN and block in cached:
                expected.append(block)
            if event == BlockEvent.KEPT:
                cached.add(block)
            else:
                cached.discard(block)
        found = [block for a in story.accounts if a.change is Change.EVICTED for block in a.blocks]
        assert sorted(found) == sorted(expected)
        evictions += len(found)
        assert len(cached) == story.step.cached_blocks
    assert evictions


def test_a_prefix_hit_is_told_by_its_blocks_and_its_tokens(show: Show, traces) -> None:
    panel = show(traces["prefix"])
    story = where(panel, lambda step: bool(step.reused.any()))
    row = next(row for row in map(story.row, range(len(story))) if row.reused)
    assert row.cached_words == f"{row.first:,} · {row.reused:,} found"
    shared = next(a for a in story.accounts if a.change is Change.PREFIX and a.request == row.request)
    assert len(shared.blocks) * 16 == row.reused
    assert account_words(shared).startswith(f"shares {len(shared.blocks)} blocks of a prefix that was there: ")


def test_samples_share_blocks_and_copy_before_they_write(show: Show, traces) -> None:
    panel = show(traces["samples"])
    story = where(panel, lambda step: bool(len(step.copied)))
    copies = [a for a in story.accounts if a.change is Change.COPIED]
    assert [(s, b) for a in copies for s, b in zip(a.sources, a.blocks)] == list(
        zip(story.step.copied.tolist(), story.step.copied_to.tolist())
    )
    assert {a.change for a in story.accounts} == {Change.SIBLING, Change.COPIED}
    assert "#0·2" in panel.view.sheet.accessibleDescription()
    assert " → " in account_words(copies[0])


def test_block_numbers_are_joined_and_cut() -> None:
    assert block_words([3, 7, 8, 9, 10, 12]) == "3, 7–10, 12"
    assert block_words([1, 2, 4, 6, 8, 10]) == "1, 2, 4, 6 and 2 more"
    assert block_words([1, 2, 4, 6, 8, 10], None) == "1, 2, 4, 6, 8, 10"


# -- the panel --------------------------------------------------------------------------------------------------------


def test_without_a_step_it_says_what_to_do(show: Show, traces) -> None:
    panel = show(Trace())
    assert panel.view.accessibleDescription() == NOTHING
    assert not panel.next.isEnabled()
    assert panel.facts().rows == ()
    panel.scope.show(traces["continuous"])
    panel.scope.catch_up()
    assert panel._story is not None
    panel.scope.seek(0.0)
    panel.scope.catch_up()
    assert panel.view.accessibleDescription() == BEFORE
    assert panel.next.isEnabled()
    panel.next.click()
    panel.scope.catch_up()
    assert panel._story is not None
    assert panel._story.place == 0


def test_the_buttons_go_from_step_to_step(qtbot: QtBot, show: Show, traces) -> None:
    panel = show(traces["chunked"])
    last = panel.scope.steps - 1
    assert (panel._story.place, panel.next.isEnabled()) == (last, False)
    qtbot.mouseClick(panel.previous, Qt.MouseButton.LeftButton)
    panel.scope.catch_up()
    assert panel._story.place == last - 1
    assert panel._story.step is traces["chunked"].steps[last - 1]
    qtbot.mouseClick(panel.next, Qt.MouseButton.LeftButton)
    panel.scope.catch_up()
    assert panel._story.place == last
    go(panel, 0)
    assert not panel.previous.isEnabled()


def test_selection_goes_both_ways(qtbot: QtBot, show: Show, traces) -> None:
    panel = show(traces["continuous"])
    story = go(panel, 3)
    rows, scope = panel.view.rows, panel.scope
    wanted = int(story.step.request[2])
    qtbot.mouseClick(rows, Qt.MouseButton.LeftButton, pos=QPoint(20, int(3.5 * rows.row_high)))
    assert scope.request == wanted
    scope.catch_up()
    assert rows._at == 2
    qtbot.keyClick(rows, Qt.Key.Key_Down)
    assert scope.request == int(story.step.request[3])
    qtbot.keyClick(rows, Qt.Key.Key_End)
    assert scope.request == int(story.step.request[-1])
    qtbot.keyClick(rows, Qt.Key.Key_Escape)
    assert scope.request == -1
    scope.select(wanted)
    scope.catch_up()
    assert rows._at == 2
    assert f"row 3: #{wanted}" in rows.accessibleDescription()
    lane = panel.view.sheet._figure._lanes[1]
    qtbot.mouseClick(panel.view.sheet, Qt.MouseButton.LeftButton, pos=lane.box.center().toPoint())
    assert scope.request == int(story.step.request[1])


def test_the_selected_row_is_drawn_apart(show: Show, traces) -> None:
    panel = show(traces["continuous"])
    go(panel, 3)
    rows = panel.view.rows
    before = rows.grab().toImage()
    panel.scope.select(int(panel._story.step.request[1]))
    panel.scope.catch_up()
    after = rows.grab().toImage()
    x, y = 1, int(2.5 * rows.row_high)
    assert before.pixelColor(x, y) != after.pixelColor(x, y)
    assert after.pixelColor(x, y) == theme.current().accent


def test_the_table_is_the_picture(show: Show, traces) -> None:
    panel = show(traces["prefix"])
    story = where(panel, lambda step: bool(len(step.refused)) and len(step.block) > 0)
    panel.show_table(True)
    table = panel.table.facts_model
    assert table.rowCount() == len(panel.facts().rows)
    cells = list(csv.DictReader(io.StringIO(panel.facts().csv())))
    parts = {cell["part"] for cell in cells}
    graph = {"graph", "kernel"} if story.graph_words else set()
    assert parts == {"row", "time", "refused", "blocks", "pool after the step"} | graph
    seconds = {cell["what"]: float(cell["seconds"]) for cell in cells if cell["part"] == "time"}
    assert seconds["forward"] == story.step.seconds["forward"]
    assert sum(seconds[name] for name in (*PHASES, "other")) == pytest.approx(seconds["step"])
    assert sum(float(c["seconds"]) for c in cells if c["part"] == "row") == pytest.approx(seconds["forward: attention"])
    assert sum(int(c["blocks"]) for c in cells if c["part"] == "blocks") == len(story.step.block)
    panel.row_chosen(1)
    assert panel.scope.request == int(story.step.request[1])


def test_a_step_without_rows_tells_what_happened_to_blocks(show: Show, traces) -> None:
    panel = show(traces["cancelled"])
    story = where(panel, lambda step: step.rows == 0)
    assert story.size_words == "no rows"
    assert totals(story.accounts) == {Change.FREED: len(story.step.block)}
    panel.grab()
    panel.resize(320, 600)
    panel.scope.catch_up()
    panel.grab()


def test_while_it_follows_it_is_drawn_ten_times_a_second(qtbot: QtBot, show: Show, traces) -> None:
    panel = show(Trace())
    drawn: list[int] = []
    draw = panel.draw
    panel.draw = lambda: (drawn.append(1), draw())[1]  # type: ignore[method-assign]
    records, begun = iter(traces["continuous"].records), time.perf_counter()
    for _ in range(24):
        panel.scope.trace.extend([next(records) for _ in range(3)])
        qtbot.wait(20)
    assert 2 <= len(drawn) <= 2 + (time.perf_counter() - begun) / 0.1
    steps = sum(isinstance(r, Step) for r in panel.scope.trace.records)
    qtbot.waitUntil(lambda: panel._story is not None and panel._story.place == steps - 1)


def test_it_follows_a_live_engine(qtbot: QtBot, show: Show, engine: Engine) -> None:
    trace = engine.begin(EngineConfig(max_running=4))
    panel = show(trace)
    streams = [engine.submit(STORY, SamplingParams(max_tokens=600, temperature=0.0, ignore_eos=True)) for _ in range(6)]
    qtbot.waitUntil(lambda: panel._story is not None and len(panel._story) > 1, timeout=20_000)
    for stream in streams:
        stream.result()
    qtbot.waitUntil(lambda: panel.caught_up and panel._story.step is trace.steps[-1])
    assert [cells[0] for cells in panel.facts().rows].count("row") == trace.steps[-1].rows


def test_another_trace_is_another_story(show: Show, traces) -> None:
    panel = show(traces["prefix"])
    panel.scope.show(traces["static"])
    panel.scope.catch_up()
    assert panel._history.steps == len(traces["static"].steps)
    assert panel._story.header is traces["static"].header
    assert panel._story.step is traces["static"].steps[-1]


@pytest.mark.parametrize(("mode", "zoom"), [("dark", 1.0), ("light", 2.0)])
def test_it_fits_its_dock(show: Show, traces, mode: str, zoom: float) -> None:
    theme.set_theme(mode)
    theme.set_zoom(zoom)
    panel = show(Trace())
    for name, (width, height) in itertools.product(
        ("chunked", "static", "prefix", "samples"), ((300, 500), (900, 260), (1600, 400))
    ):
        panel.scope.show(traces[name])
        panel.resize(width, height)
        panel.scope.catch_up()
        for place in (0, 2, panel.scope.steps - 1):
            go(panel, place)
            view = panel.view
            assert view.wide == (view.width() >= theme.px(640))
            assert view.sheet.width() <= view.width()
            assert view.rows.parentWidget().isAncestorOf(view.sheet) != view.wide
            for each in view.sheet._laid:
                assert each.box.right() <= view.sheet.width() + 1
                assert all(x + view.sheet.face.width(text) <= each.box.right() + 1 for x, _, text, _ in each.runs)
            assert max(each.box.bottom() for each in view.sheet._laid) <= view.sheet.height() + 1
            columns = view.rows.columns()
            assert {"request", "out"} <= {column.name for column, *_ in columns}
            assert all(left < right for _, left, right in columns)
            assert [left for _, left, _ in columns] == sorted(left for _, left, _ in columns)
            assert columns[-1][2] <= max(view.rows.width(), theme.px(270))
        image = panel.grab().toImage()
        assert len({image.pixel(x, y) for x in range(0, width, 3) for y in range(0, height, 3)}) > 12


def test_a_story_of_256_rows_is_told_quickly_and_only_where_it_is_seen(show: Show) -> None:
    panel = show(Trace(synthetic_trace(streams=256, tokens_per_second=20_000, seconds=1)))
    story = where(panel, lambda step: step.rows == 256)
    panel.view.rows.update()
    panel.grab()
    lanes = sum(len(lane.rows) == 1 for lane in panel.view.sheet._figure._lanes)
    assert len(story._made) < 256, "rows out of sight cost nothing"
    assert lanes < 256
    assert math.isclose(story.times.rows.shares.sum(), 1.0)


def test_header_alone_is_no_step(show: Show, traces) -> None:
    header = traces["continuous"].records[0]
    assert isinstance(header, Header)
    panel = show(Trace([header]))
    assert panel.view.accessibleDescription() == NOTHING


@pytest.mark.parametrize("width", [90, 175, 260, 420, 900])
def test_no_figure_of_the_time_table_runs_into_its_neighbour(traces: dict[str, Trace], width: int, qapp) -> None:
    trace = next(iter(traces.values()))
    bar = StepBar()
    bar.lay(step_times(trace.steps[-1], trace.header), 0.0, 0.0, width, 0)
    boxes = [cell.box for cell in bar._cells]
    assert not any(one.intersects(other) for one, other in itertools.combinations(boxes, 2))
    assert all(bar.tiny.width(line) <= cell.box.width() for cell in bar._cells for line in cell.lines)
