"""The measure of a long trace runs from end to end at a small size. Nothing is said of how fast."""

import json

import numpy as np
import pytest

from engine.bench.trace import long_trace
from engine.bench.trace.step_builder import built_step
from engine.bench.trace.synthetic import made_up_hour
from engine.trace.records import BlockEvent, Ended, Step, Submitted
from engine.trace.requests import RequestIndex


def test_a_small_run_gives_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert long_trace.main(["--steps", "5000", "--rows", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["steps"], found["rows"]) == (5000, 8)
    assert found["records"] > 10_000
    assert 0 < found["packed"] < 5000 * 800
    assert found["columns"] > 5000 * 8 * 20
    assert 0 < found["read"]["median"] <= found["read"]["p95"] <= found["read"]["most"]
    assert long_trace.main(["--steps", "300", "--rows", "8"]) == 0
    assert "generated, not measured" in capsys.readouterr().out


def test_what_is_made_up_hangs_together() -> None:
    records, rows = list(made_up_hour(600, 8)), 8
    index, owned = RequestIndex(), dict[int, tuple[int, int]]()
    for record in records:
        index.feed(record)
        if isinstance(record, Step):
            assert record.rows == len(record.token) == rows
            for event, block, request, place in zip(
                record.block_event, record.block, record.block_request, record.block_place, strict=True
            ):
                if event == BlockEvent.TAKEN:
                    assert owned.setdefault(int(block), (int(request), int(place))) == (request, place)
                else:
                    assert owned.pop(int(block)) == (request, place)
            assert len(owned) + record.free_blocks == rows * 64
    ended = [r.request for r in records if isinstance(r, Ended)]
    assert len(ended) == len(set(ended)) == sum(isinstance(r, Submitted) for r in records) - rows
    assert all(len(index.requests[r].tokens) > 30 for r in ended)
    assert np.all([index.requests[r].computed == len(index.requests[r].prompt_ids) + len(index.requests[r].tokens) - 1
                   for r in ended])  # fmt: skip


def test_a_step_from_plain_numbers_has_the_columns_types_of_a_recorded_one() -> None:
    step = built_step(0, 0.0, 1.0, [0], swap_event=[0], beam_fate=[1], beam_score=[-0.5], alt_logprob=[-1.5])
    kinds = [step.swap_event, step.beam_fate, step.beam_score, step.alt_logprob]
    assert [column.dtype for column in kinds] == [np.uint8, np.uint8, np.float32, np.float32]
    assert step.beam_score.tolist() == [-0.5]
