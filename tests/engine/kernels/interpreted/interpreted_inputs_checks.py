"""Checks of the kernels that make a step's inputs, which `test_interpreted.py` runs with TRITON_INTERPRET=1."""

import os

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

from engine.kernels.step_inputs import BLOCK, SlotState, StepInputs, apply_changes, decode_inputs, packed_inputs

SIZE = 4  # tokens a block


class State:
    """Random slots, the last of them the dummies', and what is said of them in plain Python."""

    def __init__(self, slots: int, seed: int) -> None:
        self.random = torch.Generator().manual_seed(seed)
        self.last_tokens = torch.randint(0, 50_000, (slots + 1,), generator=self.random)
        self.lengths = torch.randint(0, 30, (slots + 1,), generator=self.random).int()
        self.forgotten = SIZE * torch.randint(0, 5, (slots + 1,), generator=self.random).int()
        self.lengths[slots] = self.forgotten[slots] = 0
        self.tables = torch.randint(0, 1_000_000, (slots + 1, 16), generator=self.random).int()

    @property
    def known(self) -> SlotState:
        return SlotState(self.last_tokens, self.lengths, self.forgotten, self.tables)

    def place(self, slot: int, position: int) -> int:
        return int(self.tables[slot, position // SIZE]) * SIZE + position % SIZE


def poisoned(*sizes: int) -> list[torch.Tensor]:
    return [torch.full((size,), -77) for size in sizes]


@pytest.mark.parametrize("rows", [1, 2, 7, BLOCK - 1, BLOCK, BLOCK + 3])
def test_a_decode_step_takes_each_slots_last_token_and_moves_on(rows: int) -> None:
    state = State(rows + 5, rows)
    slots = torch.randperm(rows + 5, generator=state.random)[:rows]
    slots[rows // 2 :] = rows + 5  # dummies
    ids, positions, places = poisoned(rows, rows, rows)
    contexts, drawn_at = torch.full((2, rows), -77).int()
    before = state.lengths.clone()
    decode_inputs(StepInputs(ids, positions, places, contexts), drawn_at, slots.int(), state.known, SIZE)
    assert ids.tolist() == [int(state.last_tokens[s]) for s in slots]
    assert positions.tolist() == [int(before[s] + state.forgotten[s]) for s in slots]
    assert drawn_at.tolist() == [int(before[s] + state.forgotten[s]) + 1 for s in slots]
    assert places.tolist() == [state.place(s, int(before[s])) for s in slots.tolist()]
    assert contexts.tolist() == [int(before[s]) + 1 for s in slots]
    moved = {int(s) for s in slots} - {rows + 5}
    assert state.lengths.tolist() == [int(n) + (i in moved) for i, n in enumerate(before)]


@pytest.mark.parametrize("counts", [(1,), (5,), (1, 1, 9, 1, 30), (3,) * 100, (300, 1, 2), (1,) * (BLOCK + 1)])
def test_packed_rows_get_their_ids_positions_and_places(counts: tuple[int, ...]) -> None:
    state = State(len(counts) + 2, sum(counts))
    tokens, rows = sum(counts), len(counts)
    state.tables = torch.randint(0, 1000, (rows + 3, 100), generator=state.random).int()
    slots = torch.randperm(rows + 2, generator=state.random)[:rows]
    firsts = torch.randint(0, 40, (rows,), generator=state.random)
    starts = torch.tensor([0, *counts]).cumsum(0)
    staged = torch.randint(0, 50_000, (tokens,), generator=state.random)
    fed = [i for i in range(rows) if i % 3 == 1]
    for i in fed:
        staged[starts[i + 1] - 1] = -1
    before = state.lengths.clone()
    ids, positions, places = poisoned(tokens, tokens, tokens)
    contexts = torch.full((rows,), -77).int()
    written, sent = StepInputs(ids, positions, places, contexts), (staged.int(), starts.int(), firsts.int())
    packed_inputs(written, *sent, slots.int(), state.known, SIZE)
    expected = []
    for i, count in enumerate(counts):
        slot, first = int(slots[i]), int(firsts[i])
        for j in range(count):
            known = int(staged[starts[i] + j])
            token = known if known >= 0 else int(state.last_tokens[slot])
            expected.append((token, int(state.forgotten[slot]) + first + j, state.place(slot, first + j)))
        before[slot] = first + count
    assert list(zip(ids.tolist(), positions.tolist(), places.tolist())) == expected
    assert contexts.tolist() == [int(f) + c for f, c in zip(firsts, counts)]
    assert state.lengths.tolist() == before.tolist()


@pytest.mark.parametrize(
    ("counts", "tokens"),
    [((1, 0, 0, 5, 0), 16), ((0, 0, 3), 3), ((2, 1, 0, 0, 9, 30, 0, 0), BLOCK + 9), ((0, 0), 7), ((1, 0), BLOCK)],
)
def test_rows_without_tokens_and_tokens_without_a_row_are_passed_over(counts: tuple[int, ...], tokens: int) -> None:
    state, rows, total = State(len(counts), sum(counts)), len(counts), sum(counts)
    slots = torch.randperm(rows, generator=state.random)
    firsts = torch.randint(0, 20, (rows,), generator=state.random)
    starts = torch.tensor([0, *counts]).cumsum(0)
    staged = torch.randint(0, 50_000, (tokens,), generator=state.random)
    staged[total:] = 0
    lengths = state.lengths.clone()
    ids, positions, places = poisoned(tokens, tokens, tokens)
    contexts = torch.full((rows,), -77).int()
    written, sent = StepInputs(ids, positions, places, contexts), (staged.int(), starts.int(), firsts.int())
    packed_inputs(written, *sent, slots.int(), state.known, SIZE)
    for i, count in enumerate(counts):
        slot, at = int(slots[i]), range(int(firsts[i]), int(firsts[i]) + count)
        here = slice(int(starts[i]), int(starts[i]) + count)
        assert positions[here].tolist() == [int(state.forgotten[slot]) + place for place in at]
        assert places[here].tolist() == [state.place(slot, position) for position in at]
        assert contexts[i] == (at.stop if count else -77)
        lengths[slot] = at.stop if count else lengths[slot]
    assert ids.tolist() == staged.tolist()
    assert state.lengths.tolist() == lengths.tolist()
    assert positions[total:].tolist() == [0] * (tokens - total)
    assert places[total:].tolist() == [-1] * (tokens - total), "nothing is written of them"


@pytest.mark.parametrize("count", [0, 1, 4, BLOCK, BLOCK + 1])
def test_changes_are_made_where_they_belong_and_nowhere_else(count: int) -> None:
    random = torch.Generator().manual_seed(count)
    state = torch.arange(1000).int()
    index = torch.randperm(1000, generator=random)[:count]
    values = torch.randint(-(2**31), 2**31, (count,), generator=random)
    expected = state.clone()
    expected[index] = values.int()
    apply_changes(state, torch.cat([index, values]).int())
    assert torch.equal(state, expected)


@triton.jit
def square_kernel(number, square):
    tl.store(square, tl.load(number) * tl.load(number))


def test_an_integer_that_needs_more_bits_than_it_has_is_a_fault() -> None:
    """Of which kernels that these checks run have none."""
    number, square = torch.tensor([46_340], dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    square_kernel[(1,)](number, square)
    assert int(square) == 46_340**2
    with pytest.raises(InterpreterError, match="int32 overflow detected for operation mul"):
        square_kernel[(1,)](number + 1, square)
