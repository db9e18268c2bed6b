"""What two cards exchange: by what they are linked, and how fast copies from one to the other and sums over both are.

It is what a model that is split over them waits for, twice a layer: such a model is measured beside the same on one
card. With one card there is nothing to measure, and the section says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor

from engine.bench.gpu.report import Bench, Table, columns
from engine.bench.gpu.sections.split import split
from engine.core.setup.card import card_of

MESSAGES = tuple(4096 << 2 * i for i in range(8))  # bytes, up to 64 MiB
TINY = MESSAGES[:2]
REPEATS = 20
NEEDED = 2  # cards


def parallel(bench: Bench) -> None:
    """Each pair of neighbours, the sum over all cards, and a model over two of them."""
    table = bench.table(
        "Between cards",
        columns("cards 12 | by 24 | bytes 12,d | copied GB/s 11.2f | summed GB/s 11.2f | a sum, µs 9.1f"),
    )
    devices = [torch.device("cpu")] * NEEDED if bench.rehearsal else _cards()
    if len(devices) < NEEDED:
        table.say(
            f"{'one card' if devices else 'no card'} is here, and what cards exchange needs two: nothing to measure"
        )
        return
    _exchange(bench, table, devices)
    split(bench, devices[0])


def _exchange(bench: Bench, table: Table, devices: Sequence[torch.device]) -> None:
    sizes = TINY if bench.rehearsal else MESSAGES
    for first, second in pairwise(devices):
        name = f"{first.index or 0} → {second.index or 0}"
        for size in sizes:
            x, y = (torch.zeros(size, dtype=torch.uint8, device=device) for device in (first, second))
            took = _seconds(lambda x=x, y=y: y.copy_(x), (first, second))  # type: ignore[misc]
            table.add(name, way(first, second), size, size / took / 1e9, None, None)
    summed = _summing(devices)
    if summed is None:
        table.say("no NCCL is in this torch: sums were not measured")
        return
    for size in sizes:
        parts = [torch.zeros(size // 2, dtype=torch.bfloat16, device=device) for device in devices]
        took = _seconds(lambda parts=parts: summed(parts), devices)  # type: ignore[misc]
        table.add(
            f"all {len(devices)}", "NCCL" if not bench.rehearsal else "", size, None, size / took / 1e9, 1e6 * took
        )


def way(first: torch.device, second: torch.device) -> str:
    """What links two cards, as NVML names it; "" where it does not tell."""
    one, other = card_of(first), card_of(second)
    return one.linked_by(other) if one is not None and other is not None else ""


def _cards() -> list[torch.device]:
    return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]


def _summing(devices: Sequence[torch.device]) -> Callable[[list[Tensor]], Any] | None:
    """What sums one tensor of each device into all of them; None where torch has no NCCL."""
    if devices[0].type != "cuda":
        return lambda parts: parts[0].add_(parts[1])
    nccl = torch.cuda.nccl
    return nccl.all_reduce if nccl.is_available([torch.zeros(1, device=device) for device in devices]) else None


def _seconds(do: Callable[[], Any], devices: Sequence[torch.device]) -> float:
    """Median of some calls, each until all devices are done."""

    def wait() -> None:
        for device in devices:
            if device.type == "cuda":
                torch.cuda.synchronize(device)

    took = []
    for _ in range(1 + REPEATS):
        wait()
        begun = time.perf_counter()
        do()
        wait()
        took.append(time.perf_counter() - begun)
    return median(took[1:])
