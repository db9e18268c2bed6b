"""What a run with drafts looks like: on cards, in the transcript, in the step, on the charts, against its records."""

from itertools import groupby

import numpy as np
import pytest

from app.compare.lanes.tally import LaneTally, percent, short_wasted_words, wasted_words
from app.inside.step.history import StepHistory
from app.inside.step.story import StepStory, Waste
from app.inside.timeline.runs import Cell
from app.inside.timeline.words import cell_words
from app.play.charts.metrics import Drafts
from app.play.charts.series import ChartSeries
from app.play.streams.card_painter import drafted_spans
from app.play.transcript.card import card_words
from app.play.transcript.tokens import DRAFTED, draft_classes, token_card
from app.session.memory.device import device_bill
from engine import Engine, EngineConfig, SamplingParams, Trace, measure
from engine.trace import Kind, RequestIndex, Step, TallyIndex, ratio_text

STORY = [{"role": "user", "content": "Tell me a story about a fox and a table."}]


@pytest.fixture(scope="module")
def trace(engine: Engine) -> Trace:
    """Two stories, with tokens that were kept and others that were not."""
    trace = engine.begin(EngineConfig(max_running=4, speculation="draft", speculated=4))
    params = SamplingParams(max_tokens=80, temperature=1.3, seed=3)
    for stream in [engine.submit(STORY, params.with_(seed=seed)) for seed in (3, 4)]:
        stream.result(timeout=60)
    copy = Trace(trace.records)
    engine.begin(EngineConfig())
    return copy


@pytest.fixture(scope="module")
def index(trace: Trace) -> RequestIndex:
    index = RequestIndex()
    for record in trace.records:
        index.feed(record)
    return index


def verifying(trace: Trace) -> list[Step]:
    return [step for step in trace.steps if step.drafted.any()]


def test_every_token_says_whether_it_was_drafted(trace: Trace, index: RequestIndex) -> None:
    steps = {step.ended: step for step in trace.steps}
    for view in index.requests.values():
        sample = view.samples[0]
        expected = []
        for step in trace.steps:
            for row in np.flatnonzero(step.request == view.request).tolist():
                said = int((step.token_row == row).sum())
                kept = int(step.accepted[row]) if len(step.accepted) else 0
                expected += [i < kept for i in range(said)]
        assert draft_classes(sample).tolist() == [int(each) for each in expected]
        assert 0 < sum(expected) < len(expected)
        spans = list(drafted_spans(sample, 0, len(sample.text)))
        runs = [
            (drafted, [i for i, _ in run]) for drafted, run in groupby(enumerate(expected), key=lambda each: each[1])
        ]
        ends = [0, *sample.text_ends]
        shown = [(ends[run[0]], ends[run[-1] + 1]) for drafted, run in runs if drafted]
        assert spans == [(begin, end) for begin, end in shown if begin < end]
        for at in range(len(sample.tokens)):
            card = token_card(view, 0, at, steps[sample.token_times[at]])
            assert card.drafted == expected[at]
            if card.drafted:
                assert "drafted, and kept" in card_words(card, 0.0)
            elif card.instead_of is not None:
                assert card.instead_of != card.text or not card.text
        half = sample.at(sample.token_times[len(sample.tokens) // 2])
        assert draft_classes(half).tolist() == draft_classes(sample).tolist()[: len(half.tokens)]
    assert any(DRAFTED in draft_classes(view.samples[0]) for view in index.requests.values())


def test_a_step_tells_what_was_kept_said_and_rejected(trace: Trace) -> None:
    history = StepHistory()
    history.take(trace.records)
    for place, step in enumerate(trace.steps):
        story = StepStory(step, history, place, 0.0)
        first = 0
        for at in range(step.rows):
            row = story.row(at)
            count = int(step.drafted[at]) if len(step.drafted) else 0
            drafts, first = step.draft_text[first : first + count], first + count
            assert row.drafts == drafts
            if not count:
                continue
            kept, own, rejected = row.verified
            assert row.kind_words == "verify"
            assert len(row.tokens) - row.accepted in (0, 1)
            assert rejected == "".join(drafts[row.accepted :]).replace("\n", "↵")
            assert (row.waste is Waste.REJECTED) == (row.wasted > 0)
            assert row.out_note == f"{row.accepted} of {count}"


def test_the_timelines_words_tell_of_drafts() -> None:
    cell = Cell(0, 7, Kind.DECODE, 3, 5, 0, 2, 0.0, 0.01, drafted=4)
    assert "decoding, 4 drafted: 2 kept, 2 thrown away" in cell_words(cell)


def test_the_measures_and_the_chart_count_what_was_kept(trace: Trace) -> None:
    drafted = sum(int(step.drafted.sum()) for step in verifying(trace))
    kept = sum(int(step.accepted.sum()) for step in verifying(trace))
    rows = sum(int((step.drafted > 0).sum()) for step in verifying(trace))
    found = measure(trace)
    assert (found.drafts, found.drafted_tokens, found.accepted_tokens) == (rows, drafted, kept)
    lane = LaneTally()
    lane.feed(trace.records)
    told = lane.figures()
    assert told.thrown == pytest.approx(1 - kept / drafted)
    assert f"{percent(told.thrown)} of drafts wasted" in wasted_words(told)
    assert f"{percent(told.thrown)} of drafts wasted" == short_wasted_words(told)
    assert found.acceptance_rate == pytest.approx(kept / drafted)
    assert found.accepted_length == pytest.approx(1 + kept / rows)
    series, tally, chart = ChartSeries(), TallyIndex(), Drafts("drafts", "Tokens a verified row", "")
    assert not chart.shown(series)
    tally.feed(trace.records)
    series.feed(list(trace.records), tally)
    assert chart.shown(series)
    assert series.drafts[1].sum() == drafted
    title, figure = chart.last(found) or ("", ("", ""))
    assert f"{100 * kept / drafted:.0f} %, speed {ratio_text(found.draft_speedup or 0)}" in title
    assert any(not step.drafted.any() and (step.kind == Kind.DECODE).all() for step in trace.steps), (
        "some tell its cost"
    )
    assert figure == (f"{1 + kept / rows:.2f}", "tokens")


def test_the_bill_has_the_drafts_weights_and_its_share_of_the_pool(trace: Trace) -> None:
    header = trace.header
    assert header.draft is not None
    bill = device_bill(header, None)
    items = {item.name: item.count for item in bill.items}
    assert items["draft model"] == header.draft.weight_bytes
    assert (
        items["KV pool"]
        == header.blocks * 16 * header.kv_token_bytes
        > header.blocks * 16 * header.model.kv_token_bytes
    )
    assert sum(items.values()) == bill.total
