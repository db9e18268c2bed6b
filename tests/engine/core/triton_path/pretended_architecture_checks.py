"""Checks of architectures on a pretend GPU, run by `test_pretend_gpu.py`: their steps are captured, and say what the
CPU's path says, with their small operations fused and without. Of a few; on a card, or with PRETEND_ALL=1, of all that
there are.
"""

import os
from dataclasses import replace

import pytest
import torch
from transformers import AutoTokenizer

import resources
from engine import EngineConfig, SamplingParams
from engine.models.loading import LoadedModel, wrap
from engine.runner import make_runner
from engine.scheduler.block_pool import BlockPool
from engine.scheduler.request import Emission
from engine.scheduler.scheduler import Scheduler
from tests.engine.fusing_case import JOINED, all_kernels
from tests.engine.hybrids import hybrid
from tests.engine.requests import make_request
from tests.engine.tiny_models import TINY_MODELS, make_tiny_model

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="run by test_pretend_gpu.py")
CONFIG = EngineConfig("chunked", 2, 16, block_size=4)
EAGER = replace(CONFIG, cuda_graphs=False)
FEW = ("gemma3", "gpt2", "gpt-oss")  # norms of heads and windows; no rotation; experts and sinks
NAMES = FEW if os.environ.get("TRITON_INTERPRET") == "1" and not os.environ.get("PRETEND_ALL") else TINY_MODELS
EXPERTS = {"mixtral", "qwen3 moe", "gpt-oss"}  # whose tokens are sorted by expert, which torch counts on the host
GREEDY = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True)
BLOCKS = 16


def model_on(device: str, name: str) -> LoadedModel:
    tokenizer = AutoTokenizer.from_pretrained(resources.path("models/stories-5m"))
    tiny = TINY_MODELS[name] if name in TINY_MODELS else hybrid(name)
    return wrap(make_tiny_model(tiny).to(device), tokenizer, name)


def played(model: LoadedModel, config: EngineConfig) -> tuple[list[tuple[int, int]], list[int], str]:
    """Each token with its request, the graphs that steps replayed, and why there are none: a prompt, one beside a row
    that decodes, and rows that decode."""
    runner = make_runner(model, config, BLOCKS, captured=(16,))
    runner.capture(lambda done, total: None)
    scheduler = Scheduler(config, BlockPool(BLOCKS, config.block_size))
    scheduler.add(make_request(model, 0, 3, GREEDY))
    said, graphs = [], []
    while (plan := scheduler.plan()) is not None:
        launched = runner.launch(plan)
        tokens = [int(token) for token in launched.read().tokens]
        said += [(row.branch.request.id, token) for row, token in zip((r for r in plan.rows if r.samples), tokens)]
        graphs.append(launched.graph)
        scheduler.commit(plan, [Emission(token) for token in tokens])
        if len(graphs) == 1:
            scheduler.add(make_request(model, 1, 11, GREEDY))
    return said, graphs, runner.graphs_off


@pytest.mark.parametrize("name", NAMES)
def test_steps_are_captured_and_say_what_the_cpu_says_fused_and_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "0")
        expected, _, _ = played(model_on("cpu", name), EAGER)
    assert len({token for _, token in expected}) > 3
    model = model_on("cuda", name)
    assert model.fusion is not None
    assert not model.fusion.undone
    assert all_kernels(model.fusion)["product"] == JOINED.get(name, 0)
    said, graphs, off = played(model, CONFIG)
    assert said == expected, model.fusion.text
    assert ("waits for the GPU" in off) == (name in EXPERTS), off
    assert graphs[:2] == ([0, 0] if off else [16, 16])
    assert all(graphs) == (not off), "every step was replayed"
    model.fusion.undo()
    assert played(model, EAGER)[0] == expected, "not fused"


@pytest.mark.parametrize("kind", ["Qwen3_5Text", "GraniteMoeHybrid"])
def test_states_are_changed_by_replayed_steps(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By our kernels, or by transformers' own operations; prompts go through them by their lengths, which are not
    captured."""
    with monkeypatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "0")
        expected, _, _ = played(model_on("cpu", kind), EAGER)
    assert len({token for _, token in expected}) > 3
    said, graphs, off = played(model_on("cuda", kind), CONFIG)
    assert said == expected
    assert [size > 0 for size in graphs] == ([False] * 2 + [not off] * 2), off
