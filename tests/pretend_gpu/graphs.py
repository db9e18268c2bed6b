"""Captured graphs of a pretend GPU: a list of work, done again at each replay over the same memory."""

from __future__ import annotations

import weakref
from typing import Any

from tests.pretend_gpu import streams
from tests.pretend_gpu.memory import JUNK, Memory, Pool
from tests.pretend_gpu.streams import Work


class Handle(tuple):  # type: ignore[type-arg]
    """Names a pool, which lasts as long as its name or a graph of it."""

    pool: Pool


def end_allocate_to_pool(device: int, pool: tuple[int, int]) -> None:
    """As torch's, which takes nothing else and is refused where no capture is under way."""
    if not isinstance(device, int) or not isinstance(pool, tuple):
        raise TypeError(f"_cuda_endAllocateToPool(): incompatible function arguments: {device!r}, {pool!r}")
    raise RuntimeError("endAllocatePool: not currently recording to mempool_id")


def graph_pool_handle() -> Handle:
    pool = Pool()
    handle = Handle((0, id(pool)))
    handle.pool = pool
    return handle


class Graph:
    """Memory that was taken while it was captured, and that nobody owns any more, is overwritten by every replay of a
    graph of its pool; memory that it reads from elsewhere must still be somebody's."""

    def __init__(self, keep_graph: bool = False) -> None:
        self.nodes: list[Work] = []
        self.spoiled = False
        self.shared: Pool | None = None
        self._outside: dict[int, weakref.ref[Memory]] = {}
        self._kept: set[int] = set()  # pieces of the pool that were owned all the while
        self._before: list[Memory] = []
        self._ended = False

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_: Any) -> None:
        stream = streams.current_stream()
        if stream.default:
            raise RuntimeError("CUDA graphs must be captured on a non-default stream.")
        if pool is None:
            pool = graph_pool_handle()
        self._handle, self.shared, stream.graph = pool, pool.pool, self
        self._before = [memory for piece, _ in self.shared.pieces if (memory := piece()) is not None]
        self._stream = stream
        streams.capturing(self)

    def capture_end(self) -> None:
        self._stream.graph = None
        streams.capturing(None)
        before, self._before = [weakref.ref(memory) for memory in self._before], []
        self._kept = {memory.address for each in before if (memory := each()) is not None}
        if self.spoiled:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        self._ended = True

    def add(self, work: Work) -> None:
        self.nodes.append(work)

    def uses(self, memory: Memory) -> None:
        """Of what is captured."""
        if memory.taken_by is None or memory.taken_by() is not self:
            self._outside[memory.address] = weakref.ref(memory)

    def replay(self) -> None:
        streams.refuse_in_capture()
        assert self._ended, "a graph that was not captured, or was reset, is replayed"
        gone = [address for address, memory in self._outside.items() if memory() is None]
        assert not gone, f"a graph is replayed that names memory which nobody owns any more: {len(gone)} pieces"
        streams.current_stream().put(self._run, "a graph")

    def _run(self) -> None:
        assert self.shared is not None
        for piece, held in self.shared.pieces:
            memory = piece()
            mine = memory is not None and memory.taken_by is not None and memory.taken_by() is self
            if mine or held.ctypes.data not in self._kept:
                held.fill(JUNK)
        for node in self.nodes:
            try:
                node.do()
            except Exception as error:
                error.add_note(f"in a graph: {node.what}")
                raise

    def reset(self) -> None:
        self.nodes.clear()
        self._outside.clear()
        self._ended, self.shared, self._handle = False, None, None

    def pool(self) -> Any:
        return self._handle
