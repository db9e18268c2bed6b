"""The attention that transformers' `generate_batch` is given for the bench, on the GPU that is here."""

import pytest
import torch
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM, modeling_flash_attention_utils

from engine.bench import flash_attention
from engine.bench.flash_attention import attend_prompts
from engine.bench.generate_batch import seconds_of
from engine.bench.subject import Case

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def test_prompts_see_what_is_before_them_and_nothing_else() -> None:
    torch.manual_seed(0)
    queries, contexts = [5, 0, 300, 1, 64], [5, 0, 1000, 700, 65]
    starts, ends = (torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (queries, contexts))
    q = torch.randn(sum(queries), 16, 128, dtype=torch.bfloat16)
    k, v = torch.randn(2, sum(contexts), 8, 128, dtype=torch.bfloat16)
    right = attend_prompts(q.float(), k.float(), v.float(), starts, ends, 300, 1000, 0.1, True)
    found = attend_prompts(q.cuda(), k.cuda(), v.cuda(), starts.cuda(), ends.cuda(), 512, 1024, 0.1, True)
    torch.testing.assert_close(found.float().cpu(), right, rtol=0.02, atol=0.02)


def test_transformers_own_engine_runs_with_it_in_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modeling_flash_attention_utils, "_lazy_imports", modeling_flash_attention_utils._lazy_imports)
    torch.manual_seed(0)
    sizes = {"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 500}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64}
    module = Qwen3ForCausalLM(Qwen3Config(**sizes, **heads)).eval().to("cuda", torch.bfloat16)
    prompts = tuple(tuple((7 * i + j) % 500 for j in range(20 + 90 * i)) for i in range(6))
    case = Case(prompts, (40, 3, 30, 12, 1, 25))
    # Its warm-up reads caches that nobody wrote, and drawing of NaN would end every test of the process.
    how = GenerationConfig(max_new_tokens=40, do_sample=False, eos_token_id=None, pad_token_id=0)
    flash_attention.give(module)
    heard: list[str] = []
    for graphs in (False, True):
        given = {"page_size": 256, "num_blocks": 40, "max_batch_tokens": 512}
        given |= {"use_cuda_graph": graphs, "use_async_batching": graphs}
        assert seconds_of(module, case, how, given, 60, heard.append, 2, timeout=5) > 0
    assert all(flash_attention.NAME in name for name in heard)
