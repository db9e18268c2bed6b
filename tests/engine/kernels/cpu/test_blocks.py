"""Decode attention on a CPU equals the oracle, whichever rows share which blocks."""

import pytest
import torch

from engine.kernels.attention.options import Options
from engine.kernels.cpu import blocks as cpu
from tests.engine.kernels import oracle

BLOCK, KV_HEADS, GROUP, HEAD_DIM = 4, 2, 3, 8


def tables_of(seed: int) -> tuple[list[list[int]], list[int]]:
    """Rows that begin with the blocks of a row before, up to some block, and end in blocks of their own."""
    random = torch.Generator().manual_seed(seed)

    def pick(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=random))

    spread = 9 if seed % 3 == 0 else 1  # a pool that is nearly all others' is not read from end to end
    free = [block * spread for block in torch.randperm(200, generator=random).tolist()]
    tables: list[list[int]] = []
    for _ in range(pick(1, 9)):
        begun = tables[pick(0, len(tables) - 1)] if tables and pick(0, 3) else []
        shared = begun[: pick(0, max(0, len(begun) - 1))]
        tables.append(shared + [free.pop() for _ in range(pick(1, 4))])
    return tables, [(len(table) - 1) * BLOCK + pick(1, BLOCK) for table in tables]


@pytest.mark.parametrize("seed", range(24))
def test_rows_that_share_blocks_see_them_as_their_own(seed: int) -> None:
    tables, lengths = tables_of(seed)
    blocks = max(max(table) for table in tables) + 1
    random = torch.Generator().manual_seed(seed)
    k_cache = cpu.allocate_keys(blocks, BLOCK, KV_HEADS, HEAD_DIM, torch.float32).normal_(generator=random)
    v_cache = cpu.allocate_values(blocks, BLOCK, KV_HEADS, HEAD_DIM, torch.float32).normal_(generator=random)
    q = torch.randn(len(tables), KV_HEADS * GROUP, HEAD_DIM, generator=random) * 3
    window = (None, 1, 6, 100)[seed % 4]
    softcap = (None, 4.0)[seed // 4 % 2]
    sinks = torch.randn(KV_HEADS * GROUP, generator=random) if seed // 8 % 2 else None
    plan = cpu.plan_decode(tables, lengths, BLOCK)
    options = Options(0.4, window, softcap, sinks)
    out = cpu.decode_attention(q, k_cache, v_cache, plan, options)

    widest = max(map(len, tables))
    block_tables = torch.tensor([table + [-1] * (widest - len(table)) for table in tables], dtype=torch.int32)
    metadata = block_tables, torch.arange(len(tables) + 1), torch.tensor(lengths)
    expected = oracle.paged_attention(q.double(), k_cache, v_cache, *metadata, options)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


def test_a_prefix_that_many_rows_share_is_read_once() -> None:
    prefix = list(range(32))
    plan = cpu.plan_decode([[*prefix, 32 + 2 * row, 33 + 2 * row] for row in range(64)], [540] * 64, 16)
    shared, own = plan.parts
    assert shared.rows.shape == (1, 64)
    assert shared.position.tolist() == [list(range(512))]
    assert own.blocks is None
    assert own.rows.numel() == 160


def test_without_sharing_the_pool_is_read_where_it_lies() -> None:
    (only,) = cpu.plan_decode([[0, 2], [1, 3, 4]], [20, 40], 16).parts
    assert only.blocks is None
    assert only.rows[:, 0].tolist() == [0, 1, 0, 1, 1]
