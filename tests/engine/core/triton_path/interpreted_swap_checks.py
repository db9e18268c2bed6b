"""Checks of preemption by swap on the GPU's path, which `test_triton_path.py` runs with TRITON_INTERPRET=1."""

from pathlib import Path

import pytest
import torch

from tests.engine.gpu_path import DEVICE, RUNS

if not RUNS:
    pytest.skip("run by test_triton_path.py", allow_module_level=True)

from engine import Engine, EngineConfig, ModelSpec, SamplingParams
from engine.runner.host_blocks import PinnedBlocks
from engine.runner.paged_gpu import GpuRunner
from engine.trace import SwapEvent
from tests.engine.tiny_models import TINY_MODELS, VOCABULARY, save_tiny_model

WAYS = (SamplingParams(temperature=0), SamplingParams(temperature=0.9, seed=3, repetition_penalty=1.2))


def test_what_comes_back_is_what_went_out(tmp_path: Path) -> None:
    """A step behind, in steps that are replayed and not."""
    save_tiny_model(TINY_MODELS["llama"], tmp_path)
    random = torch.Generator().manual_seed(3)
    prompts = [torch.randint(3, VOCABULARY, (n,), generator=random).tolist() for n in (9, 5, 7)]
    with Engine(ModelSpec(str(tmp_path), dtype="float32", device=DEVICE), threads=1) as engine:
        said = []
        for blocks, preemption in ((40, "recompute"), (8, "swap")):
            swaps, memory = preemption == "swap", blocks * 4 * engine.card.kv_token_bytes
            switches = {"depth": int(swaps), "preemption": preemption, "cuda_graphs": swaps, "mixed_graphs": False}
            engine.begin(EngineConfig("chunked", 3, 16, 4, memory, **switches))  # type: ignore[arg-type]
            assert isinstance(engine.runner, GpuRunner)
            assert isinstance(engine.runner.host_blocks, PinnedBlocks) is swaps
            params = [WAYS[n % 2].with_(max_tokens=8, ignore_eos=True) for n in range(len(prompts))]
            streams = [engine.submit(prompt, way) for prompt, way in zip(prompts, params, strict=True)]
            said.append([stream.result(timeout=300).token_ids for stream in streams])
            events = [event for step in engine.trace.steps for event in step.swap_event.tolist()]
            assert (min(events.count(SwapEvent.OUT), events.count(SwapEvent.IN)) > 0) is swaps
            assert any(step.graph for step in engine.trace.steps) is swaps
    assert said[0] == said[1]
