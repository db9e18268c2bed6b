"""A flash attention for transformers' `generate_batch` on a machine that has no package of one: prompts by torch's own,
rows of one token by this engine's kernel over the same blocks. So the peer is judged without the handicap of a mask.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, PreTrainedModel, modeling_flash_attention_utils
from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask

from engine.kernels.attention.options import Options
from engine.kernels.attention.packed_rows import PackedRows
from engine.kernels.attention.paged_attention import paged_attention
from engine.kernels.store_kv import store_kv

NAME = "flash_of_torch_and_batchscope_3"  # transformers knows by the digit which version's functions these are


def attend_prompts(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor,
    cu_seqlens_k: Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
) -> Tensor:
    """`flash_attn_varlen_func`, of causal rows without a window: `[tokens, heads, head_dim]` each, sequence i's tokens
    from `cu_seqlens[i]` to `cu_seqlens[i + 1]`."""
    assert causal
    assert window_size == (-1, -1), window_size
    if q.is_cuda:
        lengths = cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k
        forward = torch.ops.aten._flash_attention_forward
        return forward(q, k, v, *lengths, 0.0, True, False, scale=softmax_scale)[0]
    out = torch.zeros_like(q)
    starts, contexts = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for first, last, begin, end in zip(starts, starts[1:], contexts, contexts[1:], strict=False):
        seen = torch.ones(last - first, end - begin, dtype=torch.bool).tril(end - begin - (last - first))
        query, key, value = q[first:last], k[begin:end], v[begin:end]
        heads_first = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
        row = scaled_dot_product_attention(*heads_first, seen, scale=softmax_scale, enable_gqa=True)
        out[first:last] = row.transpose(0, 1)
    return out


@dataclass(slots=True)
class Decode:
    """`flash_attn_with_kvcache`, of rows of one token. What a step's layers share is made in its first layer."""

    count: int  # of layers
    layers: set[int] = field(default_factory=set)  # that this step had so far, by where their keys are
    step: tuple[int, int] = (0, 0)  # where its blocks are told, and how many rows it has: one that fails ends early
    rows: PackedRows | None = None
    slots: Tensor | None = None

    def __call__(
        self,
        q: Tensor,
        k_cache: Tensor,
        v_cache: Tensor,
        k: Tensor,
        v: Tensor,
        cache_seqlens: Tensor,
        softmax_scale: float,
        causal: bool = False,
        window_size: tuple[int, int] = (-1, -1),
        block_table: Tensor | None = None,
    ) -> Tensor:
        """Writes `k` and `v` `[rows, 1, kv_heads, head_dim]` into the cache behind the `cache_seqlens` tokens of their
        rows; attention of q like them. A row that fills up a batch has no tokens, no blocks and no place."""
        assert block_table is not None
        assert window_size == (-1, -1), window_size
        step = block_table.data_ptr(), len(q)
        if step != self.step or len(self.layers) in (0, self.count) or k_cache.data_ptr() in self.layers:
            self._begin(cache_seqlens, block_table, k_cache.shape[1])
            self.step = step
            self.layers.clear()
        self.layers.add(k_cache.data_ptr())
        assert self.rows is not None
        assert self.slots is not None
        store_kv(k.squeeze(1), v.squeeze(1), k_cache, v_cache, self.slots)
        return paged_attention(q.squeeze(1), k_cache, v_cache, self.rows, Options(softmax_scale)).unsqueeze(1)

    def _begin(self, stored: Tensor, table: Tensor, block_size: int) -> None:
        last = (stored.clamp(min=0) // block_size).to(torch.int64)
        block = table.gather(1, last[:, None]).squeeze(1).to(torch.int64)
        self.slots = torch.where((stored < 0) | (block < 0), -1, block * block_size + stored % block_size)
        starts = torch.arange(len(stored) + 1, dtype=torch.int32, device=stored.device)
        self.rows = PackedRows(starts, stored.clamp(min=0) + 1, table.clamp(min=0), short=len(stored))


def give(module: PreTrainedModel) -> None:
    """The model's attention is this one from now on, for `generate_batch` alone."""
    decode, flash = Decode(module.config.num_hidden_layers), modeling_flash_attention_utils

    def functions(implementation: str | None, *values: Any, **options: Any) -> Any:
        if NAME in (implementation or ""):
            return None, attend_prompts, decode, flash._pad_input, flash._unpad_input
        return others(implementation, *values, **options)

    others = flash._lazy_imports
    flash._lazy_imports = functions
    flash._loaded_implementation = None
    known = AttentionInterface._global_mapping
    prefix = "paged|" if "paged|flash_attention_3" in known else ""  # up to transformers 5.17
    AttentionInterface.register(f"{prefix}{NAME}", known[f"{prefix}flash_attention_3"])
    if not prefix:  # there a name without a mask is one that needs none, and asks the GPU for nothing
        AttentionMaskInterface.register(NAME, flash_attention_mask)
    module.set_attn_implementation(f"{prefix}{NAME}")
