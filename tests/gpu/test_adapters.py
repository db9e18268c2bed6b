"""Adapters on the GPU that is here: the kernels against the definition, and engines against merged weights."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from engine import Engine, EngineConfig, ModelSpec, SamplingParams
from engine.kernels.products.adapters import PART, adapt, lay_out
from tests.engine.adapters_case import ALL, check_kernels, linear_paths, merge, save_adapter
from tests.engine.tiny_models import TINY_MODELS, random_prompts, save_tiny_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    "size",
    [
        (72, [40], 3),
        (PART + 200, [64, 24, 24], 8),
        (4096, [4096, 1024, 1024], 16),
        (48, [130, 70], 20),
        (40, [64], 150),
    ],
    ids=str,
)
def test_the_kernels_equal_the_definition(dtype: torch.dtype, size: tuple[int, list[int], int]) -> None:
    check_kernels(adapt, lay_out, dtype, "cuda", size)


@pytest.mark.parametrize("graphs", [True, False])
def test_each_request_says_what_the_model_says_with_its_adapter_merged(graphs: bool, tmp_path: Path) -> None:
    save_tiny_model(TINY_MODELS["qwen3"], tmp_path / "model")
    sizes = linear_paths(tmp_path / "model", ALL)
    adapters = [save_adapter(tmp_path / f"r{rank}", sizes, rank, rank, spread=0.1) for rank in (3, 8)]
    merged = [merge(tmp_path / "model", one, tmp_path / f"merged-{one.name}") for one in adapters]
    prompts, greedy = random_prompts((3, 19, 41, 8)), SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)

    def said(folder: Path, given: tuple[str, ...], names: tuple[str, ...]) -> list[tuple[int, ...]]:
        spec = ModelSpec(str(folder), dtype="float32", device="cuda", adapters=given)
        with Engine(spec, EngineConfig("chunked", 4, 32, kv_memory=1 << 22, cuda_graphs=graphs)) as engine:
            asked = zip(prompts, names, strict=True)
            streams = [engine.submit(prompt, greedy.with_(adapter=name)) for prompt, name in asked]
            return [tuple(stream.result(100).token_ids) for stream in streams]

    mixed = ("r3", "", "r8", "r3")
    found = said(tmp_path / "model", tuple(map(str, adapters)), mixed)
    plain = said(tmp_path / "model", (), ("",) * 4)
    each = {"": plain} | {one.name: said(at, (), ("",) * 4) for one, at in zip(adapters, merged, strict=True)}
    assert found == [each[name][i] for i, name in enumerate(mixed)]
    assert len({each[name][0] for name in each}) == 3
