"""Checks of the GPU's path through the engine, which `test_triton_path.py` runs with TRITON_INTERPRET=1."""

import gc
import os
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_triton_path.py", allow_module_level=True)

from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Submission
from engine.memory.rules import bucket_sizes, mixed_sizes
from engine.models.device import trial
from engine.models.loading import LoadedModel, load
from engine.runner.paged_gpu import GpuRunner
from engine.scheduler.block_pool import BlockPool
from engine.scheduler.plan import Row
from engine.scheduler.request import Emission
from engine.scheduler.scheduler import Scheduler
from engine.trace import Step
from engine.trace.records import FinishReason, Kind
from tests.engine.requests import make_request
from tests.engine.tiny_models import TINY_MODELS, random_prompts, save_tiny_model

LENGTHS, NEW = (5, 1, 19), 5
GREEDY = SamplingParams(temperature=0, ignore_eos=True)
MIXED = mixed_sizes(512, 2, 1)
Tokens = dict[tuple[int, int], list[int]]  # by request and sample


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "llama"
    save_tiny_model(TINY_MODELS["llama"], path)
    return path


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load(ModelSpec(str(folder), dtype="float32", device="cpu"))


def test_a_first_launch_tells_whether_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    assert trial(torch.device("cpu")) == ""
    monkeypatch.setattr("engine.models.device.store_kv", lambda *tensors: None)
    assert "wrote nothing" in trial(torch.device("cpu"))


def prompts() -> list[list[int]]:
    found = random_prompts(LENGTHS, seed=3)
    return [*found, found[2][:16] + found[0]]  # the last begins as another does


def submissions(greedy: bool, several: bool, new: int) -> list[Submission]:
    ways = [
        SamplingParams(temperature=0.8, top_p=0.9, seed=5),
        SamplingParams(temperature=1.2, top_k=40, seed=6, n=1 + several),
        SamplingParams(temperature=0.7, min_p=0.05, repetition_penalty=1.3, seed=7),
        SamplingParams(temperature=1.0, seed=8),
    ]
    ways = [SamplingParams(temperature=0)] if greedy else ways
    return [
        Submission(prompt, ways[i % len(ways)].with_(max_tokens=new + i % 3, ignore_eos=True))
        for i, prompt in enumerate(prompts())
    ]


def said(
    model: LoadedModel, config: EngineConfig, greedy: bool, new: int = NEW
) -> tuple[Tokens, list[Step], tuple[int, ...]]:
    with Engine(model, config, threads=1) as engine:
        streams = engine.submit_many(submissions(greedy, config.paged, new))
        assert [stream.result(100).error for stream in streams] == [""] * len(streams)
        pool, steps = engine.scheduler.ledger.pool, list(engine.trace.steps)
        assert pool.free + pool.cached == pool.total
        sizes = engine.runner.graphs
    found: Tokens = {}
    for step in steps:
        for row, token in zip(step.token_row.tolist(), step.token.tolist()):
            found.setdefault((int(step.request[row]), int(step.branch[row])), []).append(token)
    return found, steps, sizes


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[bool, Tokens]:
    """What the CPU's path says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "0")
        plain, config = load(ModelSpec(str(folder), dtype="float32", device="cpu")), EngineConfig(max_running=8)
        return {greedy: said(plain, config, greedy)[0] for greedy in (True, False)}


CONFIGS = {
    "decode graphs": EngineConfig("continuous", 8, 512, block_size=4, depth=1, mixed_graphs=False),
    "chunked": EngineConfig("chunked", 8, 16, block_size=4, depth=1, prefix_caching=True),
    "preempted": EngineConfig("continuous", 4, 512, block_size=4, depth=1, prefix_caching=True, kv_memory=20 << 10),
}


@pytest.mark.parametrize(
    ("name", "greedy"),
    [("decode graphs", False), ("chunked", True), ("preempted", True)],  # others in `pretended_engine_checks.py`
)
def test_tokens_are_those_of_the_cpu(name: str, greedy: bool, model: LoadedModel, expected: dict[bool, Tokens]) -> None:
    config = CONFIGS[name]
    replays, mixed = config.cuda_graphs, config.cuda_graphs and config.mixed_graphs
    tokens, steps, sizes = said(model, config, greedy)
    assert tokens == expected[greedy]
    assert len({token for each in tokens.values() for token in each}) > 10
    assert any(len(step.preempted) for step in steps) == (name == "preempted")
    assert sizes == (bucket_sizes(config.max_running) if replays else ())
    decoded = [step for step in steps if step.rows and (step.kind == Kind.DECODE).all()]
    others = [step for step in steps if step.rows and not (step.kind == Kind.DECODE).all()]
    assert len(decoded) > 1
    assert len(others) > 1
    for step in decoded:
        assert step.graph == (next(size for size in sizes if size >= step.rows) if replays else 0)
    for step in others:
        assert step.graph == (next(size for size in MIXED if size >= step.count.sum()) if mixed else 0)


@pytest.mark.parametrize("greedy", [True, False])
def test_drafted_tokens_change_nothing_that_is_said(
    greedy: bool, folder: Path, model: LoadedModel, expected: dict[bool, Tokens]
) -> None:
    """By the model itself, so that most are kept, and between: rows that verify, rows that do not, and prompts."""
    config = EngineConfig(
        "chunked", 8, 64, block_size=4, speculation="draft", speculated=2, draft=ModelSpec(str(folder))
    )
    tokens, steps, _ = said(model, config, greedy)
    assert tokens == expected[greedy]
    proposed, kept = (sum(int(each.sum()) for each in of) for of in zip(*((s.drafted, s.accepted) for s in steps)))
    assert 0.5 * proposed < kept
    assert any(0 < np.count_nonzero(s.drafted) < s.rows for s in steps)
    assert any(s.graph for s in steps if s.drafted.any())


def test_what_a_draft_drew_and_the_model_did_not_keep_is_not_read_on(
    tmp_path: Path, model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a row's slot drew last is its branch's token, wherever a runner takes it from there."""
    save_tiny_model(TINY_MODELS["llama"], tmp_path, seed=1)
    own, kept = GpuRunner.there, []

    def there(runner: GpuRunner, row: Row) -> bool:
        found = own(runner, row)
        if found and not row.fed:
            kept.append(int(runner._rows.last_tokens[row.slot]) == row.branch.tokens[row.first])
        return found

    monkeypatch.setattr(GpuRunner, "there", there)
    drafting = {"speculation": "draft", "speculated": 1, "draft": ModelSpec(str(tmp_path)), "cuda_graphs": False}
    _, steps, _ = said(model, EngineConfig("chunked", 8, 64, block_size=4, **drafting), greedy=True, new=4)  # type: ignore[arg-type]
    assert any((step.accepted < step.drafted).any() for step in steps)
    assert all(kept)


@pytest.mark.parametrize("mixed", [True, False])
def test_the_device_follows_the_host_while_branches_come_and_go(mixed: bool, model: LoadedModel) -> None:
    """Lengths, block tables and last tokens by slot; blocks that nobody owns stay untouched, whatever dummies do."""
    config = EngineConfig("continuous", 5, 64, block_size=4, mixed_graphs=mixed)
    blocks = 40
    runner = GpuRunner(model, config, blocks)
    for cache in (*runner.k_caches, *runner.v_caches):
        cache.fill_(torch.nan)
    scheduler = Scheduler(config, BlockPool(blocks, config.block_size))
    waiting = [make_request(model, i, n, GREEDY.with_(max_tokens=3 + i)) for i, n in enumerate((3, 9, 1, 12, 6))]
    touched: set[int] = {blocks}  # the dummies'
    dummies: dict[bool, set[int]] = {True: set(), False: set()}
    for turn in range(30):
        if waiting and turn % 3 == 0:
            scheduler.add(waiting.pop())
        if turn == 7:
            scheduler.finish(next(iter(scheduler.requests.values())), FinishReason.CANCELLED)
        plan = scheduler.plan()
        if plan is None:
            continue
        launched = runner.launch(plan)
        decodes = all(row.kind is Kind.DECODE for row in plan.rows)
        used = len(plan.rows) if decodes else sum(row.count for row in plan.rows)
        dummies[decodes].add(launched.graph - used if launched.graph else -1)
        drawn = launched.read().tokens
        rows = runner._rows
        for row in plan.rows:
            touched.update(row.branch.blocks[row.first // 4 : (row.first + row.count - 1) // 4 + 1])
            assert rows.lengths[row.slot] == row.first + row.count
            assert rows.tables[row.slot, : len(row.branch.blocks)].tolist() == row.branch.blocks
        assert rows.last_tokens[[row.slot for row in plan.rows if row.samples]].tolist() == drawn
        scheduler.commit(plan, [Emission(int(token)) for token in drawn])
        if turn == 12:
            runner.reset()  # all is sent again
    assert scheduler.idle
    assert not waiting
    assert 0 in dummies[True], "full graphs"
    assert len(dummies[True]) > 1, "and ones with dummies"
    assert max(dummies[False]) > 8 if mixed else dummies[False] == {-1}, "steps with prompts, padded or as they are"
    for cache in (*runner.k_caches, *runner.v_caches):
        clean = [b for b in range(blocks + 1) if b not in touched]
        assert len(clean) > 3
        assert cache[clean].isnan().all()
    assert rows.lengths[rows.dummy_slot] == 0


def test_a_steady_decode_step_sends_nothing(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    config = EngineConfig("continuous", 4, 64, block_size=16)
    runner = GpuRunner(model, config, 20)
    scheduler = Scheduler(config, BlockPool(20, 16))
    for i in range(3):
        scheduler.add(make_request(model, i, 3, GREEDY.with_(max_tokens=5)))
    sent: list[int] = []
    send = runner._rows.send

    def counted(words: Any = None) -> torch.Tensor | None:
        sent.append(len(runner._rows._index) + (0 if words is None else len(words)))
        return send(words)

    monkeypatch.setattr(runner._rows, "send", counted)
    while (plan := scheduler.plan()) is not None:
        scheduler.commit(plan, [Emission(int(token)) for token in runner.launch(plan).read().tokens])
    prompts, lined_up, *steady = sent
    assert prompts > 0
    assert lined_up > 0
    assert steady
    assert not any(steady)


def test_a_runner_that_is_let_go_is_gone_at_once_with_its_pool(model: LoadedModel) -> None:
    """The next one is made before anybody collects cycles."""
    config = EngineConfig("continuous", 4, 64, block_size=4)
    runner, scheduler = GpuRunner(model, config, 20), Scheduler(config, BlockPool(20, 4))
    runner.capture(lambda done, total: None)
    scheduler.add(make_request(model, 0, 3, GREEDY.with_(max_tokens=3)))
    while (plan := scheduler.plan()) is not None:
        scheduler.commit(plan, [Emission(int(token)) for token in runner.launch(plan).read().tokens])
    gone = weakref.ref(runner)
    gc.disable()
    try:
        del runner
        assert gone() is None
    finally:
        gc.enable()


class Waits(TorchDispatchMode):
    """Fails on an operation whose result the host, or the size of a tensor, waits for: no graph could hold it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        index = args[1] if name.startswith("index") and isinstance(args[1], (list, tuple)) else ()
        by_mask = any(isinstance(x, torch.Tensor) and x.dtype in (torch.bool, torch.uint8) for x in index)
        waits = name in ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "bincount") or by_mask
        assert not waits, f"{func} in a decode step"
        return func(*args, **(kwargs or {}))


def replayed_and_not(model: LoadedModel, config: EngineConfig) -> Iterator[tuple[Tokens, list[Step]]]:
    for mixed in (True, False):
        yield said(model, replace(config, mixed_graphs=mixed), greedy=False, new=2)[:2]


@pytest.mark.parametrize(("name", "quantization", "layers"), [("gemma3", "none", 3), ("gpt-oss", "mxfp4", 1)])
def test_steps_with_prompts_give_the_same_tokens_replayed_and_eager(
    name: str, quantization: str, layers: int, tmp_path: Path
) -> None:
    """Chunks beside decode rows, of models with norms of heads, with windows, and with experts that are codes."""
    save_tiny_model(TINY_MODELS[name], tmp_path, layers=layers)
    model = load(ModelSpec(str(tmp_path), quantization, dtype="float32", device="cpu"))
    if quantization != "none":
        assert model.fusion is not None
        assert model.fusion.fused["CodedExperts", "experts"] == layers
    config = EngineConfig("chunked", 8, 16, block_size=4, depth=1)
    (replayed, steps), (eager, others) = replayed_and_not(model, config)
    assert replayed == eager
    mixed = [{Kind.DECODE, Kind.PREFILL} <= set(step.kind.tolist()) for step in steps]
    assert any(mixed), "decode rows beside prompts"
    assert all(step.graph == 16 for step, is_mixed in zip(steps, mixed) if is_mixed)
    assert not any(step.graph for step in others if (step.kind == Kind.PREFILL).any())
    for step in (*steps, *others):  # of a mixture: what fills a graph up is not counted
        sent = len(model.card.expert_layers) * model.card.active_experts * step.count.sum()
        assert step.expert.sum() == sent
    told = [[step.expert.tolist() for step in each if step.rows] for each in (steps, others)]
    assert told[0] == told[1]
    assert any(map(len, told[0])) is (name == "gpt-oss")


@pytest.mark.parametrize("name", list(TINY_MODELS))
def test_a_captured_step_never_waits_for_the_device(name: str, tmp_path: Path) -> None:
    save_tiny_model(TINY_MODELS[name], tmp_path)
    model = load(ModelSpec(str(tmp_path), dtype="float32", device="cpu"))
    runner = GpuRunner(model, EngineConfig(max_running=4, block_size=4), 8)
    with torch.inference_mode(), Waits():
        steps = (2, runner._decode_and_draw(2)), (4, runner._mixed_and_draw(16))
    for rows, (logits, words) in steps:
        assert logits.shape == (rows, model.card.vocabulary)
        assert words.shape == (2, rows)
