"""Decode steps captured as CUDA graphs, one for each of a few numbers of rows, and replayed."""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

Step = Callable[[int], Tensor]  # computes so many rows from what lies at fixed places, and returns their logits


@cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One for the process: cuBLAS keeps a workspace of up to 32 MiB for every stream that it ever saw."""
    return torch.cuda.Stream(device)


class DecodeGraphs:
    """Holds a step captured for each of some numbers of rows. Where `device` is no GPU nothing is captured: the step is
    computed, for the same numbers of rows.

    `sizes` are those that can be replayed, `off` why there are none on a GPU. All graphs share one pool of memory, in
    which the largest, captured first, holds what the others need, and one place for their logits: only one runs at a
    time, and a replay's logits are overwritten by the next one's.
    """

    def __init__(self, sizes: tuple[int, ...], device: torch.device) -> None:
        self._device, self._wanted = device, sizes
        self.sizes = () if device.type == "cuda" else sizes
        self.off = ""
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._logits = torch.empty(0)

    def capture(self, step: Step, report: Callable[[int, int], None]) -> None:
        """`report` hears how many are done, of how many. Raises what it raises; any other failure is told by `off`."""
        if self._device.type != "cuda":
            return
        sizes = self._wanted
        report(0, len(sizes))
        before = torch.cuda.current_stream(self._device)
        try:
            self._refuse_waits(step, sizes[0])
            logits = step(sizes[-1])
            self._logits = torch.empty_like(logits, memory_format=torch.contiguous_format)
            del logits
            pool = torch.cuda.graph_pool_handle()
            for done, size in enumerate(reversed(sizes), 1):
                self._capture(step, size, pool)
                report(done, len(sizes))
        except BaseException as error:
            torch.cuda.set_stream(before)  # a capture that cannot be ended leaves its own in place
            for graph in self._graphs.values():  # at once, that under way too: they share their memory
                graph.reset()
            self._graphs.clear()
            self._logits = torch.empty(0)
            if not isinstance(error, RuntimeError):  # torch's own: what `report` raises is none
                raise
            torch.cuda.synchronize(self._device)  # raises again where the GPU itself has failed
            torch.cuda.empty_cache()
            self.off = _reason(error)
        else:
            self.sizes = sizes

    def size_for(self, rows: int) -> int:
        """The smallest captured number of rows that holds so many; 0 where there is none."""
        return next((size for size in self.sizes if size >= rows), 0)

    def replay(self, step: Step, size: int) -> Tensor:
        """The logits of all `size` rows; `step` is what was captured."""
        if self._device.type != "cuda":
            return step(size)
        self._graphs[size].replay()
        return self._logits[:size]

    def _refuse_waits(self, step: Step, size: int) -> None:
        """A step that waits for the GPU cannot be captured. Told by a step that is only computed: a capture that fails
        half-way may leave a library in a state of its own."""
        step(size)  # kernels are compiled and workspaces taken, which may wait
        torch.cuda.synchronize(self._device)
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(action="ignore"):  # that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        try:
            step(size)
        finally:
            torch.cuda.set_sync_debug_mode(before)

    def _capture(self, step: Step, size: int, pool: Any) -> None:
        step(size)  # what a kernel does when it first sees a size is not captured
        torch.cuda.synchronize(self._device)
        graph = self._graphs[size] = torch.cuda.CUDAGraph()
        stream = capture_stream(self._device)
        # Other threads may use CUDA meanwhile (memory gauges, another engine).
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            # Copied, as each graph's own would stay in the pool for good: of 256 rows 1.3 GB in all, to spare 1 % of
            # the step's reads.
            self._logits[:size].copy_(step(size))


def _reason(error: BaseException) -> str:
    while error.__context__ is not None:  # ending a capture that failed fails too, and says less
        error = error.__context__
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, torch.OutOfMemoryError):
        return "no memory is left for them"
    if "synchronizing" in first:
        return "a step of this model waits for the GPU half-way, which cannot be captured"
    return f"they could not be captured: {first}"
