"""What the device is sent of rows of any lengths, in a shape that they fill and in larger ones."""

from dataclasses import astuple, replace
from itertools import pairwise

import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import SamplingParams
from engine.kernels.attention.packed_rows import SHORT
from engine.runner.packed_words import ALIGNED, BEHIND, PackedShape, room_wanted, short_rows
from engine.scheduler.plan import Row
from engine.trace.records import Kind
from tests.engine.kernels.sampling_case import make_branch

DUMMY = 99


@st.composite
def steps(draw: st.DrawFn) -> list[Row]:
    """Rows that decode, with tokens that are known or still drawn, and chunks of prompts in any order after them."""
    decoding = draw(st.integers(0, 4))
    chunks = draw(st.lists(st.tuples(st.integers(1, 3 * SHORT), st.booleans()), min_size=not decoding, max_size=8))
    rows = []
    for slot, (count, samples) in enumerate([(1, True)] * decoding + chunks):
        first = draw(st.integers(0, 40))
        fed = draw(st.booleans()) and slot < decoding
        branch = make_branch(SamplingParams(), slot, tokens=range(100 * slot, 100 * slot + first + count - fed))
        kind = Kind.DECODE if slot < decoding else Kind.PREFILL
        rows.append(Row(branch, 7 * slot % 31, first, count, kind, samples, fed))
    return rows


def told(row: Row) -> tuple[int, int, list[int]]:
    """A row's slot, the position of its first token, and its ids."""
    known = row.branch.tokens[row.first : row.first + row.count]
    return row.slot, row.first, [*known, -1] if row.fed else known


@given(steps(), st.integers(0, 20), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
def test_rows_are_found_again_whatever_room_their_shape_has(
    rows: list[Row], tokens: int, short: int, long: int, kept: int
) -> None:
    filled = PackedShape.of(rows)
    more = tokens, short, long, kept
    shape = PackedShape(*(size + extra for size, extra in zip(astuple(filled), more)))
    words = torch.from_numpy(shape.filled(rows, DUMMY))
    assert len(words) == shape.size
    parts = shape.apart(words)
    assert all(part.storage_offset() % ALIGNED == 0 for part in parts)
    assert (len(parts.ids), len(parts.slots), len(parts.kept)) == (shape.tokens, shape.rows, shape.kept)
    starts = parts.starts.tolist()
    assert starts[0] == 0
    assert starts == sorted(starts)
    assert starts[-1] == filled.tokens
    found = [
        (slot, first, parts.ids[start:end].tolist())
        for slot, first, start, end in zip(parts.slots.tolist(), parts.firsts.tolist(), starts, starts[1:])
        if end > start
    ]
    assert found == [told(row) for row in rows]
    counts = [end - start for start, end in pairwise(starts)]
    assert all(count <= SHORT for count in counts[: shape.short])
    assert all(slot == DUMMY for slot, count in zip(parts.slots.tolist(), counts) if not count)
    sampling = [row for row in rows if row.samples]
    ends = {row.slot: end for row, end in zip(rows, [n for i, n in enumerate(starts[1:]) if counts[i]])}
    assert parts.kept_slots.tolist() == [row.slot for row in sampling] + [DUMMY] * (shape.kept - len(sampling))
    assert parts.kept.tolist()[: len(sampling)] == [ends[row.slot] - 1 for row in sampling]
    assert parts.drawn_at.tolist()[: len(sampling)] == [row.first + row.count for row in sampling]
    assert all(0 <= index < shape.tokens for index in parts.kept.tolist())


def test_a_shape_that_its_rows_fill_has_no_room_left() -> None:
    branch = make_branch(SamplingParams(), 0, tokens=range(20))
    decode = Row(branch, 0, 19, 1, Kind.DECODE, True, False)
    chunk = replace(decode, slot=1, first=0, count=SHORT + 1, kind=Kind.PREFILL, samples=False)
    last = replace(chunk, slot=2, count=3, samples=True)
    assert PackedShape.of([decode, last]) == PackedShape(4, 2, 0, 2)
    assert PackedShape.of([decode, chunk, last]) == PackedShape(SHORT + 5, 1, 2, 2), "from a long row on all are long"


@given(steps(), st.integers(0, 40))
def test_a_captured_step_with_the_room_that_its_rows_want_holds_them(rows: list[Row], more: int) -> None:
    wanted = room_wanted(rows)
    total = sum(row.count for row in rows)
    if all(row.count > SHORT for row in rows[short_rows(rows) :]):
        assert wanted == total
    shape = PackedShape.captured(wanted + more, 12, 1)
    assert (shape.long - BEHIND) * (SHORT + 1) <= shape.tokens, "room for long rows is what their tokens leave"
    parts = shape.apart(torch.from_numpy(shape.filled(rows, DUMMY)))
    assert parts.starts.tolist()[-1] == total
