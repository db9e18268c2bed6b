"""Steps captured as CUDA graphs, one for each of a few sizes, and replayed."""

import warnings
from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Drawn(NamedTuple):
    """What a step leaves: logits `[rows, vocabulary]`, and int32 `[2, rows]`, the tokens drawn from them and the bits
    of their log-probabilities in float32."""

    logits: Tensor
    words: Tensor


Step = Callable[[int], Drawn]  # computes a step of some size from what lies at fixed places


@cache
def capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One for the process: cuBLAS keeps a workspace of up to 32 MiB for every stream that it ever saw."""
    return torch.cuda.Stream(device)


class StepGraphs:
    """Holds a step captured for each of some sizes. Where `device` is no GPU nothing is captured: the step is computed,
    for the same sizes.

    `sizes` are those that can be replayed, `off` why there are none on a GPU. Only one graph runs at a time, and what a
    replay leaves lies in the memory that all share: it is overwritten by the next one.
    """

    def __init__(self, step: Step, sizes: tuple[int, ...], device: torch.device) -> None:
        self._step, self._device, self._wanted = step, device, sizes
        self.sizes = () if device.type == "cuda" else sizes
        self.off = ""
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._left: dict[int, Drawn] = {}

    def size_for(self, count: int) -> int:
        """The smallest size that can be replayed and holds so many; 0 where there is none."""
        return next((size for size in self.sizes if size >= count), 0)

    def replay(self, size: int) -> Drawn:
        """What a step of that size leaves."""
        if self._device.type != "cuda":
            return self._step(size)
        self._graphs[size].replay()
        return self._left[size]

    def capture(self, report: Callable[[int, int], None]) -> None:
        """`report` hears how many are done, of how many. Raises what it raises; any other failure is told by `off`."""
        if self._device.type != "cuda" or not self._wanted:
            return
        sizes = self._wanted
        report(0, len(sizes))
        before = torch.cuda.current_stream(self._device)
        try:
            self._refuse_waits(sizes[0])
            pool = torch.cuda.graph_pool_handle()
            for done, size in enumerate(reversed(sizes), 1):  # the largest holds what the others need
                self._capture(size, pool)
                report(done, len(sizes))
        except BaseException as error:
            torch.cuda.set_stream(before)  # a capture that cannot be ended leaves its own in place
            for graph in self._graphs.values():  # at once, that under way too: they share their memory
                graph.reset()
            self._graphs.clear()
            self._left.clear()
            if not isinstance(error, RuntimeError):  # torch's own: what `report` raises is none
                raise
            torch.cuda.synchronize(self._device)  # raises again where the GPU itself has failed
            torch.cuda.empty_cache()
            self.off = _reason(error)
        else:
            self.sizes = sizes

    def _refuse_waits(self, size: int) -> None:
        """A step that waits for the GPU cannot be captured. Told by a step that is only computed: a capture that fails
        half-way may leave a library in a state of its own."""
        self._step(size)  # kernels are compiled and workspaces taken, which may wait
        torch.cuda.synchronize(self._device)
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(action="ignore"):  # that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        try:
            self._step(size)
        finally:
            torch.cuda.set_sync_debug_mode(before)

    def _capture(self, size: int, pool: Any) -> None:
        self._step(size)  # what a kernel does when it first sees a size is not captured
        torch.cuda.synchronize(self._device)
        graph = self._graphs[size] = torch.cuda.CUDAGraph()
        stream = capture_stream(self._device)
        # Other threads may use CUDA meanwhile (memory gauges, another engine).
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            left = self._step(size)
        # Kept as tensors, each graph's logits would stay in the pool for good: of 256 rows 1.3 GB in all.
        self._left[size] = Drawn(*map(unowned, left))


def unowned(tensor: Tensor) -> Tensor:
    """The tensor's values where they lie, without a share in their memory: for who knows how long they stay. On a CPU
    the tensor itself."""
    if tensor.device.type != "cuda":
        return tensor
    there = SimpleNamespace(__cuda_array_interface__=array_interface(tensor))
    return torch.as_tensor(there, device=tensor.device).view(tensor.dtype)


def array_interface(tensor: Tensor) -> dict[str, Any]:
    """Where a tensor of up to 8 bytes an element lies, as NumPy's and Numba's array interfaces say it: as integers,
    since they know no bfloat16."""
    strides = tuple(stride * tensor.itemsize for stride in tensor.stride())
    typestr = f"<i{tensor.itemsize}"
    return {"shape": tuple(tensor.shape), "strides": strides, "typestr": typestr, "data": (tensor.data_ptr(), False),
            "version": 3}  # fmt: skip


def _reason(error: BaseException) -> str:
    while error.__context__ is not None:  # ending a capture that failed fails too, and says less
        error = error.__context__
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if isinstance(error, torch.OutOfMemoryError):
        return "no memory is left for them"
    if "synchronizing" in first:
        return "a step of this model waits for the GPU half-way, which cannot be captured"
    return f"they could not be captured: {first}"
