"""The pool's ledger, driven at random."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.scheduler.block_pool import ROOT, BlockPool, blocks_for
from engine.trace.records import BlockEvent


@given(st.integers(1, 40), st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60))
def test_free_and_owned_blocks_always_make_the_whole_pool(total: int, actions: list[tuple[bool, int]]) -> None:
    pool, owners = BlockPool(total, 16), []
    for takes, count in actions:
        if takes and count <= pool.free:
            owners.append(pool.take(count))
        elif owners:
            given_back = owners.pop(count % len(owners))
            assert pool.release(given_back) == [BlockEvent.FREED] * len(given_back)
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
    with pytest.raises(AssertionError, match="3 blocks asked of 2 available"):
        pool.take(3)


@given(st.integers(0, 10_000), st.integers(1, 128))
def test_so_many_blocks_hold_so_many_tokens_and_one_fewer_does_not(tokens: int, block_size: int) -> None:
    blocks = blocks_for(tokens, block_size)
    assert (blocks - 1) * block_size < tokens <= blocks * block_size or tokens == blocks == 0


def test_a_published_block_is_found_by_its_tokens_and_only_after_its_own_prefix() -> None:
    pool = BlockPool(8, 2)
    first, second, other = pool.take(3)
    serial = pool.publish(first, ROOT, [1, 2])
    pool.publish(second, serial, [3, 4])
    pool.publish(other, ROOT, [3, 4])
    assert pool.match([1, 2, 3, 4, 5])[0] == [first, second]
    assert pool.match([3, 4, 3, 4])[0] == [other]
    assert pool.match([1, 2, 3])[0] == [first]
    assert pool.match([2, 1])[0] == []


def test_a_block_with_the_same_content_twice_answers_once_and_both_prefixes_are_one() -> None:
    pool = BlockPool(8, 2)
    mine, yours = pool.take(2)
    assert pool.publish(mine, ROOT, [1, 2]) == pool.publish(yours, ROOT, [1, 2])
    assert pool.match([1, 2])[0] == [mine]
    assert pool.release([yours]) == [BlockEvent.FREED]
    assert pool.release([mine]) == [BlockEvent.KEPT]


def test_a_cached_block_comes_back_by_sharing_and_is_forgotten_when_its_room_is_needed() -> None:
    pool = BlockPool(3, 2)
    blocks = pool.take(2)
    serial = pool.publish(blocks[0], ROOT, [1, 2])
    pool.publish(blocks[1], serial, [3, 4])
    pool.share(blocks[:1])
    assert pool.release(blocks[::-1]) == [BlockEvent.KEPT, BlockEvent.LEFT]
    assert pool.release(blocks[:1]) == [BlockEvent.KEPT]
    assert (pool.free, pool.cached, pool.owned) == (1, 2, 0)
    pool.share(pool.match([1, 2])[0])
    assert (pool.free, pool.cached, pool.owned) == (1, 1, 1)
    assert pool.take(2) == [2, blocks[1]]
    assert pool.match([1, 2, 3, 4])[0] == [blocks[0]], "the end of a chain is forgotten before its beginning"


def test_the_least_recently_used_prefix_is_forgotten_first() -> None:
    pool = BlockPool(3, 1)
    for block, token in zip(pool.take(3), (7, 8, 9)):
        pool.publish(block, ROOT, [token])
    for block in (1, 0, 2):
        pool.release([block])
    pool.share(pool.match([8])[0])
    pool.release(pool.match([8])[0])
    pool.take(2)
    assert [bool(pool.match([t])[0]) for t in (7, 8, 9)] == [False, True, False]


def test_an_unwritten_block_is_unpublished() -> None:
    pool = BlockPool(2, 1)
    (block,) = pool.take(1)
    pool.publish(block, ROOT, [5])
    assert pool.withdraw([block]) == []
    assert pool.match([5])[0] == []
    assert pool.release([block]) == [BlockEvent.FREED]


@settings(max_examples=200)
@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 1), max_size=8)), max_size=40))
def test_a_match_gives_the_content_that_was_published(total: int, actions: list[tuple[int, list[int]]]) -> None:
    """Prompts of few tokens come and go; what a match finds must hold exactly the tokens asked for."""
    size = 2
    pool, content, held = BlockPool(total, size), dict[int, tuple[int, ...]](), list[list[int]]()
    for leave, tokens in actions:
        if leave and held:
            pool.release(held.pop(leave % len(held)))
        found, serial = pool.match(tokens)
        assert tuple(t for block in found for t in content[block]) == tuple(tokens[: len(found) * size])
        needed = len(tokens) // size - len(found)
        if pool.available - sum(map(pool.is_cached, found)) < needed:
            continue
        pool.share(found)
        new = pool.take(needed)
        for i, block in enumerate(new, len(found)):
            content[block] = tuple(tokens[i * size : (i + 1) * size])
            serial = pool.publish(block, serial, content[block])
        held.append(found + new)
        assert pool.free + pool.cached + pool.owned == total


def test_a_block_that_is_published_anew_is_found_there_alone() -> None:
    """Two samples share a block that one published after another request's block; that one is gone when the other
    publishes the beginning anew."""
    pool = BlockPool(4, 2)
    theirs, own, second = pool.take(3)
    before = pool.publish(theirs, ROOT, [1, 2])
    pool.publish(second, before, [3, 4])
    pool.release([theirs])
    pool.take(2)  # the free one and theirs, whose prefix is forgotten
    anew = pool.publish(own, ROOT, [1, 2])
    pool.publish(second, anew, [3, 4])
    assert pool.match([1, 2, 3, 4])[0] == [own, second]
    pool.release([second])
    pool.take(1)
    assert pool.match([1, 2, 3, 4])[0] == [own]
    assert second not in [block for block, _ in pool._published.values()]
