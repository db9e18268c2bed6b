"""Decode steps captured as CUDA graphs, one for each of a few numbers of rows, and replayed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Step = Callable[[int], Tensor]  # computes so many rows from what lies at fixed places, and returns their logits


class DecodeGraphs:
    """Holds a step captured for each of `sizes`. Where `device` is no GPU nothing is, and the step is computed.

    `off` says why nothing was captured on a GPU. All graphs share one pool of memory: only one runs at a time, and the
    largest, captured first, holds what the others need. A replay's logits are overwritten by the next one's.
    """

    def __init__(self, sizes: tuple[int, ...], device: torch.device) -> None:
        self._device = device
        self.sizes: tuple[int, ...] = sizes
        self.off = ""
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def capture(self, step: Step, report: Callable[[int, int], None]) -> None:
        """`report` hears how many are done, of how many. Raises what it raises; any other failure is told by `off`."""
        if self._device.type != "cuda":
            return
        sizes, self.sizes = self.sizes, ()
        report(0, len(sizes))
        try:
            self._refuse_waits(step, sizes[0])
            pool = torch.cuda.graph_pool_handle()
            for done, size in enumerate(reversed(sizes), 1):
                self._graphs[size] = self._captured(step, size, pool)
                report(done, len(sizes))
        except RuntimeError as error:  # torch's own: what `report` raises is none
            self._graphs.clear()
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
        graph, logits = self._graphs[size]
        graph.replay()
        return logits

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

    def _captured(self, step: Step, size: int, pool: Any) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        step(size)  # what a kernel does when it first sees a size is not captured
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use CUDA meanwhile (memory gauges, another engine).
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            logits = step(size)
        return graph, logits


def _reason(error: BaseException) -> str:
    while error.__context__ is not None:  # ending a capture that failed fails too, and says less
        error = error.__context__
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, torch.OutOfMemoryError):
        return "no memory is left for them"
    if "synchronizing" in first:
        return "a step of this model waits for the GPU half-way, which cannot be captured"
    return f"they could not be captured: {first}"
