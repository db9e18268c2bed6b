"""Checks of penalties, bias, banned words and grammars on the GPU's path, which `test_triton_path.py` runs with
TRITON_INTERPRET=1."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.gpu_path import RUNS, loaded, the_cpus_own

if not RUNS:
    pytest.skip("run by test_triton_path.py", allow_module_level=True)

from engine import Engine, EngineConfig, SamplingParams, Submission
from engine.models.loading import LoadedModel
from engine.trace import Step
from tests.engine.tiny_models import TINY_MODELS, VOCABULARY, save_tiny_model

WAYS: list[dict[str, Any]] = [
    {"regex": "([a-z]{2,8} ?){3,}", "repetition_penalty": 1.2},
    {"frequency_penalty": 1.5, "presence_penalty": 2.0, "repetition_penalty": 1.3, "top_k": 40},
    {"min_tokens": 3, "logit_bias": {2: 100.0}},
    {"bad_words": ["a", "e", "the", "tree", "house", "old bridge"], "logit_bias": {300: 2.5}, "min_p": 0.02},
    {"choices": ["a tree", "another tree", "a house"], "n": 2},
    {"repetition_penalty": 1.3, "logprobs": 2},
]
CONFIGS = {
    "graphs, one step behind": EngineConfig("continuous", 8, 512, block_size=4, depth=1),
    "no graphs, preempted": EngineConfig("continuous", 5, 512, block_size=4, cuda_graphs=False, kv_memory=24 << 10),
    "padded": EngineConfig("continuous-padded", 6, 512, depth=1),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("tiny") / "llama"
    save_tiny_model(TINY_MODELS["llama"], path)
    return path


def submissions(paged: bool) -> list[Submission]:
    random = torch.Generator().manual_seed(3)
    prompts = [torch.randint(3, VOCABULARY, (n,), generator=random).tolist() for n in (5, 1, 9, 14, 3, 7)]
    found = []
    for i, (prompt, way) in enumerate(zip(prompts, WAYS)):
        params = SamplingParams(max_tokens=7, temperature=0.8 * (i % 2), seed=i, **(way if paged else {**way, "n": 1}))
        found.append(Submission(prompt, params))
    return found


def said(model: LoadedModel, config: EngineConfig) -> tuple[dict[tuple[int, int], list[Any]], list[Step]]:
    """By request and sample, its tokens, each with how many were allowed and what would rather have been said."""
    with Engine(model, config, threads=1) as engine:
        streams = engine.submit_many(submissions(config.paged))
        assert [stream.result(100).error for stream in streams] == [""] * len(streams)
        steps = list(engine.trace.steps)
    found: dict[tuple[int, int], list[Any]] = {}
    for step in steps:
        allowed = dict(zip(step.allowed_token_index.tolist(), step.allowed.tolist()))
        rather = dict(zip(step.rather_token_index.tolist(), step.rather_token.tolist()))
        for place, (row, token) in enumerate(zip(step.token_row.tolist(), step.token.tolist())):
            told = found.setdefault((int(step.request[row]), int(step.branch[row])), [])
            told.append((token, allowed.get(place), rather.get(place)))
    return found, steps


@pytest.mark.parametrize("name", CONFIGS)
def test_rules_give_the_tokens_of_the_cpu(name: str, folder: Path) -> None:
    pytest.importorskip("llguidance")
    config = CONFIGS[name]
    with the_cpus_own() as device:
        expected, _ = said(loaded(folder, device), config)
    found, steps = said(loaded(folder), config)
    assert found == expected
    assert any(step.graph for step in steps) == (name == "graphs, one step behind")
    assert any(len(step.preempted) for step in steps) == ("preempted" in name)
    told = [each for tokens in found.values() for each in tokens]
    assert any(rather is not None for _, _, rather in told)
    assert any(allowed is not None for _, allowed, _ in told)
    assert [token for token, _, _ in found[2, 0]][3] == 2
