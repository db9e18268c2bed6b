"""Triton kernels that make a step's inputs where the rows' state lies: token ids, positions, places in the KV cache.

The state is kept by slot: each branch's last token, how many tokens of it the cache holds, its block table. A decode
step needs nothing from the host but which slots take part.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from engine.kernels.dependent_launch import await_inputs
from engine.kernels.jit import jit, launch, tl

BLOCK = 256


@jit(do_not_specialize=["changes", "count"])
def apply_changes_kernel(state: tl.tensor, changes: tl.tensor, count: tl.tensor, BLOCK: tl.constexpr) -> None:
    await_inputs()
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    changed = at < count
    index = tl.load(changes + at, mask=changed, other=0).to(tl.int64)
    tl.store(state + index, tl.load(changes + count + at, mask=changed), mask=changed)


def apply_changes(state: Tensor, changes: Tensor) -> None:
    """state[changes[i]] = changes[n + i] for each of the n changes; int32, no index twice."""
    count = len(changes) // 2
    if count:
        launch(apply_changes_kernel, (-(-count // BLOCK),), (state, changes, count, BLOCK))


@jit(do_not_specialize=["row_slots", "rows", "dummy", "table_stride"])
def decode_inputs_kernel(
    ids: tl.tensor,  # int64 [rows], written, as are positions, cache_slots (int64) and contexts (int32)
    positions: tl.tensor,
    cache_slots: tl.tensor,
    contexts: tl.tensor,
    drawn_at: tl.tensor,  # int32 [rows], written
    row_slots: tl.tensor,  # int32 [rows]
    last_tokens: tl.tensor,  # int64 [slots + 1]
    lengths: tl.tensor,  # int32 [slots + 1], advanced by one
    forgotten: tl.tensor,  # int32 [slots + 1]
    tables: tl.tensor,  # int32 [slots + 1, table_stride]
    rows: tl.tensor,
    dummy: tl.tensor,
    table_stride: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    await_inputs()
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = row < rows
    slot = tl.load(row_slots + row, mask=here, other=0)
    length = tl.load(lengths + slot, mask=here, other=0)
    block = tl.load(tables + slot.to(tl.int64) * table_stride + length // BLOCK_SIZE, mask=here, other=0).to(tl.int64)
    tl.store(ids + row, tl.load(last_tokens + slot, mask=here, other=0), mask=here)
    position = length + tl.load(forgotten + slot, mask=here, other=0)
    tl.store(positions + row, position.to(tl.int64), mask=here)
    tl.store(drawn_at + row, position + 1, mask=here)
    tl.store(cache_slots + row, block * BLOCK_SIZE + length % BLOCK_SIZE, mask=here)
    tl.store(contexts + row, length + 1, mask=here)
    tl.store(lengths + slot, length + 1, mask=here & (slot != dummy))  # several rows may be dummies


class StepInputs(NamedTuple):
    """What a model's call reads: of each token its id, its position and its place in the KV cache, int64 `[tokens]`;
    of each row how many tokens its last one sees, itself included, int32 `[rows]`."""

    ids: Tensor
    positions: Tensor
    cache_slots: Tensor
    contexts: Tensor


class SlotState(NamedTuple):
    """What the device knows of each slot: its last token int64 `[slots + 1]`, how many tokens of it the cache holds
    and how many before the newest of these it has forgotten, int32 `[slots + 1]`, its block table int32 `[slots + 1,
    width]`. The last slot is the dummies'."""

    last_tokens: Tensor
    lengths: Tensor
    forgotten: Tensor
    tables: Tensor


def decode_inputs(written: StepInputs, drawn_at: Tensor, row_slots: Tensor, state: SlotState, block_size: int) -> None:
    """A token for each row's slot: the last one it sampled, at the end of what the cache holds of it. `drawn_at` int32
    `[rows]` gets the positions of those that follow. Advances the slots' lengths; the dummies' stays as it is."""
    rows, dummy = len(row_slots), len(state.lengths) - 1
    sizes = rows, dummy, state.tables.stride(0), block_size, BLOCK
    launch(decode_inputs_kernel, (-(-rows // BLOCK),), (*written, drawn_at, row_slots, *state, *sizes))


_VARYING = "ids positions cache_slots staged starts firsts row_slots tokens rows table_stride"


@jit(do_not_specialize=_VARYING.split())
def packed_inputs_kernel(
    ids: tl.tensor,  # int64 [tokens], written, as are positions and cache_slots
    positions: tl.tensor,
    cache_slots: tl.tensor,
    contexts: tl.tensor,  # int32 [rows], written
    staged: tl.tensor,  # int32 [tokens], -1 for the last token of the row's slot
    starts: tl.tensor,  # int32 [rows + 1]; tokens from starts[rows] on are no row's
    firsts: tl.tensor,  # int32 [rows], where their tokens lie in their slots' blocks
    row_slots: tl.tensor,  # int32 [rows]
    last_tokens: tl.tensor,
    lengths: tl.tensor,
    forgotten: tl.tensor,
    tables: tl.tensor,
    tokens: tl.tensor,
    rows: tl.tensor,
    table_stride: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    await_inputs()
    token = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = token < tokens
    here = token < tl.minimum(tokens, tl.load(starts + rows))
    # The row of a token: rows [0, low) begin at or before it, rows [high, rows) after it. Of those that begin where it
    # does, all but the last are empty.
    low = tl.zeros([BLOCK], tl.int32)
    high = tl.zeros([BLOCK], tl.int32) + rows
    span = rows
    while span > 0:
        middle = (low + high) // 2
        searching = low < high
        begun = tl.load(starts + middle, mask=searching, other=0) <= token
        low = tl.where(searching & begun, middle + 1, low)
        high = tl.where(searching & (begun == 0), middle, high)
        span = span // 2
    row = low - 1
    start = tl.load(starts + row, mask=here, other=0)
    end = tl.load(starts + row + 1, mask=here, other=0)
    at = tl.load(firsts + row, mask=here, other=0) + token - start
    slot = tl.load(row_slots + row, mask=here, other=0)
    position = at + tl.load(forgotten + slot, mask=here, other=0)
    known = tl.load(staged + token, mask=here, other=0).to(tl.int64)
    sampled = tl.load(last_tokens + slot, mask=here & (known < 0), other=0)
    block = tl.load(tables + slot.to(tl.int64) * table_stride + at // BLOCK_SIZE, mask=here, other=0).to(tl.int64)
    place = block * BLOCK_SIZE + at % BLOCK_SIZE
    tl.store(ids + token, tl.where(known < 0, sampled, known), mask=there)
    tl.store(positions + token, tl.where(here, position, 0).to(tl.int64), mask=there)
    tl.store(cache_slots + token, tl.where(here, place, -1), mask=there)
    last = here & (token == end - 1)
    tl.store(contexts + row, at + 1, mask=last)
    tl.store(lengths + slot, at + 1, mask=last)


def packed_inputs(
    written: StepInputs,
    staged: Tensor,
    starts: Tensor,
    firsts: Tensor,
    row_slots: Tensor,
    state: SlotState,
    block_size: int,
) -> None:
    """The tokens of packed rows of any lengths, row r being tokens [starts[r], starts[r + 1]), from place
    `firsts[r]` of its slot's blocks on.

    `staged` int32 `[tokens]` are their ids, -1 for one that the row's slot has sampled last. Sets the slots' lengths.
    Rows may be empty: nothing is written for them. Tokens that are no row's have the id and position 0, and no place.
    """
    sizes = len(staged), len(row_slots), state.tables.stride(0), block_size, BLOCK
    sent = staged, starts, firsts, row_slots
    launch(packed_inputs_kernel, (-(-len(staged) // BLOCK),), (*written, *sent, *state, *sizes))
