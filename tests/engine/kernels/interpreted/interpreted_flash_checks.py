"""Checks of the attention that transformers' `generate_batch` is given, which `test_interpreted.py` runs with
TRITON_INTERPRET=1, in a process of their own."""

import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from torch import Tensor
from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM, modeling_flash_attention_utils
from transformers.generation.continuous_batching import initialization

from engine.bench import flash_attention
from engine.bench.flash_attention import Decode, attend_prompts
from engine.bench.generate_batch import batching_config

HEADS, KV_HEADS, DIM, PAGE, LAYERS = 4, 2, 32, 16, 2


class Cache:
    """Two layers of random K and V in pages, with a page that nobody owns at the end, as transformers has them."""

    def __init__(self, random: torch.Generator) -> None:
        self.random = random
        self.layers = [(self.draw(9, PAGE, KV_HEADS, DIM), self.draw(9, PAGE, KV_HEADS, DIM)) for _ in range(LAYERS)]

    def draw(self, *size: int) -> Tensor:
        return torch.randn(size, generator=self.random)


def check_step(decode: Decode, cache: Cache, lengths: list[int], tables: list[list[int]]) -> None:
    """`lengths` are what was stored before, -1 of a row that fills up the batch."""
    stored, table = torch.tensor(lengths, dtype=torch.int32), torch.tensor(tables, dtype=torch.int32)
    for keys, values in cache.layers:
        q, k, v = (cache.draw(len(lengths), 1, heads, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS))
        before = keys.clone()
        out = decode(q, keys, values, k, v, stored, 0.2, True, block_table=table)
        written = 0
        for row, length in enumerate(lengths):
            if length < 0:
                continue
            pages = table[row, : length // PAGE + 1].long()
            own_k, own_v = (x[pages].flatten(0, 1)[: length + 1] for x in (keys, values))
            assert torch.equal(own_k[-1], k[row, 0])
            assert torch.equal(own_v[-1], v[row, 0])
            starts = torch.tensor([0, 1]), torch.tensor([0, length + 1])
            right = attend_prompts(q[row], own_k, own_v, *starts, 1, length + 1, 0.2, True)
            torch.testing.assert_close(out[row], right, rtol=1e-5, atol=1e-5)
            written += 1
        assert int((keys != before).flatten(2).any(2).sum()) == written


def test_rows_of_one_token_see_their_pages_in_every_layer_step_and_cache() -> None:
    decode, random = Decode(LAYERS), torch.Generator().manual_seed(1)
    for cache in (Cache(random), Cache(random)):  # whose first step must not take the last one's rows
        check_step(decode, cache, [5, 30, -1], [[3, -1, -1], [1, 4, -1], [-1, -1, -1]])
        check_step(decode, cache, [6, 31, 0], [[3, -1, -1], [1, 4, -1], [7, -1, -1]])
        check_step(decode, cache, [32, -1], [[1, 4, 6], [-1, -1, -1]])
        check_step(decode, cache, [15, 16], [[0, -1, -1], [2, 5, -1]])


def test_transformers_own_engine_gives_the_tokens_of_generate_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": LAYERS, "vocab_size": 500}
    heads = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": DIM}
    module = Qwen3ForCausalLM(Qwen3Config(**sizes, **heads)).eval()
    prompts, new = [list(range(3, 18)), [7, 8, 9, 10], list(range(100, 120))], (6, 4, 9)
    greedy = GenerationConfig(max_new_tokens=9, do_sample=False, eos_token_id=None, pad_token_id=0)
    right = [
        module.generate(torch.tensor([prompt]), greedy, max_new_tokens=count)[0, len(prompt) :].tolist()
        for prompt, count in zip(prompts, new)
    ]

    # Block tables are asked for on a GPU alone.
    usable = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: True))
    tables = initialization.ensure_decode_fast_path_is_available

    def with_tables(*values: object, **options: object) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(initialization, "torch", usable)
            tables(*values, **options)

    steps: list[int] = []
    begin = Decode._begin

    def began(self: Decode, stored: Tensor, table: Tensor, block_size: int) -> None:
        steps.append(len(stored))
        begin(self, stored, table, block_size)

    monkeypatch.setattr(initialization, "ensure_decode_fast_path_is_available", with_tables)
    monkeypatch.setattr(Decode, "_begin", began)
    monkeypatch.setattr(modeling_flash_attention_utils, "_lazy_imports", modeling_flash_attention_utils._lazy_imports)
    flash_attention.give(module)
    options = {"num_blocks": 16, "max_blocks_per_request": 4, "allow_block_sharing": False}
    config = batching_config(page_size=PAGE, max_batch_tokens=32, max_requests_per_batch=3, **options)
    managed = {"generation_config": greedy, "continuous_batching_config": config, "timeout": 5}
    with torch.no_grad(), module.continuous_batching_context_manager(**managed) as batch:
        names = [
            batch.add_request(prompt, max_new_tokens=count, eos_token_id=-1) for prompt, count in zip(prompts, new)
        ]
        ended = [batch.get_result(timeout=60) for _ in prompts]
    found = {each.request_id: each.generated_tokens for each in ended}
    assert [found[name] for name in names] == right
    assert len(steps) >= max(new) - 2, "steps of rows of one token are the kernel's"


def test_on_a_gpu_prompts_are_causal_and_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the operation's own schema names what it is given."""
    names = [each.name for each in torch.ops.aten._flash_attention_forward.default._schema.arguments]
    given: dict[str, Any] = {}

    def forward(*values: object, **options: object) -> list[str]:
        given.update(zip(names, values), **options)
        return ["out", "logsumexp"]

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", forward)
    q, k, v, queries, contexts = SimpleNamespace(is_cuda=True), *"kv", "queries", "contexts"
    assert attend_prompts(q, k, v, queries, contexts, 5, 7, 0.2, True) == "out"  # type: ignore[arg-type]
    assert given == {
        "query": q, "key": "k", "value": "v", "cum_seq_q": "queries", "cum_seq_k": "contexts", "max_q": 5, "max_k": 7,
        "dropout_p": 0.0, "is_causal": True, "return_debug_mask": False, "scale": 0.2,
    }  # fmt: skip


def test_prompts_see_what_is_before_them_and_nothing_else() -> None:
    random, queries, contexts = torch.Generator().manual_seed(2), [3, 1, 0, 5], [7, 4, 0, 5]
    starts, ends = (torch.tensor([0, *lengths]).cumsum(0) for lengths in (queries, contexts))
    q = torch.randn(sum(queries), HEADS, DIM, generator=random)
    k, v = torch.randn(2, sum(contexts), KV_HEADS, DIM, generator=random)
    out = attend_prompts(q, k, v, starts, ends, 5, 7, 0.2, True)
    for first, count, begin, context in zip(starts, queries, ends, contexts):
        for j in range(count):
            seen = slice(int(begin), int(begin) + context - count + j + 1)
            scores = torch.einsum("hd,khd->hk", q[first + j], k[seen].repeat_interleave(HEADS // KV_HEADS, 1)) * 0.2
            right = torch.einsum("hk,khd->hd", scores.softmax(1), v[seen].repeat_interleave(HEADS // KV_HEADS, 1))
            torch.testing.assert_close(out[first + j], right, rtol=1e-5, atol=1e-5)
