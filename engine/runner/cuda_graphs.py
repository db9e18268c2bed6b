"""Steps captured as CUDA graphs, one for each of a few sizes, and replayed."""

import contextlib
import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.kernels.dependent_launch import step_of
from engine.memory.allocator import release_references
from engine.parallel.group.spans import Calls, Spans


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

    `wanted` are the sizes to capture, `sizes` those that can be replayed, `off` why there are none on a GPU. Only one
    graph runs at a time, and what a replay leaves lies in memory that all share: the next one overwrites it. The step
    is told with each call: it may belong to whoever holds the graphs, and they would hold each other. `spans` hear of
    the calls to other ranks in each step that is replayed.
    """

    def __init__(self, sizes: tuple[int, ...], device: torch.device, spans: Spans | None = None) -> None:
        self.device, self.wanted, self._spans = device, sizes, spans
        self._calls: dict[int, Calls] = {}
        self.sizes = () if device.type == "cuda" else sizes
        self.off = ""
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._left: dict[int, Drawn] = {}

    def size_for(self, count: int) -> int:
        """The smallest size that can be replayed and holds so many; 0 where there is none."""
        return next((size for size in self.sizes if size >= count), 0)

    def replay(self, step: Step, size: int) -> Drawn:
        """What a step of that size leaves; `step` is what was captured."""
        if self.device.type != "cuda":
            return step(size)
        if self._spans is not None:
            self._spans.again(self._calls[size])
        self._graphs[size].replay()
        return self._left[size]

    def dependent(self, step: Step) -> Step:
        """The step, its kernels launched as its size asks for. Those of a split model never depend on each other: what
        ranks exchange runs on streams of its own, and no two cards have tried it."""

        def of_its_size(size: int) -> Drawn:
            with step_of(size):
                return step(size)

        return step if self._spans is not None else of_its_size

    def refuse_waits(self, step: Step) -> None:
        """A step that waits for the GPU cannot be captured: raises RuntimeError. Told by steps that are only computed:
        a capture that fails half-way may leave a library in a state of its own. Of the largest, which is captured
        first, and the smallest: some wait for what only many rows have."""
        sizes = sorted({self.wanted[-1], self.wanted[0]}, reverse=True)
        for size in sizes:
            step(size)  # kernels are compiled and workspaces taken, which may wait
        torch.cuda.synchronize(self.device)
        before = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(action="ignore"):  # that the mode is a prototype
            torch.cuda.set_sync_debug_mode("error")  # of the whole process: another thread that waits meanwhile fails
        try:
            for size in sizes:
                step(size)
        finally:
            torch.cuda.set_sync_debug_mode(before)

    def capture(self, step: Step, size: int, pool: Any) -> None:
        """Captures a step of that size, in a pool of memory."""
        step(size)  # what a kernel does when it first sees a size is not captured
        torch.cuda.synchronize(self.device)
        if self._spans is not None:
            self._spans.take()
        graph = self._graphs[size] = torch.cuda.CUDAGraph()
        stream = capture_stream(self.device)
        # Other threads may use CUDA meanwhile (memory gauges, another engine).
        with torch.cuda.graph(graph, pool=pool, stream=stream, capture_error_mode="thread_local"):
            left = step(size)
        if self._spans is not None:
            self._calls[size] = self._spans.take()
        # Kept as tensors, each graph's logits would stay in the pool for good: of 256 rows 1.3 GB in all.
        self._left[size] = Drawn(*map(unowned, left))

    def forget(self) -> None:
        """Gives all graphs up."""
        for graph in self._graphs.values():
            graph.reset()
        self._graphs.clear()
        self._left.clear()


def together(do: Callable[[], None], any_rank: Callable[[bool], bool]) -> None:
    """Does it, as other ranks do at once. Raises RuntimeError where it did that here, or on one of them."""
    try:
        do()
    except RuntimeError:
        any_rank(True)
        raise
    if any_rank(False):
        raise RuntimeError("another rank could not capture them")


def capture(
    sets: Sequence[tuple[StepGraphs, Step]], report: Callable[[int, int], None], any_rank: Callable[[bool], bool] = bool
) -> None:
    """Captures sets of one device in their order, each of its step, in one pool of memory: the largest size of each
    set comes first, and holds what the others need. `report` hears how many are done, of how many. Raises what it
    raises; any other failure is told by `off`: the set's, and of those before it, whose memory it shares. Of a split
    model all ranks capture the same sizes in the same order, or none: `any_rank` tells each whether something is so on
    any of them, and is called by all at once."""
    sets = [(each, each.dependent(step)) for each, step in sets if each.wanted]
    if not sets or sets[0][0].device.type != "cuda":
        return
    device, total, done = sets[0][0].device, sum(len(each.wanted) for each, _ in sets), 0
    report(0, total)
    before, pool, sharing = torch.cuda.current_stream(device), None, list[StepGraphs]()
    for each, step in sets:
        sharing.append(each)
        try:
            together(partial(each.refuse_waits, step), any_rank)
            pool = pool or torch.cuda.graph_pool_handle()
            for number, size in enumerate(reversed(each.wanted), done + 1):
                together(partial(each.capture, step, size, pool), any_rank)
                report(number, total)
        except BaseException as error:
            torch.cuda.set_stream(before)  # a capture that cannot be ended leaves its own in place
            for other in sharing:  # at once, the one under way too: they share their memory
                other.forget()
            if not isinstance(error, RuntimeError):  # torch's own: what `report` raises is none
                raise
            torch.cuda.synchronize(device)  # raises again where the GPU itself has failed
            release_references(error)  # its frames hold the step's tensors
            if pool is not None:  # else nothing was captured yet
                _give_up(device, pool)
            for other in sharing:
                other.off = _reason(error)
            pool = None
            sharing.clear()
        done += len(each.wanted)
    for each in sharing:
        each.sizes = each.wanted


def _give_up(device: torch.device, pool: Any) -> None:
    """Returns the memory of graphs that are forgotten. Where a capture failed, torch keeps the pool for good, and up to
    2.12 its allocator goes on as if it were under way (pytorch #190348, #180395): both are ended here."""
    index = device.index or 0
    with contextlib.suppress(AttributeError, RuntimeError):  # it was ended
        torch._C._cuda_endAllocateToPool(index, pool)
    torch.cuda.empty_cache()
    with contextlib.suppress(AttributeError, RuntimeError, TypeError):
        left = torch.cuda.memory_snapshot(pool) if pool is not None else []
        if left and not any(segment["active_size"] for segment in left):  # else torch has let go of it itself
            torch._C._cuda_releasePool(index, pool)
            torch.cuda.empty_cache()


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
