"""The GPU's path answers requests of several adapters as the CPU's does: `test_triton_path.py` runs it with
TRITON_INTERPRET=1."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.gpu_path import DEVICE, RUNS, the_cpus_own

if not RUNS:
    pytest.skip("run by test_triton_path.py", allow_module_level=True)

from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Submission
from tests.engine.adapters_case import ALL, linear_paths, save_adapter
from tests.engine.tiny_models import TINY_MODELS, random_prompts, save_tiny_model

GREEDY = SamplingParams(max_tokens=4, temperature=0, ignore_eos=True)


def said(spec: ModelSpec, config: EngineConfig, mixed: tuple[str, ...]) -> list[tuple[int, ...]]:
    prompts = random_prompts((5, 1, 19, 7))
    with Engine(spec, config, threads=1) as engine:
        asked = [Submission(prompt, GREEDY.with_(adapter=name)) for prompt, name in zip(prompts, mixed, strict=True)]
        return [tuple(stream.result(100).token_ids) for stream in engine.submit_many(asked)]


@pytest.mark.parametrize(
    ("name", "mode", "depth", "graphs"), [("qwen3", "continuous", 1, True), ("gemma3", "chunked", 0, False)]
)
def test_tokens_are_those_of_the_cpu(name: str, mode: str, depth: int, graphs: bool, tmp_path: Path) -> None:
    """Among them those of rows that take a slot from a request of another adapter."""
    save_tiny_model(TINY_MODELS[name], tmp_path / "model")
    sizes = linear_paths(tmp_path / "model", ALL)
    adapters = tuple(str(save_adapter(tmp_path / f"r{rank}", sizes, rank, rank, spread=0.1)) for rank in (3, 8))
    spec = ModelSpec(str(tmp_path / "model"), dtype="float32", device=DEVICE, adapters=adapters)
    config = EngineConfig(mode, 2, 16, block_size=16, depth=depth, kv_memory=1 << 16, cuda_graphs=graphs)
    mixed = ("r3", "", "r8", "r3")
    with the_cpus_own() as device:
        own = replace(spec, device=device)
        expected, plain = (said(own, config, names) for names in (mixed, ("",) * 4))
    found = said(spec, config, mixed)
    assert found == expected
    assert found != plain
