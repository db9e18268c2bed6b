"""The GPU bench where there is no GPU."""

import json

import pytest
import torch

from engine.bench import gpu, gpu_quantized
from engine.bench.subject import Shape, plain_tokenizer, random_llama
from engine.config import EngineConfig
from engine.engine import Engine
from engine.models.loading import wrap


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_without_a_gpu_it_says_so_in_one_line_and_exits_with_2(capsys):
    assert gpu.main() == 2
    assert capsys.readouterr().out.count("\n") == 1


def test_a_decode_is_measured_against_the_bytes_it_reads(monkeypatch):
    monkeypatch.setattr(gpu, "PROMPT", 8)
    monkeypatch.setattr(gpu, "NEW", 6)
    model = wrap(random_llama(Shape(64, 2, 4, 2, 128, 256, 256)), plain_tokenizer(256), "tiny")
    with Engine(model, EngineConfig(max_running=4), threads=1) as engine:
        found = gpu.measure(engine, 3, bandwidth=1e9)
    assert found.seconds > 0
    assert found.steps > 0
    assert found.bound == (model.card.weight_bytes + 3 * 11 * model.card.kv_token_bytes) / 1e9
    assert json.dumps(found.text)


def test_the_large_model_is_measured_dense_and_quantized_and_what_is_absent_says_why(monkeypatch, capsys):
    def tiny():
        return random_llama(Shape(128, 2, 4, 2, 256, 256, 256)).to(torch.bfloat16)

    def models():
        yield "none", tiny()
        yield "awq", gpu_quantized.as_awq(tiny())
        yield "nf4", gpu_quantized.as_nf4(tiny())
        yield "other", "nothing of the kind is installed"

    monkeypatch.setattr(gpu, "PROMPT", 8)
    monkeypatch.setattr(gpu, "NEW", 6)
    monkeypatch.setattr(gpu, "large_models", models)
    found = gpu.decode_large(bandwidth=1e9)
    assert list(found) == ["none", "awq", "nf4", "other"]
    assert [d["times_dense"] for d in found["none"]["decode"]] == [1, 1]
    assert found["awq"]["weight_bytes"] < found["none"]["weight_bytes"]
    assert found["nf4"]["weight_bytes"] < found["none"]["weight_bytes"]
    assert json.dumps(found)
    said = capsys.readouterr().out
    assert "other not measured: nothing of the kind is installed" in said
    assert said.count("\n") == 3 + 3 * len(gpu.LARGE_BATCHES) + 1
