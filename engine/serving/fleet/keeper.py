"""Keeps a fleet's places manned: notices ends, moves requests on, makes engines again."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from engine.config.specs import InvalidInput
from engine.core.child.process import SILENCE
from engine.core.face import EngineFace
from engine.jobs.progress import LoadCancelled
from engine.serving.fleet.replica import Replica
from engine.serving.fleet.traffic import Traffic

log = logging.getLogger("engine")
Make = Callable[[int, threading.Event], EngineFace]  # the engine of a place; ends with LoadCancelled where it is set
GLANCE = 0.25  # seconds between looks at all replicas
TRIES = 3  # in a row, to make an engine
PAUSE = 1.0  # seconds before another, doubled each time
KEPT = 256  # records of a replica's own trace


class Keeper:
    """One thread that moves requests, and one for each engine that is being made."""

    def __init__(self, make: Make, replicas: int) -> None:
        self._make = make
        self._asked: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._cancelled = threading.Event()
        self._makers: dict[int, threading.Thread] = {}
        self._failed: dict[int, Exception] = {}
        self._replicas = replicas
        self._quiet: dict[Replica, float] = {}  # seconds; a halt of this process, as of a frozen container, is no time
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)

    def made(self, place: int) -> EngineFace:
        return self._make(place, self._cancelled)

    def start(self, traffic: Traffic, wanted: int) -> None:
        """Returns when `wanted` places have an engine. Raises what making one raised."""
        self._traffic = traffic
        self._thread.start()
        for place in range(1, self._replicas):
            self._begin(place, tries=1 if place < wanted else TRIES)
        while len(self._traffic.living) < wanted:
            for place, error in list(self._failed.items()):
                if place < wanted:
                    raise error
            time.sleep(0.02)

    def close(self) -> None:
        self._cancelled.set()
        if self._thread.is_alive():
            self._asked.put(None)
            self._thread.join()
        for maker in list(self._makers.values()):
            maker.join()

    # From any thread, without waiting.

    def lost(self, replica: Replica) -> None:
        self._asked.put(lambda: self._lost(replica))

    def drop(self, replica: Replica, local: int) -> None:
        """Ends a request of a replica that nobody waits for."""
        self._asked.put(lambda: replica.engine.cancel([local], replica.engine.trace))

    # Its own thread.

    def _run(self) -> None:
        while True:
            with contextlib.suppress(Empty):
                asked = self._asked.get(timeout=GLANCE)
                if asked is None:
                    return
                asked()
                continue
            self._look()

    def _look(self) -> None:
        for replica in list(self._traffic.replicas):
            if replica is None:
                continue
            engine: Any = replica.engine
            if not engine.alive:
                self._lost(replica)
            elif replica.silent and self._long_quiet(replica):
                log.warning("%s said nothing for %.0f s and is ended", replica.name, SILENCE)
                engine.kill()
            elif (old := len(engine.trace.records) - KEPT) > KEPT:
                engine.trace.forget(old)

    def _long_quiet(self, replica: Replica) -> bool:
        self._quiet = {r: seconds for r, seconds in self._quiet.items() if r.silent}
        self._quiet[replica] = self._quiet.get(replica, 0.0) + GLANCE
        return self._quiet[replica] > SILENCE

    def _lost(self, replica: Replica) -> None:
        if replica.gone:
            return
        self._traffic.bury(replica)
        self._traffic.place_parked()
        self._begin(replica.place)
        replica.engine.close()

    def _begin(self, place: int, tries: int = TRIES) -> None:
        if self._cancelled.is_set():
            return
        name = f"fleet-{place}"
        self._makers[place] = threading.Thread(target=self._bring, args=(place, tries), name=name, daemon=True)
        self._makers[place].start()

    # The thread of a place without an engine.

    def _bring(self, place: int, tries: int) -> None:
        pause, error = PAUSE, None
        for left in reversed(range(tries)):
            try:
                engine = self.made(place)
            except LoadCancelled:
                return
            except Exception as failed:
                error = failed
                log.warning("replica %d could not be made: %s", place, failed)
                if left and (self._cancelled.wait(pause) or isinstance(failed, InvalidInput)):
                    break
                pause *= 2
                continue
            if self._cancelled.is_set():
                engine.close()
            else:
                self._traffic.arrived(place, engine)
            return
        if error is not None:
            self._failed[place] = error
            if not self._traffic.living and len(self._failed) == self._replicas:
                self._traffic.given_up(f"no replica is left: {error}")
