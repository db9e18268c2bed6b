"""The prefill worker, as the engine that decodes has it."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import subprocess
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from engine.config.specs import EngineConfig, InvalidInput, ModelSpec
from engine.jobs import spawn
from engine.kernels.cpu.large_pages import SharedPages
from engine.parallel.link import PLAN, QUIT, TOLD, Link
from engine.parallel.ranks import DYING, RankLost, how_ended
from engine.parallel.wire import Sender
from engine.scheduler.plan import StepPlan

GLANCE = 0.05  # seconds between looks at whether a load was cancelled
PATIENCE = 5.0  # seconds that it has to end by itself


class Computed(NamedTuple):
    """When the worker began and ended what it was sent, by `time.perf_counter`; or the `error` that it met, `short` of
    memory perhaps."""

    begun: float = 0.0
    ended: float = 0.0
    error: str = ""
    short: bool = False


class PrefillWorker:
    """Starts it over `blocks` blocks in `pages`; `ready` waits until it has loaded `spec`. `close` ends it, and so does
    whoever forgets this object, or the end of this process, however it comes. Calls raise RankLost where it is gone.
    `weight_bytes`: what it holds."""

    def __init__(self, spec: ModelSpec, config: EngineConfig, blocks: int, pages: SharedPages, threads: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._child = spawn.start("engine.core.prefill.worker:serve", theirs)
        self._link = Link(ours)
        self._send = Sender(config.max_running)
        self.weight_bytes = 0
        self.close = weakref.finalize(self, _end, self._child, self._link)
        self.on_lost: Callable[[], None] = lambda: None  # called, on a thread of its own, when it ends by itself
        order = {"spec": asdict(spec), "config": asdict(config), "blocks": blocks, "threads": threads}
        try:
            self._link.tell(TOLD, **order, size=pages.size)
            self._link.send_descriptor(pages.descriptor)
        except OSError as error:
            raise self._lost() from error
        watched = weakref.ref(self), ours
        threading.Thread(target=_watch, args=watched, name="engine-prefill-watch", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._child.pid

    def ready(self, glance: Callable[[], None], layout: Sequence[str]) -> None:
        """`glance` is called meanwhile and may raise; who leaves ends the worker. Raises InvalidInput for what it
        refuses, and where its blocks have another `layout`."""
        try:
            while not self._told(GLANCE):
                glance()
            told = self._answer()
        except BaseException:
            self.kill()
            raise
        self.weight_bytes = int(told["weight_bytes"])
        if told["layout"] != list(layout):
            self.kill()
            theirs, ours = told["layout"][0], layout[0]
            raise InvalidInput(
                f"mode='disaggregated': its other process keeps K and V as {theirs}, this one as {ours}; load the "
                "model again, so that both read and compile the same"
            )

    def compute(self, plan: StepPlan) -> None:
        """Begins with the plan's rows, and says so by `computed`."""
        try:
            self._link.send(PLAN, self._send(plan))
        except OSError as error:
            raise self._lost() from error

    def computed(self, timeout: float = 0.0) -> Computed | None:
        """What it was sent last, once it is done; None where that takes longer than the `timeout`."""
        return Computed(**self._answer()) if self._told(timeout) else None

    @property
    def alive(self) -> bool:
        """Whether nobody has closed it."""
        return bool(self.close.alive)

    def kill(self) -> None:
        """Ends it in the midst of whatever it computes."""
        self._child.kill()
        self.close()

    def check(self) -> None:
        """Raises RankLost where it has ended by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self.alive and self._child.wait(DYING) is not None:
                raise self._lost()

    def _told(self, timeout: float) -> bool:
        ready = select.poll()
        ready.register(self._link.end, select.POLLIN)
        return bool(ready.poll(1e3 * timeout))

    def _answer(self) -> dict[str, Any]:
        try:
            told: dict[str, Any] = json.loads(self._link.receive()[1])
        except (OSError, EOFError) as error:
            raise self._lost() from error
        if "refused" in told:
            raise InvalidInput(told["refused"])
        if "failed" in told:
            raise RankLost(f"the prefill worker (process {self._child.pid}) failed: {told['failed']}")
        return told

    def _lost(self) -> RankLost:
        how = "ended"
        with contextlib.suppress(subprocess.TimeoutExpired):
            how = how_ended(self._child.wait(DYING))
        return RankLost(f"the prefill worker (process {self._child.pid}) {how}: prompts cannot be computed")


def _watch(weak: weakref.ref[PrefillWorker], end: socket.socket) -> None:
    """The watcher's thread: an engine that is idle hears of its worker's end too."""
    gone = select.poll()
    with contextlib.suppress(OSError, ValueError):
        gone.register(end, 0)
        gone.poll()
    worker = weak()
    if worker is not None and worker.alive:
        worker.on_lost()


def _end(child: spawn.Child, link: Link) -> None:
    with contextlib.suppress(OSError):
        link.send(QUIT)
        link.end.shutdown(socket.SHUT_RDWR)
    try:
        child.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    link.end.close()
