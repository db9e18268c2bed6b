"""How fast a decode step of this model can be: its bare forward over a preallocated contiguous cache, and nothing else.

Every row has the same context, so no mask and no padding is computed. Weights are used as transformers holds them and
as this engine packs them, attention is the least one can do and transformers' own; the fastest pairing is the bound.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaForCausalLM, StaticCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from engine.bench.cpu.alone import alone

NAME = "batchscope_bench_dense"
Step = Callable[[], Tensor]


class DenseCache:
    """K and V of each layer as `[batch, kv_heads, context, head_dim]`; a step writes the last position of each row."""

    def __init__(self, module: LlamaForCausalLM, batch: int, context: int) -> None:
        config = module.config
        shape = (batch, config.num_key_value_heads, context, config.head_dim)
        self.k = [torch.randn(shape, dtype=module.dtype) for _ in range(config.num_hidden_layers)]
        self.v = [torch.randn(shape, dtype=module.dtype) for _ in range(config.num_hidden_layers)]


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    *,
    dense: DenseCache,
    scaling: float,
    **_: Any,
) -> tuple[Tensor, None]:
    """One query a row; heads that share a KV head are one matrix of queries. Two products are faster than sdpa here."""
    layer: int = module.layer_idx  # type: ignore[assignment]
    k, v = dense.k[layer], dense.v[layer]
    k[:, :, -1] = key[:, :, 0]
    v[:, :, -1] = value[:, :, 0]
    batch, heads, one, head_dim = query.shape
    kv_heads, context = k.shape[1:3]
    queries = (query * scaling).view(batch * kv_heads, heads // kv_heads, head_dim)
    scores = torch.bmm(queries, k.view(batch * kv_heads, context, head_dim).transpose(1, 2))
    out = torch.bmm(scores.softmax(-1), v.view(batch * kv_heads, context, head_dim))
    return out.view(batch, one, heads, head_dim), None


ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, lambda *args, **kwargs: None)


def dense_step(module: LlamaForCausalLM, batch: int, context: int) -> Step:
    """A decode step with the least attention one can do. Sets the module's attention."""
    module.set_attn_implementation(NAME)
    dense = DenseCache(module, batch, context)
    ids = torch.ones(batch, 1, dtype=torch.long)
    positions = torch.full((batch, 1), context - 1)
    return lambda: module(input_ids=ids, position_ids=positions, use_cache=False, dense=dense).logits


def static_cache_step(module: LlamaForCausalLM, batch: int, context: int) -> Step:
    """A decode step over transformers' StaticCache with sdpa. Sets the module's attention."""
    module.set_attn_implementation("sdpa")
    cache = StaticCache(config=module.config, max_cache_len=context)
    mask = torch.ones(batch, context, dtype=torch.long)
    with torch.inference_mode():
        module(input_ids=torch.ones(batch, context - 1, dtype=torch.long), past_key_values=cache, logits_to_keep=1)
    ids = torch.ones(batch, 1, dtype=torch.long)
    positions = torch.full((batch, 1), context - 1)

    def step() -> Tensor:
        for kept in cache.layers:  # the position just written is written again
            kept.cumulative_length.fill_(context - 1)
        return module(input_ids=ids, position_ids=positions, attention_mask=mask, past_key_values=cache).logits

    return step


def step_seconds(step: Step, threads: int, steps: int) -> list[float]:
    """Seconds of each of `steps` steps, after two to warm up."""

    def measure() -> list[float]:
        torch.set_num_threads(threads)
        seconds = []
        with torch.inference_mode():
            for _ in range(steps + 2):
                begun = time.perf_counter()
                step()
                seconds.append(time.perf_counter() - begun)
        return seconds[2:]

    return alone(measure)
