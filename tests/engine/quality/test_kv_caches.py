"""What it costs to keep K and V in another way, measured as the engine keeps them."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine import InvalidInput, ModelSpec, measure_quality
from engine.models.loading import load
from engine.quality import QualityReport, read_text
from engine.quality.reading import ForgetfulKv, RoundedKv
from engine.scheduler.kv_window import KvWindow
from tests.engine.forgetful_reference import BLOCK, SINKS, WINDOW, reference
from tests.engine.rounded_reference import rounded_attention
from tests.engine.tiny_models import TINY_MODELS, save_tiny_model


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt-oss"])
def test_its_logits_are_those_of_transformers_with_rounded_keys_and_values(name: str, tmp_path: Path) -> None:
    save_tiny_model(TINY_MODELS[name], tmp_path)
    model = load(ModelSpec(str(tmp_path), dtype="float32", device="cpu"))
    ids = torch.randint(3, 3000, (1, 40), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        found = model.module(input_ids=ids, use_cache=False, batch=RoundedKv("int8")).logits
        with rounded_attention(model.module, "int8"):
            expected = model.module(input_ids=ids, position_ids=torch.arange(40)[None], use_cache=False).logits
    assert (found - expected).abs().max() < 0.02 * expected.abs().max()


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt-oss"])
def test_its_logits_are_those_of_transformers_that_sees_as_much(name: str, tmp_path: Path) -> None:
    save_tiny_model(TINY_MODELS[name], tmp_path)
    model = load(ModelSpec(str(tmp_path), dtype="float32", device="cpu"))
    module = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager").eval()
    ids = torch.randint(3, 3000, (1, 43), generator=torch.Generator().manual_seed(1))
    kept = KvWindow(-(-SINKS // BLOCK), WINDOW // BLOCK, BLOCK)
    with torch.inference_mode():
        found = model.module(input_ids=ids, use_cache=False, batch=ForgetfulKv(kept)).logits
    expected = reference(module, ids[0].tolist(), 1).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_the_original_over_a_quantized_cache_is_a_row_beside_it(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(read_text("stories")[:2000])
    demo = ModelSpec("demo", device="cpu")
    report = measure_quality([], demo, caches=("int8", "fp8", "window-32", "window-32-0"), text=str(text), tokens=200)
    int8, fp8, window, alone = report.rows
    assert [row.cache for row in (report.original, *report.rows)] == ["", "int8", "fp8", "window-32", "window-32-0"]
    assert not any(row.error for row in report.rows)
    assert int8.spec == fp8.spec == demo
    assert 0 < int8.divergence < fp8.divergence < 0.05
    assert int8.agreement > 0.97
    assert int8.batch_rate > 0
    assert fp8.divergence < window.divergence < 0.7 * alone.divergence, "sinks are worth a block"
    assert window.perplexity < alone.perplexity
    assert QualityReport.from_json(report.to_json()) == report


def test_a_dtype_that_there_is_not_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(InvalidInput, match="cache='int3': must be int8, fp8 or window-TOKENS"):
        measure_quality([], ModelSpec("demo"), caches=("int3",))
