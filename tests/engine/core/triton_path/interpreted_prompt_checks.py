"""Checks of prompts' log-probabilities, and of what tokens attend to, on the GPU's path: `test_triton_path.py`
runs them with TRITON_INTERPRET=1."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.engine.gpu_path import RUNS, loaded

if not RUNS:
    pytest.skip("run by test_triton_path.py", allow_module_level=True)

from engine import Engine, EngineConfig, SamplingParams, Submission
from engine.trace import attended
from tests.engine.tiny_models import TINY_MODELS, VOCABULARY, make_tiny_model, random_prompts, save_tiny_model


def test_a_prompt_is_as_likely_as_the_model_says(tmp_path: Path) -> None:
    """In parts, beside a request that asks for nothing, one step ahead."""
    tiny = TINY_MODELS["llama"]
    save_tiny_model(tiny, tmp_path)
    random = torch.Generator().manual_seed(5)
    plain, prompt = (torch.randint(3, VOCABULARY, (n,), generator=random).tolist() for n in (3, 11))
    with torch.inference_mode():
        expected = make_tiny_model(tiny)(torch.tensor([prompt])).logits[0].log_softmax(-1)
    config = EngineConfig("chunked", max_running=2, token_budget=6, block_size=4, depth=1, cuda_graphs=False)
    params = SamplingParams(max_tokens=2, temperature=0, ignore_eos=True)
    with Engine(loaded(tmp_path), config, threads=1) as engine:
        others, asked = engine.submit_many(
            [Submission(plain, params), Submission(prompt, params.with_(prompt_logprobs=2))]
        )
        told = asked.result(100).prompt_logprobs
        assert others.result(100).prompt_logprobs is None
    assert told is not None
    for at, place in enumerate(told[1:]):
        assert place is not None
        assert place.logprob == pytest.approx(float(expected[at, prompt[at + 1]]), abs=1e-4)
        best = expected[at].topk(2)
        assert [token for token, _ in place.alternatives] == best.indices.tolist()
        assert [p for _, p in place.alternatives] == pytest.approx(best.values.tolist(), abs=1e-4)


@pytest.mark.parametrize(("name", "kv_dtype", "off"), [("qwen3", "auto", 1e-3), ("mistral", "int8", 0.05)])
def test_what_tokens_attend_to_is_told(name: str, kv_dtype: str, off: float, tmp_path: Path) -> None:
    """As transformers has it, beside a request that asks for nothing, one step ahead: queries whose norms and rotation
    would be put off, a sliding window, keys that are codes."""
    save_tiny_model(TINY_MODELS[name], tmp_path)
    plain, prompt = random_prompts((3, 11), seed=5)
    config = EngineConfig(
        "chunked", max_running=2, token_budget=6, block_size=4, depth=1, cuda_graphs=False, kv_dtype=kv_dtype
    )
    params = SamplingParams(max_tokens=3, temperature=0, ignore_eos=True)
    with Engine(loaded(tmp_path), config, threads=1) as engine:
        asked = [Submission(plain, params), Submission(prompt, params.with_(attention=True))]
        answers = [list(stream.result(100).token_ids) for stream in engine.submit_many(asked)]
        told = [each for step in engine.trace.steps for each in attended(step, engine.trace.header)]
    module = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.inference_mode():
        layers = torch.cat(module(torch.tensor([prompt + answers[1]]), output_attentions=True).attentions)
    assert [each.request for each in told] == [1, 1, 1]
    for context, each in enumerate(told, len(prompt)):
        expected = layers[:, :, context - 1, :context].sqrt().numpy()
        assert np.sqrt(each.weights) == pytest.approx(expected, abs=off + 0.6 / 255)
