"""Times work on a device: a GPU by its own events, a CPU by the clock. What is timed is the same code on both."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Protocol, TypeVar

import torch

Do = Callable[[], Any]
T = TypeVar("T")
PATIENCE = 0.25  # seconds that the repeats of one measurement take, about
FEWEST, MOST = 5, 50  # repeats
FLUSHED = 256 << 20  # bytes read between repeats, at least: more than any cache of today holds


@dataclass(frozen=True, slots=True)
class Piece:
    """Something that a device did, a kernel or a copy; seconds of a clock of its own."""

    begun: float
    ended: float
    name: str


class Stopwatch(Protocol):
    """A device's clock. `cache` is how many bytes its last cache holds."""

    device: torch.device
    dtype: torch.dtype
    name: str
    cache: int

    @property
    def bandwidth(self) -> float:
        """Bytes a second that its memory copies, read and written."""
        ...

    @property
    def operations(self) -> float:
        """Operations a second of matrix products in `dtype`."""
        ...

    def seconds(self, do: Do) -> float:
        """The device's seconds for one call: median of some, with the cache flushed before each."""
        ...

    def captured(self, do: Do) -> Do:
        """A call that replays what `do` launched as one CUDA graph, where there are such."""
        ...

    def free(self) -> int:
        """Bytes of the device's memory that are free."""
        ...

    def wait(self) -> None:
        """Returns when the device has done all its work."""
        ...

    def pieces(self, begin: Do, window: float) -> list[Piece]:
        """What the device does within `window` seconds from when `begin` returns, whoever launches it. Nothing is to be
        timed in the process afterwards."""
        ...


class GpuStopwatch:
    """The current CUDA device's."""

    def __init__(self) -> None:
        self.device, self.dtype = torch.device("cuda", torch.cuda.current_device()), torch.bfloat16
        properties = torch.cuda.get_device_properties(self.device)
        self.name = properties.name
        self.cache = int(getattr(properties, "L2_cache_size", 0)) or 64 << 20
        self._spare = torch.rand(max(FLUSHED, 4 * self.cache) // 4, device=self.device)

    @cached_property
    def bandwidth(self) -> float:
        return copy_bandwidth(self, 1 << 30)

    @cached_property
    def operations(self) -> float:
        return matrix_rate(self, 8192)

    def seconds(self, do: Do) -> float:
        do()
        self.wait()
        once = max(self._timed(do, 1)[0], 1e-6)
        return median(self._timed(do, max(FEWEST, min(MOST, int(PATIENCE / once)))))

    def _timed(self, do: Do, repeats: int) -> list[float]:
        """The flush is a read, so that no written lines are left to be written back while the clock runs; it also
        keeps the device busy until the host has launched what is timed."""
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
        for begun, ended in pairs:
            self._spare.sum()
            begun.record()
            do()
            ended.record()
        self.wait()
        return [begun.elapsed_time(ended) / 1e3 for begun, ended in pairs]

    def captured(self, do: Do) -> Do:
        do()
        self.wait()
        graph = torch.cuda.CUDAGraph()
        # In inference mode as the engine's: what torch keeps for all captures is made by the first.
        with torch.inference_mode(), torch.cuda.graph(graph, capture_error_mode="thread_local"):
            do()
        return graph.replay

    def free(self) -> int:
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(self.device)[0])

    def wait(self) -> None:
        torch.cuda.synchronize(self.device)

    def pieces(self, begin: Do, window: float) -> list[Piece]:
        from torch.profiler import ProfilerActivity, profile

        # One profile, begun before: taken down, CUPTI crashed under CUDA graphs up to CUDA 12.6, and a second profile
        # soon after saw nothing (pytorch/pytorch#112507, pytorch/kineto#1554). What is left in place slows launches.
        os.environ["TEARDOWN_CUPTI"], os.environ["DISABLE_CUPTI_LAZY_REINIT"] = "0", "1"
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
            begin()
            time.sleep(window)
        return latest(_pieces(profiler, ("kernel", "gpu_memcpy", "gpu_memset")), window)


class CpuStopwatch:
    """A stand-in where there is no GPU, to walk through the same code: its figures say nothing of one."""

    def __init__(self) -> None:
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.name, self.cache = "CPU", 1 << 16

    @cached_property
    def bandwidth(self) -> float:
        return copy_bandwidth(self, 1 << 20)

    @cached_property
    def operations(self) -> float:
        return matrix_rate(self, 64)

    def seconds(self, do: Do) -> float:
        begun = time.perf_counter()
        do()
        return time.perf_counter() - begun

    def captured(self, do: Do) -> Do:
        return do

    def free(self) -> int:
        return 1 << 30

    def wait(self) -> None:
        pass

    def pieces(self, begin: Do, window: float) -> list[Piece]:
        """Of this thread's own operations, as a profiler sees no other's on a CPU."""
        from torch.profiler import ProfilerActivity, profile

        x = torch.ones(64, 64)
        with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
            begin()
            end = time.perf_counter() + min(window, 0.05)
            while time.perf_counter() < end:
                x @ x
        return latest(_pieces(profiler, ("cpu_op",)), window)


def one_after_another(watch: Stopwatch, sets: Sequence[T], do: Callable[[T], Any]) -> float:
    """Seconds of one call, of calls on each of the sets in turn, replayed as one graph: so that the host's launches do
    not count, and, where the sets exceed the cache together, no call finds its operands there."""

    def all_of_them() -> None:
        for operands in sets:
            do(operands)

    return watch.seconds(watch.captured(all_of_them)) / len(sets)


def sets_beyond_cache(watch: Stopwatch, size: float, most: int = 64) -> int:
    """How many sets of operands of `size` bytes are too many for the cache, four times over; at most `most`."""
    return max(1, min(most, -(-4 * watch.cache // max(1, int(size)))))


def copy_bandwidth(watch: Stopwatch, size: int) -> float:
    """Bytes a second, read and written, of a copy of `size` bytes on the device."""
    source = torch.randint(256, (size,), dtype=torch.uint8, device=watch.device)
    target = torch.empty_like(source)
    return 2 * size / watch.seconds(lambda: target.copy_(source))


def matrix_rate(watch: Stopwatch, size: int) -> float:
    """Operations a second of a product of random square matrices."""
    a, b = (torch.randn(size, size, device=watch.device, dtype=watch.dtype) for _ in range(2))
    return 2 * size**3 / watch.seconds(lambda: a @ b)


def idle_share(intervals: Iterable[tuple[float, float]], least: float = 0.0) -> float:
    """The share of the time from the first beginning to the last end in which none of the intervals ran, for at least
    so many seconds at a time."""
    idle = first = end = 0.0
    for i, (begun, ended) in enumerate(sorted(intervals)):
        if i == 0:
            first = end = begun
        if begun > end and begun - end >= least:
            idle += begun - end
        end = max(end, ended)
    return idle / (end - first) if end > first else 1.0


def latest(pieces: Sequence[Piece], window: float) -> list[Piece]:
    """Those that began within so many seconds of the last one's end."""
    end = max((piece.ended for piece in pieces), default=0.0)
    return [piece for piece in pieces if piece.begun >= end - window]


def _pieces(profiler: Any, kinds: tuple[str, ...]) -> list[Piece]:
    """The events of these categories, read from the trace that the profiler exports, whose form is a standard."""
    with tempfile.TemporaryDirectory(prefix="batchscope-") as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8", errors="replace"))["traceEvents"]
    found: list[Piece] = []
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in kinds:
            with suppress(KeyError, TypeError, ValueError):
                begun = float(event["ts"]) / 1e6
                found.append(Piece(begun, begun + float(event["dur"]) / 1e6, str(event.get("name", ""))))
    return found
