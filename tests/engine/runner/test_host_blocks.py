"""Blocks go to host memory and come back bit for bit, of caches of any layout, and no other is touched."""

import pytest
import torch

from engine.kernels.cpu import blocks as plain
from engine.kernels.cpu import calls as native
from engine.memory.live_bytes import LiveBytes
from engine.runner.host_blocks import HostBlocks, PinnedBlocks, PlainBlocks

SHAPES = ((2, 32), (1, 64))  # kv_heads and head_dim of two layers


def caches(dtype: torch.dtype, layout: object) -> list[torch.Tensor]:
    torch.manual_seed(1)
    made = [f(12, 4, *shape, dtype) for shape in SHAPES for f in (layout.allocate_keys, layout.allocate_values)]  # type: ignore[attr-defined]
    for cache in made:
        cache.copy_(torch.randn(cache.shape))
    return made


def block_bytes(caches: list[torch.Tensor]) -> int:
    return sum(cache[0].numel() * cache.itemsize for cache in caches)


class InPieces(PinnedBlocks):
    """Of three blocks each."""

    def __init__(self, caches: list[torch.Tensor], count: int) -> None:
        super().__init__(caches, count, 3 * block_bytes(caches) + 1)


class InParts(PinnedBlocks):
    """Of two blocks each."""

    def __init__(self, caches: list[torch.Tensor], count: int) -> None:
        super().__init__(caches, count, staged=4 * block_bytes(caches))


@pytest.mark.parametrize("kind", [PlainBlocks, PinnedBlocks, InPieces, InParts])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("layout", [plain, native])
def test_blocks_come_back_as_they_went(kind: type[HostBlocks], dtype: torch.dtype, layout: object) -> None:
    pool = caches(dtype, layout)
    before = [cache.clone() for cache in pool]
    host = kind(pool, 8)  # type: ignore[call-arg]
    assert host.block_bytes == sum(cache[0].numel() * dtype.itemsize for cache in pool)
    with torch.inference_mode():
        host.out([(3, 7), (11, 1), (4, 2), (0, 5), (4, 3), (0, 6)])
        for cache in pool:
            cache[[3, 11, 4, 0]] = 7.0
        host.back([(5, 9), (7, 3), (2, 0)])
    for cache, was in zip(pool, before, strict=True):
        assert torch.equal(cache[[9, 3, 0]], was[[0, 3, 4]])
        assert (cache[[11, 4]] == 7.0).all()
        others = [1, 2, 5, 6, 7, 8, 10]
        assert torch.equal(cache[others], was[others])


def test_however_many_blocks_go_they_take_a_few_blocks_of_the_gpu() -> None:
    pool = caches(torch.float32, plain)
    host, pairs = InParts(pool, 12), [(block, 11 - block) for block in range(12)]
    for copy in (host.out, host.back):
        with torch.inference_mode(), LiveBytes() as live:
            copy(pairs)
        assert 0 < live.peak - 16 * 12 <= 4 * host.block_bytes, "and where they lie"


def test_pinned_memory_is_taken_in_pieces_that_a_power_of_two_holds() -> None:
    """torch takes the next one: at once, 6 GB would be 8."""
    pool = [torch.zeros(4, 5000, dtype=torch.uint8)]
    host = PinnedBlocks(pool, 29, 1 << 16)
    sizes = [piece.numel() for piece in host._host]
    assert sizes == [13 * 5000, 13 * 5000, 3 * 5000]
    assert sum(1 << (size - 1).bit_length() for size in sizes) < 1.02 * sum(sizes)
