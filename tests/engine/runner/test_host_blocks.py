"""Blocks go to host memory and come back bit for bit, of caches of any layout, and no other is touched."""

import pytest
import torch

from engine.kernels.cpu import blocks as plain
from engine.kernels.cpu import calls as native
from engine.runner.host_blocks import HostBlocks, PinnedBlocks, PlainBlocks

SHAPES = ((2, 32), (1, 64))  # kv_heads and head_dim of two layers


def caches(dtype: torch.dtype, layout: object) -> list[torch.Tensor]:
    torch.manual_seed(1)
    made = [f(12, 4, *shape, dtype) for shape in SHAPES for f in (layout.allocate_keys, layout.allocate_values)]  # type: ignore[attr-defined]
    for cache in made:
        cache.copy_(torch.randn(cache.shape))
    return made


@pytest.mark.parametrize("kind", [PlainBlocks, PinnedBlocks])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", [plain, native])
def test_blocks_come_back_as_they_went(kind: type[HostBlocks], dtype: torch.dtype, layout: object) -> None:
    pool = caches(dtype, layout)
    before = [cache.clone() for cache in pool]
    host = kind(pool, 8)  # type: ignore[call-arg]
    assert host.block_bytes == sum(cache[0].numel() * dtype.itemsize for cache in pool)
    with torch.inference_mode():
        host.out([(3, 7), (11, 1), (4, 2), (0, 5)])
        for cache in pool:
            cache[[3, 11, 4, 0]] = 7.0
        host.back([(5, 9), (7, 3), (2, 0)])
    for cache, was in zip(pool, before, strict=True):
        assert torch.equal(cache[[9, 3, 0]], was[[0, 3, 4]])
        assert (cache[[11, 4]] == 7.0).all()
        others = [1, 2, 5, 6, 7, 8, 10]
        assert torch.equal(cache[others], was[others])
