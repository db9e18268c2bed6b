"""A step's bytes and operations, against torch's count of a real forward and against counting by position."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoTokenizer

import resources
from engine import Engine, EngineConfig, SamplingParams, Submission, Trace, load_workload
from engine.config import PAGED_MODES
from engine.models import loading
from engine.models.loading import wrap
from engine.trace import BlockEvent, Kind, Step, WorkCounter, count_work
from tests.engine.tiny_models import TINY_MODELS, make_tiny_model
from tests.engine.trace.hand_made import CARD, header, step

MODES = ("recompute", "sequential", "static", "continuous-padded", "continuous", "chunked")
NAMES = ("llama", "mistral", "gemma2", "mixtral", "gpt2")
LENGTHS = ((5, 4), (23, 2), (2, 6), (11, 1), (40, 3))  # prompt and new tokens


@pytest.fixture(scope="module", params=NAMES)
def tiny(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine over a tiny model whose layers stay plain, so that torch counts them."""
    module = make_tiny_model(TINY_MODELS[request.param]).to(torch.bfloat16)
    module.config._experts_implementation = "eager"
    tokenizer = AutoTokenizer.from_pretrained(resources.path("models/stories-5m"))
    with pytest.MonkeyPatch.context() as patch:
        for pack in ("pack_linears", "pack_experts"):
            patch.setattr(loading, pack, lambda module: None)
        model = wrap(module, tokenizer, request.param)
    with Engine(model, EngineConfig(max_running=4), threads=1) as engine:
        yield engine


def steps_of(trace: Trace) -> list[Step]:
    return [record for record in trace.records if isinstance(record, Step) and record.rows]


def flops(counter: FlopCounterMode, part: str, *operations: str) -> float:
    """What was counted of these operations in a part of the model."""
    counts = counter.get_flop_counts().get(part, {})
    return sum(count for operation, count in counts.items() if str(operation).split(".")[-1] in operations)


def counted_run(engine: Engine, mode: str) -> tuple[Trace, list[float]]:
    """A run, and the operations that torch counts in the matrix products of each of its forwards."""
    slots = 1 if mode in ("recompute", "sequential") else 3
    trace = engine.begin(EngineConfig(mode=mode, max_running=slots, block_size=4, token_budget=32, depth=0))
    counts: list[float] = []
    counter: list[FlopCounterMode] = []

    def enter(*_: Any) -> None:
        counter.append(FlopCounterMode(display=False))
        counter[0].__enter__()

    def leave(*_: Any) -> None:
        done = counter.pop()
        done.__exit__(None, None, None)
        counts.append(flops(done, "Global", "mm", "addmm"))
        counts[-1] += flops(done, "Linear", "bmm")  # the head, of a slice that is not contiguous

    module = engine.model.module
    hooks = [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    params = [SamplingParams(max_tokens=new, temperature=0, ignore_eos=True) for _, new in LENGTHS]
    prompts = [list(range(10, 10 + length)) for length, _ in LENGTHS]
    for stream in engine.submit_many([Submission(p, q) for p, q in zip(prompts, params)]):
        assert stream.result(60).finish_reason == "length"
    for hook in hooks:
        hook.remove()
    return trace, counts


def attended(begin: int, end: int, window: int) -> list[range]:
    """The positions that each token in [begin, end) attends to."""
    return [range(max(0, p - window + 1) if window else 0, p + 1) for p in range(begin, end)]


@pytest.mark.parametrize("mode", MODES)
def test_a_run_is_counted_as_torch_counts_it_and_as_one_would_by_hand(tiny: Engine, mode: str) -> None:
    trace, counted = counted_run(tiny, mode)
    steps, card = steps_of(trace), trace.header.model
    work = WorkCounter(trace.header).count(steps)
    assert work.matmul_operations.tolist() == pytest.approx(counted, rel=0.002)

    layer_bytes = card.kv_token_bytes // card.layers
    width = begin_row = 0
    for i, one in enumerate(steps):
        whole = mode == "recompute" or one.kind[0] == Kind.PREFILL
        if mode not in PAGED_MODES:
            width = int(one.count[0] + one.padding[0]) if whole else max(width + 1, *(one.first + one.count).tolist())
            if mode == "continuous-padded" and not whole:
                width = int((one.first + one.count).max())
        operations = size = 0
        for first, count in zip(one.first.tolist(), one.count.tolist()):
            if mode in PAGED_MODES:
                begin, end = first, first + count
            else:
                begin, end = (0, width) if whole else (width - 1, width)
            for window in card.windows:
                seen = attended(begin, end, window)
                operations += 4 * card.heads * card.head_dim * sum(map(len, seen))
                size += layer_bytes * len(set().union(*seen))
                size += 0 if mode == "recompute" else layer_bytes * len(seen)
        assert work.attention_operations[i] == operations
        assert work.attention_bytes[i] == size
        rows = slice(begin_row, work.row_ends[i])
        assert rows.stop - begin_row == one.rows
        assert (work.row_bytes[rows].sum(), work.row_operations[rows].sum()) == (size, operations)
        begin_row = rows.stop

        tokens, item = sum((one.count + one.padding).tolist()), 2
        read = one.rows if mode not in PAGED_MODES else len(one.token)
        dense = card.body_parameters - card.expert_parameters
        share = sum(sent > 0 for sent in one.expert.tolist()) / max(1, len(one.expert))
        assert (share > 0) is (card.experts > 0)
        expected = item * (dense + card.expert_parameters * share + card.hidden * tokens)
        expected += item * card.head_parameters if read else 0
        assert work.matmul_bytes[i] == pytest.approx(expected)
        assert work.tokens[i] == tokens
    assert work.bytes == pytest.approx(work.matmul_bytes + work.attention_bytes)
    assert work.operations == pytest.approx(work.matmul_operations + work.attention_operations)


@pytest.mark.parametrize("samples", [1, 4])
def test_a_prefix_that_rows_share_is_read_once_on_a_cpu(large_demo: Engine, samples: int) -> None:
    config = EngineConfig(max_running=16, prefix_caching=True)
    if samples == 1:
        trace = large_demo.run(load_workload("shared-system-prompt", count=12), config).result()
    else:
        trace = large_demo.begin(config)
        params = SamplingParams(max_tokens=24, temperature=1.0, ignore_eos=True, n=samples)
        large_demo.submit(list(range(5, 75)), params).result(60)
    header = trace.header
    records = [record for record in trace.records if isinstance(record, Step)]
    work = WorkCounter(header).count(records)
    tables: dict[tuple[int, int], dict[int, int]] = {}
    size, saved = header.config.block_size, 0
    for i, one in enumerate(records):
        told = list(
            zip(
                *(
                    column.tolist()
                    for column in (one.block_event, one.block, one.block_request, one.block_branch, one.block_place)
                )
            )
        )
        for event, block, request, branch, place in told:
            if event in (BlockEvent.TAKEN, BlockEvent.SHARED):
                tables.setdefault((request, branch), {})[place] = block
        if one.rows and (one.kind == Kind.DECODE).all():
            read: set[tuple[int, int]] = set()
            contexts = 0
            for request, branch, first in zip(one.request.tolist(), one.branch.tolist(), one.first.tolist()):
                table = tables[request, branch]
                read |= {(table[p // size], p % size) for p in range(first + 1)}
                contexts += first + 1
            expected = (len(read) + one.rows) * header.model.kv_token_bytes
            assert work.attention_bytes[i] == expected
            assert work.attention_operations[i] == 4 * 8 * 32 * contexts * header.model.layers
            saved += contexts - len(read)
        for event, block, request, branch, place in told:
            if event not in (BlockEvent.TAKEN, BlockEvent.SHARED) and request >= 0:
                left = tables.get((request, branch), {})
                if left.get(place) == block:
                    del left[place]
    assert saved > 1000, "there was something to share"


def test_counting_in_parts_is_counting_at_once(demo: Engine) -> None:
    trace = demo.run(load_workload("mixed-lengths", count=12), EngineConfig(mode="static", max_running=4)).result()
    steps = [record for record in trace.records if isinstance(record, Step)]
    whole, parts = WorkCounter(trace.header).count(steps), WorkCounter(trace.header)
    one_by_one = [parts.count([each]) for each in steps]
    assert np.concatenate([part.bytes for part in one_by_one]).tolist() == whole.bytes.tolist()
    assert np.concatenate([part.operations for part in one_by_one]).tolist() == whole.operations.tolist()


def test_a_row_that_is_done_grows_with_its_batch() -> None:
    """Of a prompt of 20 and one of 4, the first is done at once; its strip sets the width of the rectangle."""
    card = replace(CARD, kv_token_bytes=8)
    steps = [
        step(0, 0.0, 1.0, [(0, 0, 20, Kind.PREFILL), (1, 0, 4, Kind.PREFILL)], {0: 1, 1: 1}, padding=(0, 16)),
        step(1, 1.0, 2.0, [(0, 20, 1, Kind.HELD), (1, 4, 1, Kind.DECODE)], {1: 1}),
        step(2, 2.0, 3.0, [(0, 20, 1, Kind.HELD), (1, 5, 1, Kind.DECODE)], {1: 1}),
    ]
    head = replace(header(EngineConfig(mode="static", max_running=2)), model=card)
    assert WorkCounter(head).count(steps).attention_operations.tolist() == [4 * 2 * 210, 4 * 2 * 21, 4 * 2 * 22]


def test_a_card_on_which_nobody_counted_takes_the_embedding_for_the_head() -> None:
    card = replace(CARD, parameters=1000, hidden=4, vocabulary=100, weight_bytes=4000)
    head = replace(header(EngineConfig()), model=card)
    work = count_work(head, [step(0, 0.0, 1.0, [(0, 0, 10, Kind.PREFILL)], {0: 1})])
    assert work.matmul_operations[0] == 2 * 600 * 10 + 2 * 400
    assert work.matmul_bytes[0] == 4000 + 10 * 4 * 4


def test_a_step_without_rows_costs_nothing_and_no_steps_are_no_rows() -> None:
    head = header(EngineConfig())
    work = count_work(head, [step(0, 0.0, 1.0, [])])
    assert (work.bytes[0], work.operations[0], work.tokens[0]) == (0, 0, 0)
    assert len(count_work(head, []).bytes) == 0
    assert len(WorkCounter(head).count([]).operations) == 0
