"""What ranks do together by torch's collectives: the same calls over gloo, of any processor, and over NCCL, of GPUs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from engine.parallel.board import Board
from engine.parallel.group.ranked import Group
from engine.parallel.group.spans import Event, HostEvent, Spans
from engine.parallel.group.watchdog import Watchdog
from engine.parallel.split import shares

OWN_WATCH = tuple(  # with which torch ends the process itself, without a word, or looks for a file that is gone
    f"TORCH_NCCL_{name}" for name in ("ASYNC_ERROR_HANDLING", "ENABLE_MONITORING", "DUMP_ON_TIMEOUT")
)


class Collective(Group):
    """Ranks on `device`, each on one of its own, that meet in the file `store`.

    Over gloo a call returns when it is done, and raises where another rank does not come. Over NCCL it is a kernel on
    the stream that computes, which spins until its peers come: a watchdog ends it after the timeout, or once a rank is
    known to be gone, and `check` then raises.
    """

    def __init__(
        self,
        board: Board,
        rank: int,
        backend: str,
        device: torch.device,
        timeout: float,
        store: Path,
        spans: type[Spans] = Spans,
    ) -> None:
        super().__init__(board, rank, "NCCL" if backend == "nccl" else "gloo")
        self._device = device
        self._watchdog: Watchdog | None = None
        self.capturable = backend == "nccl" or device.type == "cpu"  # of a CPU nothing is captured
        self.spans = spans(board, rank, self._event, later=device.type == "cuda" and rank > 0)
        where = dist.FileStore(str(store), board.ranks), rank, board.ranks
        if backend == "nccl":
            self._group = _nccl(*where, timeout)
            self._watchdog = Watchdog(timeout, lambda: board.broken, self._group.abort)
            self.largest(0.0, device)  # a communicator is made with its first call, which no graph may hold
        else:
            self._group = _gloo(*where, timeout)

    def begin(self, step: int) -> None:
        super().begin(step)
        self.spans.begin(step)

    def end(self) -> None:
        super().end()
        self._expect(self.spans.end())

    def check(self) -> None:
        if self._watchdog is not None and self._watchdog.bit:
            raise RuntimeError("the ranks no longer exchange: one of them did not come, or is gone")

    def settle(self, step: int) -> None:
        self.spans.settle(step)

    def close(self) -> None:
        self.spans.close()
        if self._watchdog is not None:
            self._watchdog.bite()

    def sum(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        with self._call(x.nbytes):
            _done(self._group.allreduce([x], _in_turn(dist.AllreduceOptions())))
        return x

    def broadcast(self, x: Tensor) -> None:
        """All have in x what rank 0 has in its own."""
        options = _in_turn(dist.BroadcastOptions())
        options.rootRank = 0
        with self._call(0 if self.rank else x.nbytes):
            _done(self._group.broadcast([x], options))

    def gather(self, x: Tensor, total: int) -> Tensor:
        widths = [end - begin for begin, end in (shares(total, rank, self.ranks) for rank in range(self.ranks))]
        mine = _filled(x, max(widths) - x.shape[-1])
        parts = [] if self.rank else [torch.empty_like(mine) for _ in widths]
        options = _in_turn(dist.GatherOptions())
        options.rootRank = 0
        with self._call(x.nbytes):
            _done(self._group.gather([] if self.rank else [parts], [mine], options))
        return x if self.rank else torch.cat([part[..., :width] for part, width in zip(parts, widths)], -1)

    def share(self, x: Tensor) -> Tensor:
        begin, end = shares(x.shape[1], self.rank, self.ranks)
        return x[:, begin:end]

    def sum_share(self, x: Tensor) -> Tensor:
        return self.share(self.sum(x)).clone()  # the sum of all rows is given back

    def rows(self, x: Tensor, rows: int) -> Tensor:
        sizes = [end - begin for begin, end in (shares(rows, rank, self.ranks) for rank in range(self.ranks))]
        mine = _filled(x, 0, max(sizes) - x.shape[1])
        parts = [torch.empty_like(mine) for _ in sizes]
        with self._call(x.nbytes):
            self._group.allgather([parts], [mine]).wait()
        return torch.cat([part[:, :size] for part, size in zip(parts, sizes)], 1)

    def send(self, x: Tensor, to: int) -> None:
        """To one other rank, which receives it. What computes next does so once x may be written to again."""
        x = x.contiguous() if self._watchdog is not None else x.cpu().contiguous()  # of what gloo sends to one rank
        with self._call(x.nbytes):
            self._group.send([x], to, 0).wait()

    def receive(self, x: Tensor, giver: int) -> None:
        """x has what one other rank sends, of its shape and dtype."""
        there = x if self._watchdog is not None else torch.empty_like(x, device="cpu")
        with self._awaited():
            self._group.recv([there], giver, 0).wait()
        if there is not x:
            x.copy_(there)

    @contextmanager
    def _call(self, sent: int) -> Iterator[None]:
        with self._awaited(), self.spans.call(sent):
            yield

    @contextmanager
    def _awaited(self) -> Iterator[None]:
        self.board.waits(self.rank, time.monotonic())
        yield
        if self._watchdog is None:
            self.board.waits(self.rank, 0)
        elif not (self.within or torch.cuda.is_current_stream_capturing()):
            event = self._event()
            event.record()
            self._expect(event)

    def _event(self) -> Event:
        if self._device.type != "cuda":
            return HostEvent()
        event: Any = torch.cuda.Event(enable_timing=True, external=True)  # `external`: each replay records it anew
        made: Event = event
        return made

    def _expect(self, event: Event) -> None:
        if self._watchdog is not None:
            self._watchdog.expect(event)


def _in_turn(options: Any) -> Any:
    """Of a call over NCCL: a kernel on the stream that computes, with no other stream to wait for; as torch's own calls
    that are not asynchronous."""
    options.asyncOp = False
    return options


def _done(work: Any) -> None:
    """Where a call came back before it was done, or its kernel ran beside the stream that computes."""
    if work is not None:
        work.wait()


def _filled(x: Tensor, columns: int, rows: int = 0) -> Tensor:
    """With so many more: what ranks hand over must be of one size."""
    return nn.functional.pad(x, (0, columns, 0, rows)) if columns or rows else x.contiguous()


def _gloo(store: dist.Store, rank: int, ranks: int, timeout: float) -> Any:
    made: Any = dist.ProcessGroupGloo  # its stubs know little of it
    options = made._Options()
    options._devices = [made.create_device(hostname="127.0.0.1")]  # nobody else can reach it
    options._timeout, options._threads = timedelta(seconds=timeout), 1
    return made(store, rank, ranks, options)


def _nccl(store: dist.Store, rank: int, ranks: int, timeout: float) -> Any:
    for name in OWN_WATCH:
        os.environ[name] = "0"
    made: Any = dist.ProcessGroupNCCL
    options = made.Options()
    options._timeout = timedelta(seconds=timeout)
    return made(store, rank, ranks, options)
