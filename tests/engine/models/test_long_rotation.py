"""Rotations that follow the longest row of a step: no request turns the tokens of another."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, Submission
from engine.checkpoints.inspect import inspect_model
from engine.models.card import hold_rotation
from tests.engine.tiny_models import _llama_like, make_tiny_model, save_tiny_model

SHORT, NEW = 24, 12
LENGTHS = (23, 3, 14, 1, 9)
LONG = {"rope_type": "longrope", "short_factor": [1.0 + i / 8 for i in range(8)], "rope_theta": 10000.0}
LONG |= {"long_factor": [4.0 + i for i in range(8)], "original_max_position_embeddings": SHORT}
DYNAMIC = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
KINDS: dict[str, tuple[str, dict[str, Any], int]] = {
    "longrope": ("Phi3", {"rope_parameters": LONG, "original_max_position_embeddings": SHORT}, 4 * SHORT),
    "dynamic": ("Llama", {"rope_parameters": DYNAMIC}, SHORT),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_row_leaves_its_mates_as_transformers_has_them_alone(kind: str, tmp_path: Path) -> None:
    name, changes, longest = KINDS[kind]
    save_tiny_model(_llama_like(name, max_position_embeddings=longest, **changes), tmp_path)
    module = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    prompts = [torch.randint(3, 3000, (n,), generator=torch.Generator().manual_seed(n)).tolist() for n in LENGTHS]
    expected = []
    for prompt in prompts:
        new = min(NEW, SHORT - len(prompt))
        told = {"max_new_tokens": new, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        expected.append(module.generate(torch.tensor([prompt]), **told)[0, len(prompt) :].tolist())
    spec = ModelSpec(str(tmp_path), dtype="float32", device="cpu")
    assert inspect_model(spec).context == SHORT
    params = SamplingParams(max_tokens=NEW, temperature=0, ignore_eos=True)
    with Engine(spec, EngineConfig(max_running=5, token_budget=16), threads=1) as engine:
        assert engine.card.context == SHORT
        for mode in ("chunked", "static", "recompute"):
            engine.begin(EngineConfig(mode=mode, max_running=5, token_budget=16))
            streams = engine.submit_many([Submission(prompt, params) for prompt in prompts])
            assert [list(stream.result(timeout=60).token_ids) for stream in streams] == expected, mode
        why = rf"context of {SHORT}" + (f" here: up to {longest}, LongRoPE" if kind == "longrope" else "; shorten")
        with pytest.raises(InvalidInput, match=why):
            engine.submit([5] * (SHORT + 1))
        rotary, x = engine.model.module.model.rotary_emb, torch.zeros(1)
        alone, mates = (rotary(x, torch.tensor([[1, 2, 3, *longer]]))[0][:, :3] for longer in ([], [4 * longest]))
        assert torch.equal(alone, mates)


@torch.inference_mode()
def test_rotations_that_differ_by_the_kind_of_layer_are_held_too() -> None:
    of_each = {"full_attention": DYNAMIC, "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}
    changes: dict[str, Any] = {"rope_parameters": of_each, "sliding_window": 8, "head_dim": 32}
    changes |= {"sliding_window_pattern": 2}
    module = make_tiny_model(_llama_like("Gemma3Text", max_position_embeddings=SHORT, **changes))
    hold_rotation(module)
    rotary, x = module.model.rotary_emb, torch.zeros(1)
    for kind in of_each:
        alone, mates = (rotary(x, torch.tensor([[1, 2, 3, *longer]]), kind)[0][:, :3] for longer in ([], [8 * SHORT]))
        assert torch.equal(alone, mates), kind
