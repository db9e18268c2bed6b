"""What the other panels tell of beams: the step's rows, the KV map's blocks, the transcript's samples."""

import pytest

from app.inside.kv_map.state import KvState, Requests
from app.inside.kv_map.words import content_words
from app.inside.step.history import StepHistory
from app.inside.step.story import StepRow, StepStory
from engine import Engine, EngineConfig, SamplingParams, Trace
from engine.trace import Fate, Header, Kind, Step, Submitted

WIDTH = 3


@pytest.fixture(scope="module")
def trace(engine: Engine) -> Trace:
    engine.begin(EngineConfig(max_running=8, block_size=8, token_budget=16))
    params = SamplingParams(max_tokens=30, beam_width=WIDTH, ignore_eos=True)
    engine.submit("Once upon a time, there was a little girl named Anna, and she had a red ball.", params).results(60)
    return engine.trace


def test_a_row_says_with_which_tokens_its_beam_goes_on(trace: Trace) -> None:
    history, told = StepHistory(), 0
    for record in trace.records:
        if isinstance(record, Step) and record.rows:
            story = StepStory(record, history, history.steps, 0.0)
            for at in range(record.rows):
                row = StepRow(story, at)
                if row.kind is Kind.PREFILL:
                    continue
                after = [i for i in range(len(record.beam_parent)) if record.beam_parent[i] == record.branch[at]]
                lives = [record.beam_text[i] for i in after if record.beam_fate[i] != Fate.PRUNED]
                assert row.out_text == " ".join(f"“{text}”" for text in lives)
                said = {0: "pruned", 1: "goes on"}.get(len(lives), f"{len(lives)} go on")
                assert row.out_note == said
                told += 1
        history.take([record])
    assert told > 2 * WIDTH


def test_a_prompt_that_beams_go_on_from_is_whole_after_its_chunks(trace: Trace) -> None:
    history = StepHistory()
    history.take(trace.records)
    length = len(next(r for r in trace.records if isinstance(r, Submitted)).token_ids)
    chunks = -(-length // 16)
    assert [history.chunk(place, 0, 0) for place in range(chunks)] == [(i + 1, chunks) for i in range(chunks)]


def test_the_map_shows_what_beams_share_and_says_nothing_it_does_not_know(trace: Trace) -> None:
    header = next(r for r in trace.records if isinstance(r, Header))
    requests = Requests()
    state = KvState(header, requests)
    shared, alone = 0, 0
    for position, record in enumerate(trace.records):
        if isinstance(record, Submitted):
            requests.feed(record, position)
        state.feed(record)
        if not isinstance(record, Step):
            continue
        kinds = state.kinds()
        assert (kinds.used, kinds.reserved, kinds.internal) == (record.kv_used, record.kv_reserved, record.kv_internal)
        tables = state.samples(0)
        if len(tables) < WIDTH:
            continue
        blocks = {int(block) for table in tables.values() for block in table}
        shared = max(shared, sum(int(state.references[block]) == WIDTH for block in blocks))
        own = [block for block in blocks if state.references[block] == 1]
        alone = max(alone, len(own))
        for block in own:
            assert "of its beams" in content_words(state, block, trace.records, position)
    assert shared >= 3, "the prompt's full blocks"
    assert alone >= WIDTH, "each writes to its own"
