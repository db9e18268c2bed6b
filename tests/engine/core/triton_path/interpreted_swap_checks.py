"""Checks of preemption by swap on the GPU's path, which `test_triton_path.py` runs with TRITON_INTERPRET=1."""

from pathlib import Path

import pytest
import torch

from tests.engine.gpu_path import DEVICE, RUNS

if not RUNS:
    pytest.skip("run by test_triton_path.py", allow_module_level=True)

from transformers import AutoModelForCausalLM

from engine import Engine, EngineConfig, ModelSpec, SamplingParams
from engine.runner.host_blocks import PinnedBlocks
from engine.runner.paged_gpu import GpuRunner
from engine.trace import SwapEvent
from tests.engine.forgetful_reference import assert_said
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


def test_what_was_forgotten_comes_back_as_it_was(tmp_path: Path) -> None:
    """Prefixes that are offloaded, a step behind, replayed; K and V of codes too."""
    save_tiny_model(TINY_MODELS["llama"], tmp_path)
    with Engine(ModelSpec(str(tmp_path), dtype="float32", device=DEVICE), threads=1) as engine:
        for kv_dtype, size in (("auto", 1.0), ("int8", 36 / 128)):
            said = []
            for offload in (False, True):
                memory = int(8 * 4 * engine.card.kv_token_bytes * size)
                switches = {"depth": 1, "prefix_caching": True, "offload_prefixes": offload, "kv_dtype": kv_dtype}
                engine.begin(EngineConfig("chunked", 2, 16, 4, memory, mixed_graphs=False, **switches))  # type: ignore[arg-type]
                streams = []
                for opening in (11, 22, 33, 11):
                    streams.append(engine.submit([opening] * 12 + [5], WAYS[0].with_(max_tokens=4, ignore_eos=True)))
                    streams[-1].result(timeout=300)
                said.append([stream.result().token_ids for stream in streams])
                events = [event for step in engine.trace.steps for event in step.swap_event.tolist()]
                assert (events.count(SwapEvent.FOUND) > 1) is offload
            assert said[0] == said[1]


def test_what_a_cache_forgets_is_seen_no_more(tmp_path: Path) -> None:
    """A step behind; who makes way computes again what it had said, after what was forgotten by then."""
    save_tiny_model(TINY_MODELS["llama"], tmp_path)
    module = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager").eval()
    random = torch.Generator().manual_seed(3)
    prompts = [torch.randint(3, VOCABULARY, (n,), generator=random).tolist() for n in (2, 10)]
    with Engine(ModelSpec(str(tmp_path), dtype="float32", device=DEVICE), threads=1) as engine:
        memory = 5 * 4 * engine.card.kv_token_bytes
        engine.begin(EngineConfig("chunked", 3, 16, 4, memory, depth=1, mixed_graphs=False, kv_window=4, kv_sinks=2))
        streams = [engine.submit(prompt, WAYS[0].with_(max_tokens=12, ignore_eos=True)) for prompt in prompts]
        for prompt, stream in zip(prompts, streams):
            assert_said(module, prompt, stream.result(timeout=300).token_ids, sinks=2, window=4)
        steps = engine.trace.steps
        assert any(len(step.preempted) for step in steps)
        assert any(len(step.forgotten) and step.graph for step in steps)
        assert any(len(step.forgotten) and (step.count[step.forgotten > 0] > 1).any() for step in steps)
