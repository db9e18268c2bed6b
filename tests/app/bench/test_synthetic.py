import numpy as np
import pytest

from app.bench.synthetic import BLOCK, header, synthetic_trace
from app.bench.synthetic_lanes import MODES, lane_trace
from engine import Trace, measure
from engine.trace import BlockEvent, Ended, FinishReason, Kind, Step, Submitted


@pytest.mark.parametrize("mode", MODES)
def test_a_lane_gives_every_request_its_tokens_whatever_the_mode(mode: str) -> None:
    records = lane_trace(mode, slots=4, requests=11, seed=3, output=(1, 40), lag=1)
    trace = Trace(records)
    assert len(trace.requests) == 11
    assert all(len(v.tokens) == v.params.max_tokens and v.ended is not None for v in trace.requests.values())
    kinds = set(np.concatenate([s.kind for s in trace.steps]).tolist())
    assert kinds == {Kind.PREFILL, Kind.DECODE} | ({Kind.HELD} if mode == "static" else set())
    assert any(s.padding.any() for s in trace.steps) == (mode == "static")
    for step in trace.steps:
        assert len(np.unique(step.slot)) == step.rows
        assert (step.wasted <= step.count).all()


def test_a_lane_of_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="mode='magic'"):
        lane_trace("magic")


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
        for event, block, request in zip(
            step.block_event.tolist(), step.block.tolist(), step.block_request.tolist(), strict=True
        ):
            if event == BlockEvent.TAKEN:
                assert block not in owner
                owner[block] = request
            else:
                assert owner.pop(block) == request
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


def test_a_large_pool_keeps_the_blocks_of_finished_requests_until_their_room_is_needed() -> None:
    records = synthetic_trace(streams=8, tokens_per_second=4000, seconds=3, blocks=600, block_size=4)
    cached: set[int] = set()
    owned: set[int] = set()
    evicted = 0
    for step in (r for r in records if isinstance(r, Step)):
        for event, block in zip(step.block_event.tolist(), step.block.tolist(), strict=True):
            if event == BlockEvent.TAKEN:
                evicted += block in cached
            if event in (BlockEvent.TAKEN, BlockEvent.SHARED):  # SHARED: by one that was preempted and is back
                cached.discard(block)
                owned.add(block)
            else:
                owned.remove(block)
                if event == BlockEvent.KEPT:
                    cached.add(block)
        assert step.cached_blocks == len(cached)
        assert step.free_blocks == 600 - len(cached) - len(owned)
        assert step.kv_used + step.kv_reserved + step.kv_internal == 4 * len(owned)
    assert evicted > 100
