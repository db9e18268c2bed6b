"""The pool's ledger, driven at random."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.blocks import BlockPool, blocks_for


@given(st.integers(1, 40), st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60))
def test_free_and_owned_blocks_always_make_the_whole_pool(total: int, actions: list[tuple[bool, int]]) -> None:
    pool, owners = BlockPool(total, 16), []
    for takes, count in actions:
        if takes and count <= pool.free:
            owners.append(pool.take(count))
        elif owners:
            given_back = owners.pop(count % len(owners))
            assert sorted(pool.release(given_back)) == sorted(given_back)
        held = [block for owned in owners for block in owned]
        assert len(held) == len(set(held))
        assert pool.owned == len(held)
        assert pool.free + pool.owned == pool.total
        assert {b for b in range(total) if pool.references(b)} == set(held)
    for owned in owners:
        pool.release(owned)
    assert pool.free == total
    assert not any(pool.references(b) for b in range(total))


def test_the_lowest_free_blocks_are_given_first() -> None:
    pool = BlockPool(6, 16)
    assert pool.take(4) == [0, 1, 2, 3]
    pool.release([2, 0])
    assert pool.take(3) == [0, 2, 4]


def test_a_block_given_back_twice_is_an_error() -> None:
    pool = BlockPool(2, 16)
    blocks = pool.take(1)
    pool.release(blocks)
    with pytest.raises(AssertionError, match="released twice"):
        pool.release(blocks)


def test_more_blocks_than_are_free_are_not_given() -> None:
    pool = BlockPool(2, 16)
    with pytest.raises(AssertionError, match="3 blocks asked of 2 free"):
        pool.take(3)


@given(st.integers(0, 10_000), st.integers(1, 128))
def test_so_many_blocks_hold_so_many_tokens_and_one_fewer_does_not(tokens: int, block_size: int) -> None:
    blocks = blocks_for(tokens, block_size)
    assert (blocks - 1) * block_size < tokens <= blocks * block_size or tokens == blocks == 0
