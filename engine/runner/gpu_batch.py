"""One step's view of the paged KV cache on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.kernels.packed_rows import PackedRows
from engine.kernels.paged_attention import paged_attention
from engine.kernels.store_kv import store_kv
from engine.models.attention import Options


@dataclass(slots=True)
class GpuBatch:
    """Caches are a list by layer of `[blocks, block_size, kv_heads, head_dim]`. The rows are packed: one sequence of
    all their tokens, whose keys and values go to `cache_slots` int64 `[tokens]`."""

    k_caches: list[Tensor]
    v_caches: list[Tensor]
    cache_slots: Tensor
    rows: PackedRows

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        q, k, v = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
        k_cache, v_cache = self.k_caches[layer], self.v_caches[layer]
        store_kv(k, v, k_cache, v_cache, self.cache_slots)
        return paged_attention(q, k_cache, v_cache, self.rows, options)[None]
