"""The GPU's path over codes says what the CPU's does: `test_triton_path.py` runs it with TRITON_INTERPRET=1."""

from pathlib import Path

import pytest
import torch

from tests.engine.gpu_path import DEVICE, RUNS, loaded, the_cpus_own

if not RUNS:
    pytest.skip("run by test_triton_path.py", allow_module_level=True)

from engine import Engine, EngineConfig, SamplingParams, Submission
from tests.engine.core import test_shared_kv as sharing
from tests.engine.tiny_models import TINY_MODELS, VOCABULARY, TinyModel, save_tiny_model

GREEDY = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)


def said(folder: Path, config: EngineConfig, device: str = DEVICE) -> list[tuple[int, ...]]:
    random = torch.Generator().manual_seed(3)
    prompts = [torch.randint(3, VOCABULARY, (n,), generator=random).tolist() for n in (5, 1, 19)]
    prompts.append(prompts[2][:16] + prompts[0])
    with Engine(loaded(folder, device), config, threads=1) as engine:
        streams = engine.submit_many([Submission(prompt, GREEDY) for prompt in prompts])
        return [tuple(stream.result(100).token_ids) for stream in streams]


@pytest.mark.parametrize(
    ("name", "kv_dtype", "mode", "depth"),
    [("llama", "int8", "continuous", 1), ("gemma3", "fp8", "chunked", 0), ("gpt-oss", "int8", "chunked", 1)],
)
def test_tokens_are_those_of_the_cpu(name: str, kv_dtype: str, mode: str, depth: int, tmp_path: Path) -> None:
    save_tiny_model(TINY_MODELS[name], tmp_path)
    config = EngineConfig(
        mode, 4, 16, block_size=16, depth=depth, prefix_caching=True, kv_dtype=kv_dtype, kv_memory=1 << 16
    )
    with the_cpus_own() as device:
        expected = said(tmp_path, config, device)
    found = said(tmp_path, config)
    assert found == expected
    assert len({token for tokens in found for token in tokens}) > 10


def test_layers_that_share_keys_and_values_say_what_they_say_on_the_cpu(tmp_path: Path) -> None:
    """Gemma 3n, whose config tells a width of the MLP for each layer."""
    save_tiny_model(TinyModel(sharing.config, std=0.15), tmp_path)
    config = EngineConfig("chunked", 4, 16, block_size=16, depth=1, kv_memory=1 << 18)
    with the_cpus_own() as device:
        expected = said(tmp_path, config, device)
    assert said(tmp_path, config) == expected
