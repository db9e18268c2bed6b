"""Checks of the sanitizer by small kernels, each with one fault, which `test_interpreted.py` runs with
TRITON_INTERPRET=1."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import torch
from torch import Tensor

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from triton import jit
from triton import language as tl

from engine.kernels.store_kv import store_kv
from tests.sanitizer import plugin
from tests.sanitizer.interpreter import any_order
from tests.sanitizer.launch import KEPT, Fault


@contextmanager
def told(words: str) -> Iterator[None]:
    """Expects a fault that says so, and nothing of it is kept."""
    with pytest.raises(Fault) as fault:
        yield
    assert words in str(fault.value)
    assert [str(fault.value)] == KEPT
    KEPT.clear()


@jit
def copy_kernel(out, x, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < count), mask=at < count)


@jit
def rows_kernel(out, x, stride, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    tl.store(out + row * stride + column, tl.load(x + row * WIDTH + column))


def test_what_is_in_place_passes() -> None:
    x, out = torch.arange(10.0), torch.empty(10)
    copy_kernel[(3,)](out, x, 10, 4)
    assert torch.equal(out, x)
    copy_kernel[(3,)](out, x[:0], 0, 4)


def test_a_load_past_the_end_is_told_by_kernel_program_line_and_element() -> None:
    with told(
        "memcheck: copy_kernel, program (2, 0, 0), tests/engine/kernels/interpreted/interpreted_sanitizer_checks.py:"
    ):
        copy_kernel[(3,)](torch.empty(10), torch.arange(10.0)[:9], 10, 4)


def test_it_is_told_by_how_much_a_load_is_outside() -> None:
    with told("loads outside x, float32 [9]: 1 elements past its last"):
        copy_kernel[(3,)](torch.empty(10), torch.arange(10.0)[:9], 10, 4)
    with told("stores outside out, float32 [4]: 4 elements before its first"):
        rows_kernel[(2,)](torch.zeros(8)[4:], torch.arange(8.0), -4, 4)


def test_a_store_past_a_view_is_a_fault_though_the_memory_is_there() -> None:
    with told("memcheck: copy_kernel, program (1, 0, 0)"):
        copy_kernel[(2,)](torch.empty(10)[:6], torch.arange(8.0), 8, 4)


def test_a_store_into_the_gaps_of_a_view_is_a_fault() -> None:
    whole = torch.zeros(3, 8)
    rows_kernel[(3,)](whole[:, :4], torch.ones(12), 8, 4)
    assert whole.sum() == 12
    with told("stores outside out, float32 [3, 3] with strides [8, 1]: element 3 from its first, in a gap of the view"):
        rows_kernel[(1,)](whole[:, :3], torch.ones(12), 8, 4)


def test_two_programs_that_store_one_element_are_told() -> None:
    with told("stores out, float32 [11]: element ["):
        rows_kernel[(3,)](torch.zeros(11), torch.ones(12), 3, 4)


@jit
def neighbour_kernel(x, out, programs):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    tl.store(out + program, tl.load(x + (program + 1) % programs))
    tl.store(x + program, program.to(tl.float32))


def test_a_program_that_stores_what_another_loads_is_told() -> None:
    with told("racecheck: neighbour_kernel"):
        neighbour_kernel[(3,)](torch.zeros(3), torch.zeros(3), 3)


@jit
def shift_kernel(x, programs):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    tl.store(x + program, 1.0)
    tl.store(x + programs + program, tl.load(x + (program + 1) % programs))


def test_a_program_that_loads_what_another_stores_is_told() -> None:
    with told("unordered"):
        shift_kernel[(3,)](torch.zeros(6), 3)


@jit
def sum_kernel(  # type: ignore[no-untyped-def]
    out, parts, arrived, programs, BEFORE: tl.constexpr, AFTER: tl.constexpr, SEM: tl.constexpr, SCOPE: tl.constexpr
):
    """Whoever arrives last adds up what all have stored."""
    program, lanes = tl.program_id(0), tl.arange(0, 4)
    tl.store(parts + program * 4 + lanes, program + lanes)
    if BEFORE:
        tl.debug_barrier()
    last = tl.atomic_add(arrived, 1, sem=SEM, scope=SCOPE) == programs - 1
    if AFTER:
        tl.debug_barrier()
    if last:
        total = tl.zeros([4], tl.int32)
        for other in range(programs):
            total += tl.load(parts + other * 4 + lanes)
        tl.store(out + lanes, total)
        tl.store(arrived, 0)


def counted(*how: Any) -> Tensor:
    out, arrived = torch.empty(4, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    sum_kernel[(3,)](out, torch.empty(12, dtype=torch.int32), arrived, 3, *how)
    assert not arrived.any()
    return out


def test_an_atomic_between_barriers_orders_what_programs_store_and_load() -> None:
    assert counted(True, True, "acq_rel", "gpu").tolist() == [3, 6, 9, 12]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ((False, True, "acq_rel", "gpu"), "loads parts, int32 [12]: element ["),
        ((True, False, "acq_rel", "gpu"), "loads parts, int32 [12]: element ["),
        ((True, True, "relaxed", "gpu"), "loads parts, int32 [12]: element ["),
        ((True, True, "release", "gpu"), "loads parts, int32 [12]: element ["),
        ((True, True, "acquire", "gpu"), "loads parts, int32 [12]: element ["),
        ((True, True, "acq_rel", "cta"), "loads parts, int32 [12]: element ["),
    ],
)
def test_an_atomic_that_orders_less_is_told(how: tuple[Any, ...], words: str) -> None:
    with told(words):
        counted(*how)


@jit
def flag_kernel(out, value, flag, ATOMIC: tl.constexpr):  # type: ignore[no-untyped-def]
    """Each program adds to what those before it have handed on."""
    tl.debug_barrier()
    number = tl.atomic_add(flag, 0, sem="acquire")
    tl.debug_barrier()
    tl.store(out + tl.program_id(0), tl.load(value))
    tl.debug_barrier()
    tl.store(value, number + 1)
    tl.debug_barrier()
    if ATOMIC:
        tl.atomic_add(flag, 1, sem="release")
    else:
        tl.store(flag, number + 1)


def test_what_is_handed_on_from_one_to_the_next_is_ordered_by_a_release_and_an_acquire() -> None:
    out, value, flag = torch.zeros(3, dtype=torch.int32), *torch.zeros(2, 1, dtype=torch.int32)
    flag_kernel[(3,)](out, value, flag, True)
    assert sorted(out.tolist()) == [0, 1, 2]
    with told("changes atomically flag, int32 [1]: element [0], which program ("):
        flag_kernel[(3,)](out, value, flag, False)


@jit
def reversed_kernel(out, x, BARRIER: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, BLOCK)
    tl.store(x + lanes, lanes)
    if BARRIER:
        tl.debug_barrier()
    tl.store(out + lanes, tl.load(x + BLOCK - 1 - lanes))


def test_a_load_of_what_the_program_stored_needs_a_barrier() -> None:
    x, out = torch.zeros(2, 8, dtype=torch.int32)
    with told("loads x, int32 [8]: element [7], which it has stored itself with no barrier since"):
        reversed_kernel[(1,)](out, x, False, 8)
    reversed_kernel[(1,)](out, x, True, 8)
    assert out.tolist() == list(range(8))[::-1]


@jit
def twice_kernel(out, OFFSET: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, BLOCK)
    tl.store(out + lanes, 1)
    tl.store(out + OFFSET + lanes, lanes)


def test_a_second_store_by_other_threads_needs_a_barrier() -> None:
    out = torch.zeros(9, dtype=torch.int32)
    twice_kernel[(1,)](out, 0, 8)
    with told("stores out, int32 [9]: element [1], which it has stored itself with no barrier since"):
        twice_kernel[(1,)](out, 1, 8)


@jit
def scatter_kernel(out, index, values, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    lanes = tl.arange(0, BLOCK)
    tl.store(out + tl.load(index + lanes), tl.load(values + lanes))


def test_two_values_that_a_tile_stores_in_one_place_are_told() -> None:
    out, index = torch.zeros(4), torch.tensor([0, 2, 1, 2])
    scatter_kernel[(1,)](out, index, torch.tensor([5.0, 6.0, 7.0, 6.0]), 4)
    assert out.tolist() == [5, 7, 6, 0]
    with told("racecheck: scatter_kernel, program (0, 0, 0)"):
        scatter_kernel[(1,)](out, index, torch.tensor([5.0, 6.0, 7.0, 8.0]), 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_a_load_of_memory_that_nobody_wrote_is_told(dtype: torch.dtype) -> None:
    kept = torch.empty(2, 6, dtype=dtype)
    for made in (kept, torch.empty_like(kept), kept.new_empty(12), torch.empty_strided((12,), (1,), dtype=dtype)):
        with told("initcheck: copy_kernel, program ("):
            copy_kernel[(3,)](torch.zeros(12, dtype=dtype), made, 12, 4)
        made.view(-1)[:3] = 1
        copy_kernel[(1,)](torch.zeros(12, dtype=dtype), made, 3, 4)


@jit
def ticket_kernel(out, taken):  # type: ignore[no-untyped-def]
    tl.store(out + tl.atomic_add(taken, 1), tl.program_id(0))


def test_what_depends_on_the_order_of_programs_shows() -> None:
    out = torch.empty(6, dtype=torch.int32)
    ticket_kernel[(6,)](out, torch.zeros(1, dtype=torch.int32))
    assert sorted(out.tolist()) == list(range(6))
    assert out.tolist() == [x for x, _, _ in any_order("ticket_kernel", (6, 1, 1))] != list(range(6))
    assert any_order("any", (2, 1, 1)) == [(1, 0, 0), (0, 0, 0)]
    assert len(set(any_order("any", (2, 3, 4)))) == 24


def test_a_fault_that_somebody_caught_still_fails_its_test() -> None:
    run = plugin.pytest_runtest_call()
    next(run)
    with suppress(Fault):
        copy_kernel[(1,)](torch.zeros(4), torch.zeros(3), 4, 4)
    with pytest.raises(pytest.fail.Exception, match="memcheck: copy_kernel"):
        next(run)
    KEPT.clear()


def test_dummies_alone_may_store_in_one_slot() -> None:
    k, cache = torch.ones(3, 1, 32), torch.zeros(5, 2, 1, 32)
    store_kv(k, k, cache, cache.clone(), torch.tensor([8, 3, 8]))
    with told("racecheck: store_kv_kernel, program ("):
        store_kv(k, k, cache, cache.clone(), torch.tensor([7, 3, 7]))
