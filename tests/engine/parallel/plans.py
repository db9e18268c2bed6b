"""What rank 0 may plan, which every way to split a model follows."""

import pytest

SQUEEZED = 12 * 16 * 2 * 2 * 2 * 16 * 4  # bytes of twelve blocks

EVERY_PLAN = pytest.mark.parametrize(
    ("changes", "params"),
    [
        ({"kv_memory": SQUEEZED}, {"max_tokens": 60}),
        ({"kv_memory": SQUEEZED, "preemption": "swap", "swap_memory": 3 * SQUEEZED}, {"max_tokens": 60}),
        ({"kv_memory": SQUEEZED, "prefix_caching": True, "offload_prefixes": True}, {"max_tokens": 60}),
        ({"mode": "chunked", "token_budget": 8}, {}),
        ({"block_size": 4, "kv_window": 16}, {"max_tokens": 60}),
        ({"prefix_caching": True}, {}),
        ({"prefix_caching": True}, {"n": 3, "temperature": 1.0, "seed": 5}),
        ({"speculation": "ngram"}, {}),
        ({}, {"prompt_logprobs": 2, "logprobs": 2}),
        ({}, {"beam_width": 3}),
        ({"cuda_graphs": False}, {"repetition_penalty": 1.2}),
        ({"kv_dtype": "int8"}, {}),
    ],
    ids=lambda x: " ".join(f"{k}={v}" for k, v in x.items()) or "plain",
)
