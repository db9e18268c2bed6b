"""Pools are sized by what is free and needed, and a runner that serves another config is kept."""

from dataclasses import replace
from threading import Event
from types import SimpleNamespace

import pytest
import torch

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams
from engine.core.setup import kv_budget
from engine.core.setup.activations import activation_bytes
from engine.core.setup.kv_budget import check_wanted, step_blocks
from engine.core.setup.rehearsal import Rehearsal
from engine.core.setup.runner_factory import RunnerFactory, graph_needs
from engine.decoding.detokenizer_factory import DetokenizerFactory
from engine.jobs import LoadCancelled, LoadProgress
from engine.memory import kv_capacity
from engine.memory.rules import CAPTURE, FASTEST, captured_tokens, pool_share
from engine.models.loading import load
from engine.models.weights import Reporter
from engine.runner.paged_cpu import PagedRunner
from engine.trace.records import Roof

GB = 1 << 30
GREEDY = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)


@pytest.mark.parametrize("config", [EngineConfig(), EngineConfig(max_running=3, token_budget=3000, block_size=32)])
def test_a_pool_for_one_step_is_enough_to_play_it(config: EngineConfig) -> None:
    model = load(ModelSpec("demo-draft"))
    detokenizers, fast = DetokenizerFactory(model.tokenizer), Roof((1,), (1.0,), 1e18)  # so that all of it is played
    blocks = 4 * step_blocks(config, model.card.context)
    ample = Rehearsal(PagedRunner(model, config, blocks), config, blocks, model.card.context, detokenizers)
    few = step_blocks(config, model.card.context)
    tight = Rehearsal(PagedRunner(model, config, few), config, few, model.card.context, detokenizers)
    assert tight.fill(config.token_budget) == ample.fill(config.token_budget)
    whole = activation_bytes(ample, model, config, fast)
    assert RunnerFactory(model, detokenizers, fast).profile(config, Reporter(None, None)) == pytest.approx(
        whole, rel=0.01
    )


def test_kernels_that_are_compiled_are_told_of_and_a_cancel_is_heard_between_them() -> None:
    model, config, cancelled = load(ModelSpec("demo-draft")), EngineConfig(max_running=2, token_budget=64), Event()
    said: list[str] = []

    def hear(progress: LoadProgress) -> None:
        said.append(progress.stage)
        if len(said) == 3:
            cancelled.set()

    factory, blocks = RunnerFactory(model, model.detokenizers, None), step_blocks(config, model.card.context)
    factory.profile(config, Reporter(hear, None))
    assert said == ["compiling kernels for this GPU, once"]
    runner = PagedRunner(model, config, blocks)
    rehearsal = Rehearsal(runner, config, blocks, model.card.context, model.detokenizers)
    with pytest.raises(LoadCancelled):
        rehearsal.meet_all_kernels(lambda: Reporter(hear, cancelled)("a step"))
    assert said[1:] == ["a step"] * 2


def test_a_gpus_kv_memory_that_does_not_fit_is_refused_with_what_is_free() -> None:
    share = pool_share(20 * GB, "cuda", 2 * GB)
    assert share == 20 * GB - 2 * GB - int(0.02 * 20 * GB)
    assert check_wanted(share, share, 20 * GB, 2 * GB) == share
    with pytest.raises(InvalidInput) as refusal:
        check_wanted(18 * GB, share, 20 * GB, 2 * GB)
    assert str(refusal.value).startswith(f"kv_memory={18 * GB:,}: {20 * GB:,} bytes of the GPU's memory are free")
    assert f"give at most {share:,}" in str(refusal.value)
    assert pool_share(1 << 28, "cuda") == 0, "a reserve is left"
    assert pool_share(20 * GB, "cuda", 2 * GB, display=True) == 20 * GB - 2 * GB - (1 << 30), "windows take theirs"


def test_room_is_kept_for_what_is_captured_and_for_nothing_else() -> None:
    model, config = load(ModelSpec("demo-draft")), EngineConfig()
    without, decode = (replace(config, cuda_graphs=False), replace(config, mixed_graphs=False))
    none, of_decode, of_all = (graph_needs(model, each, FASTEST) for each in (without, decode, config))
    assert none == graph_needs(model, replace(config, mode="static"), FASTEST)
    sizes = captured_tokens(model.card, config)
    assert sizes[-1] == config.token_budget
    assert of_decode - none > 11 * CAPTURE
    assert of_all - of_decode >= len(sizes) * CAPTURE
    assert graph_needs(model, config, 1e6) == of_decode, "a slow device captures no step with prompts"
    assert captured_tokens(model.card, decode) == captured_tokens(model.card, without) == ()


def test_a_pool_holds_as_many_requests_as_have_blocks() -> None:
    assert kv_capacity(100, 16, 16) == 100
    assert kv_capacity(100, 16, 17) == 50
    assert kv_capacity(100, 16, 5000) == kv_capacity(100, 16, 0) == 0


def test_a_runner_is_kept_where_it_serves_the_next_config(demo: Engine) -> None:
    config = EngineConfig(max_running=4, kv_memory=1 << 22)
    demo.begin(config)
    runner = demo.runner
    expected = demo.submit([5, 6, 7], GREEDY).result(timeout=20).token_ids
    for other in (config, replace(config, mode="chunked", depth=1, prefix_caching=True, seed=3, join_every=2)):
        demo.submit([9, 10, 11], GREEDY).result(timeout=20)
        trace = demo.begin(other)
        assert demo.runner is runner
        assert demo.scheduler.ledger.pool.free == demo.scheduler.ledger.pool.total == trace.header.blocks
        assert trace.header.bill is not None
        assert demo.submit([5, 6, 7], GREEDY).result(timeout=20).token_ids == expected
    prepared = demo.prepared
    assert prepared is not None
    for changed in ({"block_size": 8}, {"kv_memory": 1 << 21}, {"max_running": 5}, {"mode": "static"}):
        assert not prepared.serves(replace(config, **changed))  # type: ignore[arg-type]
    assert not prepared.serves(replace(config, cuda_graphs=False))
    assert not prepared.serves(replace(config, mixed_graphs=False))


@pytest.mark.parametrize("display", [False, True])
def test_a_pool_beside_a_desktop_leaves_it_more(display: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model = replace(load(ModelSpec("demo-draft")), device=torch.device("cuda", 0))
    monkeypatch.setattr(kv_budget, "free_memory", lambda device: 4 * GB)
    monkeypatch.setattr(kv_budget, "card_of", lambda device: SimpleNamespace(drives_display=lambda: display))
    config = EngineConfig(kv_memory=7 * GB // 2)
    if display:
        with pytest.raises(InvalidInput, match="of the GPU's memory are free"):
            kv_budget.pool_blocks(model, config)
    else:
        assert kv_budget.pool_blocks(model, config) > 0
