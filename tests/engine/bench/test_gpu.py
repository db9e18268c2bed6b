"""The GPU bench where there is no GPU."""

import json

import pytest
import torch

from engine.bench import gpu
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
