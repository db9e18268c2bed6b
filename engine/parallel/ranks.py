"""The other ranks of a model, as rank 0 has them: processes that compute the same steps over their part of it."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.config.specs import EngineConfig, InvalidInput, ModelSpec
from engine.jobs import spawn
from engine.memory.layer_kv import LayerKV
from engine.parallel.board import Board, RankTimes
from engine.parallel.channel import Channel
from engine.parallel.link import CAPTURE, HOST, LEAVE, MAKE, MEASURE, PLAN, QUIT, ROOM, TOLD, Link
from engine.parallel.wire import Sender
from engine.scheduler.plan import Row, StepPlan

PATIENCE = 5.0  # seconds that a rank has to end by itself
REMEMBERED = 1000  # steps
GLANCE = 0.05  # seconds between looks at whether a load was cancelled
DYING = 1.0  # seconds in which a rank that is gone for the others is gone for the system too


class Mail(Protocol):
    """Rank 0's end of `engine.parallel.mail`, which needs kernels."""

    def post(self, plan: bytes) -> bool: ...

    def ring(self) -> None: ...

    def times(self, step: int) -> RankTimes | None: ...


class RankLost(RuntimeError):
    """A rank died, hangs or failed: what it held is gone, and the others cannot go on without."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a process needs to be a rank of several: which it is, what they share, how they meet, and the folder in
    which they find each other; the device on which it computes."""

    rank: int
    board: Board
    backend: str
    store: Path
    device: str = "cpu"


@dataclass(slots=True)
class Other:
    """A rank in a process of its own."""

    rank: int
    child: spawn.Child
    link: Link

    @property
    def words(self) -> str:
        return f"rank {self.rank} (process {self.child.pid})"

    def ended(self, timeout: float = 0.0) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.child.wait(timeout)
        return None


class Ranks:
    """Starts the others of `spec.parallel`, each of which loads its part of the model in `folder` to its own of the
    `devices`, of which the first is this process's; `ready` waits for them. `close` ends them, and so does whoever
    forgets this object, or the end of this process, however it comes.

    `spent`: of the last steps, seconds that rank 0 took to tell them of each and to hear what it took them. Calls raise
    RankLost where one is gone. `on_lost` is called, on a thread of its own, when one ends by itself.
    """

    def __init__(self, spec: ModelSpec, folder: Path, backend: str, threads: int, devices: Sequence[str]) -> None:
        count = spec.parallel.ranks
        self.size, self.backend, self.timeout = count, backend, spec.parallel.timeout
        self.parallel = spec.parallel
        self.board = Board(count)
        self.others: list[Other] = []
        self.weight_bytes: list[int] = []
        self.devices = tuple(devices)
        self.layer_kv: list[list[LayerKV]] = []  # of each, as `LoadedModel` has it
        self.stages: list[dict[str, Any]] = []  # what the stages of a pipeline tell of themselves
        self._channel: Channel | None = None
        self.on_lost: Callable[[], None] = lambda: None
        self._store = Path(tempfile.mkdtemp(prefix="batchscope-ranks-"))
        self._send: Sender | None = None
        self.mail: Mail | None = None  # a faster way for plans than a socket
        self._step = -1
        self.spent: deque[float] = deque(maxlen=REMEMBERED)
        self.closing = self.gone = False  # `gone`: one of them is
        self._wake, woken = socket.socketpair()
        self._end = weakref.finalize(self, _end, self.others, self._wake, self.board, self._store)
        try:
            for rank in range(1, count):
                ours, theirs = socket.socketpair()
                with theirs:
                    child = spawn.start("engine.core.rank:serve", theirs)
                self.others.append(other := Other(rank, child, Link(ours)))
                order = {"spec": asdict(spec), "folder": str(folder), "rank": rank, "backend": backend}
                order["device"] = devices[rank]
                other.link.tell(TOLD, **order, store=str(self._store / "meet"), threads=threads)
                other.link.send_descriptor(self.board.descriptor)
        except BaseException:
            self.close()
            raise
        watched = weakref.ref(self), woken, [other.link.end for other in self.others], self.board
        self._watcher = threading.Thread(target=_watch, args=watched, name="engine-ranks", daemon=True)
        self._watcher.start()

    @property
    def place(self) -> Place:
        return Place(0, self.board, self.backend, self._store / "meet", self.devices[0])

    def ready(self, glance: Callable[[], None]) -> None:
        """Waits until all have loaded; `glance` is called meanwhile and may raise. Raises InvalidInput for what one of
        them refuses."""
        for other in self.others:
            while not select.select([other.link.end], [], [], GLANCE)[0]:
                glance()
            told = self._answer(other)
            self.weight_bytes.append(int(told["weight_bytes"]))
            self.layer_kv.append([LayerKV(*kv) for kv in told["layer_kv"]])
            if told["stage"] is not None:
                self.stages.append(told["stage"])
        shutil.rmtree(self._store, ignore_errors=True)

    def make_runner(
        self, config: EngineConfig, blocks: int, channel: Channel | None = None, captured: Sequence[int] = ()
    ) -> None:
        """Each makes a runner as rank 0 does, in the place of the one it has; those of a pipeline over a `channel`,
        those on GPUs for steps with prompts that are `captured` of so many tokens."""
        self._send, self._channel = Sender(config.max_running), channel
        lane = channel.lane if channel is not None else 0
        order = {"config": asdict(config), "blocks": blocks, "lane": lane, "captured": captured}
        self._all(MAKE, json.dumps(order).encode())
        if channel is not None:
            for other in self.others:
                other.link.send_descriptor(channel.descriptor)
            channel.handed_on()
        for other in self.others:
            self._answer(other)

    def room(self) -> list[tuple[int, bool]]:
        """Of each one's GPU the bytes that are free while it has no runner, and whether it drives a display."""
        self._all(ROOM)
        told = [self._answer(other) for other in self.others]
        return [(int(answer["free"]), bool(answer["display"])) for answer in told]

    def capture(self) -> None:
        """Each captures what rank 0 captures meanwhile."""
        self._all(CAPTURE)

    def keep_host_blocks(self, count: int) -> None:
        self._all(HOST, str(count).encode())
        for other in self.others:
            self._answer(other)

    def measure(self, what: str, **how: int) -> None:
        """Each measures what rank 0 measures meanwhile: the "interconnect", or of its roof "copies", or "products" of
        these sizes."""
        self._all(MEASURE, json.dumps({"what": what, **how}).encode())

    def step(self, plan: StepPlan, there: Callable[[Row], bool] | None = None) -> int:
        """All of them compute this step; returns its number. `there`: whether a row's last token is where it was
        sampled, on the device, and is not to be sent."""
        assert self._send is not None
        begun = time.perf_counter()
        self.check()
        self._step += 1
        words = self._send(plan, there)
        if self.mail is None or not self._posted(words):
            self._all(PLAN, words)
        self.spent.append(time.perf_counter() - begun)
        return self._step

    def times(self, step: int) -> RankTimes | None:
        """What a step took each, that rank 0 is done with; None where one does not tell."""
        begun = time.perf_counter()
        if self.parallel.pipeline > 1 and self._channel is None:
            told = self.board.stage_times(step)
        else:
            told = (self._channel or self.mail or self.board).times(step)
        self.spent[-1] += time.perf_counter() - begun
        return told

    def meant(self, error: BaseException) -> BaseException:
        """What an error of rank 0 is, where it may be that another is gone: RankLost then, in words."""
        told = isinstance(error, (RankLost, InvalidInput)) or not isinstance(error, Exception)
        return error if told or not (self.gone or self.board.broken) else self.lost(error)

    def leave(self, error: Exception) -> Exception:
        """After an error kept rank 0 from its step: all leave it, and stand where they stood before. What the error is
        then: that which one of them met first, or RankLost where they cannot go on."""
        if self.mail is None or self.gone or self.board.broken:
            return self.lost(error)
        self.board.stop(0)
        try:
            self._all(LEAVE)
            told = [(other, self._answer(other, self.timeout)) for other in self.others]
        except (RankLost, InvalidInput) as lost:
            return lost
        if self.board.broken:
            return self.lost(error)
        self.board.resume()
        short = [f"rank {other.rank}: {words}" for other, answer in told if (words := answer["short"])]
        return MemoryError("; ".join(short)) if short else error

    def lost(self, error: BaseException) -> RankLost:
        """What an error means that kept rank 0 from its step: in words, which rank it was."""
        until = time.monotonic() + DYING
        while True:
            for other in self.others:
                code = other.ended()
                if code is not None:
                    return RankLost(
                        f"{other.words} {how_ended(code)}{self._said(other)}: the model it held a part of is gone"
                    )
            if time.monotonic() > until:
                break
            time.sleep(GLANCE)
        for other in self.others:
            if other.rank in (self.board.late() or self.board.stuck(0.9 * self.timeout)):
                other.child.kill()
                return RankLost(
                    f"{other.words} did not come within {self.timeout:g} s: it hangs, and the model with it"
                )
        return RankLost(f"a step failed on rank 0, and the other ranks cannot go on: {type(error).__name__}: {error}")

    def check(self) -> None:
        """Raises RankLost where one has ended."""
        if self.gone and not self.closing:
            raise self.lost(EOFError())

    def close(self) -> None:
        """Ends them and waits for that. Idempotent."""
        self.closing = True
        self._end()
        if hasattr(self, "_watcher") and threading.current_thread() is not self._watcher:
            self._watcher.join()

    def _all(self, letter: bytes, data: bytes = b"") -> None:
        try:
            for other in self.others:
                other.link.send(letter, data)
            if self.mail is not None:
                self.mail.ring()
        except OSError as error:
            raise self.lost(error) from error

    def _posted(self, plan: bytes) -> bool:
        assert self.mail is not None
        try:
            return self.mail.post(plan)
        except OSError as error:
            raise self.lost(error) from error

    def _answer(self, other: Other, timeout: float | None = None) -> dict[str, Any]:
        if not select.select([other.link.end], [], [], timeout)[0]:
            self.board.give_up()
            raise self.lost(TimeoutError())
        try:
            _, data = other.link.receive()
        except (OSError, EOFError) as error:
            raise self.lost(error) from error
        told: dict[str, Any] = json.loads(data)
        if "refused" in told:
            raise InvalidInput(told["refused"])
        if "failed" in told:
            raise RankLost(f"{other.words} failed: {told['failed']}")
        return told

    def _said(self, other: Other) -> str:
        """The last words of one that has ended."""
        with contextlib.suppress(OSError, EOFError, ValueError):
            if select.select([other.link.end], [], [], 0)[0]:
                return f" ({json.loads(other.link.receive()[1])['failed']})"
        return ""


def _end(others: list[Other], wake: socket.socket, board: Board, store: Path) -> None:
    """Ends all ranks, and the thread that watches them."""
    wake.close()
    board.give_up()
    for other in others:
        with contextlib.suppress(OSError):
            other.link.send(QUIT)
            other.link.end.shutdown(socket.SHUT_RDWR)
    until = time.monotonic() + PATIENCE
    for other in others:
        if other.ended(max(0.0, until - time.monotonic())) is None:
            other.child.kill()
            other.child.wait()
        other.link.end.close()
    board.close()
    shutil.rmtree(store, ignore_errors=True)


def _watch(weak: weakref.ref[Ranks], woken: socket.socket, ends: list[socket.socket], board: Board) -> None:
    """The watcher's thread: whoever waits for a rank that is gone fails at once. It ends with the first that goes."""
    gone = select.poll()
    for end in (woken, *ends):
        gone.register(end, 0)
    first = {descriptor for descriptor, _ in gone.poll()}
    ranks = weak()
    if woken.fileno() not in first and ranks is not None and not ranks.closing:
        ranks.gone = True
        board.give_up()
        ranks.on_lost()
    woken.close()


def how_ended(code: int) -> str:
    """What a process's exit code says, in words."""
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with code {code}"


def no_ranks_here() -> str:
    """Why this system has none, "" where it has."""
    return "" if hasattr(os, "memfd_create") else "ranks share memory as Linux has it"
