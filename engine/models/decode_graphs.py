"""Decode steps captured as CUDA graphs, one for each of a few numbers of rows, and replayed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Step = Callable[[int], Tensor]  # computes so many rows from what lies at fixed places, and returns their logits

CLOSE, APART, WIDE = 8, 256, 64  # sizes are 8 apart up to 256 rows, and 64 apart beyond
MOST = 1024


def bucket_sizes(most: int) -> tuple[int, ...]:
    """The numbers of rows to capture, so that a step of up to `most` finds one that is not much larger."""
    few = [n for n in (1, 2, 4) if n < most]
    top = min(most, MOST)
    close = range(CLOSE, min(top, APART) + CLOSE, CLOSE) if top > 4 else [top]
    return tuple(sorted({*few, *close, *range(APART + WIDE, top + WIDE, WIDE)}))


class DecodeGraphs:
    """Captures `step` for each of `sizes`. Where `device` is no GPU nothing is captured, and the step is computed.

    `off` says why nothing was captured on a GPU. All graphs share one pool of memory: only one runs at a time, and the
    largest, captured first, holds what the others need. A replay's logits are overwritten by the next one's.
    """

    def __init__(self, step: Step, sizes: tuple[int, ...], device: torch.device) -> None:
        self._step, self._device = step, device
        self.sizes: tuple[int, ...] = sizes
        self.off = ""
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def capture(self, report: Callable[[int, int], None]) -> None:
        """`report` hears how many are done, of how many. Raises what it raises; any other failure is told by `off`."""
        if self._device.type != "cuda":
            return
        sizes, self.sizes = self.sizes, ()
        report(0, len(sizes))
        try:
            self._refuse_waits(sizes[0])
            pool = torch.cuda.graph_pool_handle()
            for done, size in enumerate(reversed(sizes), 1):
                self._graphs[size] = self._captured(size, pool)
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

    def replay(self, size: int) -> Tensor:
        """The logits of all `size` rows."""
        if self._device.type != "cuda":
            return self._step(size)
        graph, logits = self._graphs[size]
        graph.replay()
        return logits

    def _refuse_waits(self, size: int) -> None:
        """A step that waits for the GPU cannot be captured. Told by a step that is only computed: a capture that fails
        half-way may leave a library in a state of its own."""
        self._step(size)  # kernels are compiled and workspaces taken, which may wait
        torch.cuda.synchronize(self._device)
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            self._step(size)
        finally:
            torch.cuda.set_sync_debug_mode(before)

    def _captured(self, size: int, pool: Any) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        self._step(size)  # what a kernel does when it first sees a size is not captured
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        # Other threads may use CUDA meanwhile (memory gauges, another engine).
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            logits = self._step(size)
        return graph, logits


def _reason(error: RuntimeError) -> str:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, torch.OutOfMemoryError):
        return "no memory is left for them"
    if "synchronizing" in first:
        return "a step of this model waits for the GPU half-way, which cannot be captured"
    return f"they could not be captured: {first}"
