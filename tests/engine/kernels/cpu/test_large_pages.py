"""Tensors side by side in large pages."""

import gc
import mmap
import os
import subprocess
import sys
import time

import psutil
import pytest
import torch

from engine.kernels.cpu import library
from engine.kernels.cpu.large_pages import LINE, LargePages, Populating, zeros_in_large_pages

needs_compiler = pytest.mark.skipif(library.find_compiler() is None, reason="no C compiler")


def test_tensors_lie_side_by_side_each_on_a_line_of_its_own() -> None:
    room = LargePages(1 << 20)
    tensors = [room.zeros(shape, torch.float32) for shape in ((3, 5), (7,), (2, 0), (64, 64))]
    for i, tensor in enumerate(tensors):
        assert not tensor.any()
        tensor.fill_(i + 1)
    assert [float(t.sum()) for t in tensors] == [15, 14, 0, 4 * 64 * 64]
    assert all(t.data_ptr() % LINE == 0 for t in tensors if t.numel())
    assert [t.untyped_storage().nbytes() for t in tensors] == [60, 28, 0, 16384], "each is billed by itself"
    addresses = [t.data_ptr() for t in tensors if t.numel()]
    assert max(addresses) - min(addresses) < 1 << 20


def test_what_a_chunk_has_no_room_for_gets_its_own() -> None:
    room = LargePages(4096)
    small, large = room.zeros((1000,), torch.uint8), room.zeros((100_000,), torch.bfloat16)
    large.fill_(2)
    small.fill_(1)
    assert int(small.sum()) == 1000
    assert bool((large == 2).all())


def test_a_tensor_keeps_what_it_lies_in() -> None:
    kept = zeros_in_large_pages((4, 1024), torch.float32)[1:].fill_(3)
    gc.collect()
    others = [zeros_in_large_pages((4, 1024), torch.float32).fill_(i) for i in range(20)]
    assert bool((kept == 3).all())
    assert [int(x[0, 0]) for x in others] == list(range(20))


def resident_around(tensor: torch.Tensor) -> int:
    """Bytes of the mapping that a tensor begins in; those of the whole process may be taken from it meanwhile."""
    for each in psutil.Process().memory_maps(grouped=False):
        first, end = (int(address, 16) for address in each.addr.split("-"))
        if first <= tensor.data_ptr() < end:
            return each.rss
    raise AssertionError("it lies nowhere")


@needs_compiler
def test_memory_is_taken_before_a_step_needs_it() -> None:
    size = 32 << 20
    tensors = [zeros_in_large_pages((size,), torch.uint8), torch.zeros(3), zeros_in_large_pages((0,), torch.uint8)]
    before = resident_around(tensors[0])
    Populating(tensors).join()
    assert resident_around(tensors[0]) - before > 0.9 * size
    assert not tensors[0].any()


def until_threads(count: int) -> None:
    """Those that take only what nobody wants may be late to end."""
    deadline = time.monotonic() + 20
    while psutil.Process().num_threads() != count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@needs_compiler
def test_whoever_maps_memory_meanwhile_does_not_wait_for_a_processor() -> None:
    """All of the cores are wanted by others: who populates is not put aside in the midst of a page, which would keep
    the process from mapping memory."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        populating = Populating([zeros_in_large_pages((1 << 30,), torch.uint8)])
        longest = 0.0
        for _ in range(100):
            begun = time.perf_counter()
            mmap.mmap(-1, 1 << 20).close()
            longest = max(longest, time.perf_counter() - begun)
            time.sleep(0.002)
        populating.stop()
    finally:
        for each in busy:
            each.kill()
            each.wait()
    assert longest < 0.5


@needs_compiler
def test_it_stops_when_it_is_told_to_and_when_nobody_holds_it() -> None:
    tensors = [zeros_in_large_pages((1 << 30,), torch.uint8) for _ in range(2)]
    before = psutil.Process()
    memory, threads = before.memory_info().rss, before.num_threads()
    told, left = Populating(tensors), Populating(tensors)
    assert before.num_threads() == threads + 4, "each has one that waits for a moment that nobody wants"
    told.stop()
    told.stop()
    told.join()
    until_threads(threads + 2)
    del left
    until_threads(threads)
    assert before.memory_info().rss - memory < 1 << 30
