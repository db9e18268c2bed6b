"""What the precision of K and V costs, measured as the engine keeps them."""

from pathlib import Path

import pytest
import torch

from engine import InvalidInput, ModelSpec, measure_quality
from engine.models.loading import load
from engine.quality import QualityReport, read_text
from engine.quality.rounded_kv import RoundedKv
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


def test_the_original_over_a_quantized_cache_is_a_row_beside_it(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(read_text("stories")[:2000])
    demo = ModelSpec("demo", device="cpu")
    report = measure_quality([], demo, kv_dtypes=("int8", "fp8"), text=str(text), tokens=200)
    int8, fp8 = report.rows
    assert [row.kv_dtype for row in (report.original, int8, fp8)] == ["auto", "int8", "fp8"]
    assert [row.error for row in report.rows] == ["", ""]
    assert int8.spec == fp8.spec == demo
    assert 0 < int8.divergence < fp8.divergence < 0.05
    assert int8.agreement > 0.97
    assert int8.batch_rate > 0
    assert QualityReport.from_json(report.to_json()) == report


def test_a_dtype_that_there_is_not_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(InvalidInput, match="kv_dtype='int3'"):
        measure_quality([], ModelSpec("demo"), kv_dtypes=("int3",))
