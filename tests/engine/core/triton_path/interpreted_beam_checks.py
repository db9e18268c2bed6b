"""Checks of beam search on the GPU's path, which `test_triton_path.py` runs with TRITON_INTERPRET=1."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.engine.gpu_path import RUNS, loaded, the_cpus_own

if not RUNS:
    pytest.skip("run by test_triton_path.py", allow_module_level=True)

from engine import Engine, EngineConfig, SamplingParams, Submission
from engine.models.loading import LoadedModel
from tests.engine.tiny_models import TINY_MODELS, VOCABULARY, save_tiny_model

Said = list[tuple[list[int], float | None]]
SEARCH = SamplingParams(max_tokens=6, beam_width=3, ignore_eos=True)
BESIDE = SamplingParams(max_tokens=7, temperature=0.9, top_p=0.9, seed=4, ignore_eos=True)
SIZES = {"max_running": 8, "token_budget": 16, "block_size": 4}


def asked() -> list[Submission]:
    random = torch.Generator().manual_seed(5)
    prompts = [torch.randint(3, VOCABULARY, (n,), generator=random).tolist() for n in (7, 13, 10)]
    return [Submission(p, params) for p, params in zip(prompts, (SEARCH, BESIDE, SEARCH))]


def said(model: LoadedModel, config: EngineConfig) -> tuple[Said, bool]:
    with Engine(model, config, threads=1) as engine:
        streams = engine.submit_many(asked())
        found = [(list(c.token_ids), c.score) for stream in streams for c in stream.results(100)]
        return found, any(0 in step.preempted or 2 in step.preempted for step in engine.trace.steps)


@pytest.mark.parametrize(
    ("name", "config", "blocks"),
    [
        ("llama", EngineConfig(**SIZES, depth=1), 0),
        ("gemma3", EngineConfig("chunked", **SIZES, depth=1, prefix_caching=True, cuda_graphs=False), 16),
    ],
)
def test_beams_are_those_of_the_cpu(name: str, config: EngineConfig, blocks: int, tmp_path: Path) -> None:
    """One step ahead of others; replayed, or with too few blocks for all."""
    save_tiny_model(TINY_MODELS[name], tmp_path)
    with the_cpus_own() as device:
        expected, _ = said(loaded(tmp_path, device), EngineConfig(**SIZES, depth=0))
    model = loaded(tmp_path)
    memory = blocks * config.block_size * model.card.kv_token_bytes
    found, preempted = said(model, replace(config, kv_memory=memory or None))
    assert [tokens for tokens, _ in found] == [tokens for tokens, _ in expected]
    scores = [score or 0.0 for _, score in found]
    assert scores == pytest.approx([score or 0.0 for _, score in expected], abs=1e-4)
    assert preempted == bool(blocks)
