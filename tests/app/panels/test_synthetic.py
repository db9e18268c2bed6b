from __future__ import annotations

import numpy as np

from app.synthetic import BLOCK, header, synthetic_trace
from engine import Ended, FinishReason, Step, Submitted, Trace, measure


def test_the_same_arguments_give_the_same_trace() -> None:
    one, two = (Trace(synthetic_trace(streams=8, tokens_per_second=500, seconds=2, seed=4)) for _ in range(2))
    assert [v.text for v in one.requests.values()] == [v.text for v in two.requests.values()]
    assert one.duration == two.duration


def test_it_gives_so_many_tokens_a_second_from_so_many_streams() -> None:
    trace = Trace(synthetic_trace(streams=256, tokens_per_second=30_000, seconds=2))
    assert abs(measure(trace).output_throughput / 30_000 - 1) < 0.2
    assert max(s.running for s in trace.steps) == 256


def test_blocks_are_taken_once_and_all_come_back() -> None:
    records = synthetic_trace(streams=16, tokens_per_second=2000, seconds=60, requests=80, faults=0.05)
    owner: dict[int, int] = {}
    for step in (r for r in records if isinstance(r, Step)):
        for block, request in zip(step.taken.tolist(), step.taken_request.tolist(), strict=True):
            assert block not in owner or block in step.freed
            owner[block] = request
        for block in step.freed.tolist():
            owner.pop(block, None)
    assert not owner
    ended = [r for r in records if isinstance(r, Ended)]
    assert len(ended) == sum(isinstance(r, Submitted) for r in records) == 80
    assert {e.reason for e in ended} >= {FinishReason.STOP, FinishReason.LENGTH, FinishReason.ERROR}


def test_texts_tokens_and_positions_agree() -> None:
    records = synthetic_trace(streams=8, tokens_per_second=500, seconds=4, faults=0)
    trace = Trace(records)
    for view in trace.requests.values():
        assert len(view.tokens) == len(view.token_times) <= view.params.max_tokens
        assert view.computed <= len(view.prompt_ids) + len(view.tokens)
        assert "  " not in view.text
    for step in trace.steps:
        assert (np.diff(step.text_end) >= 0).all()
        assert (step.first >= 0).all()
        assert step.free_blocks >= 0
        assert not step.request.flags.writeable
    assert header(8, 64).config.block_size == BLOCK
