"""A replica on Ray's side: an engine in a process of its own, beside the actor that answers for it."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

from ray import serve

from engine.config.specs import EngineConfig, InvalidInput, ModelSpec
from engine.config.submission import Submission
from engine.core.child.process import SILENCE, EngineProcess
from engine.trace.records import Record, encode

GLANCE = 0.05  # seconds between looks at whether requests are over
Encoded = tuple[str, bytes]  # a record as a run's file has it


class Elsewhere(RuntimeError):
    """What was asked is another replica's affair: that is gone, or not here."""


class Hosted:
    """The deployment. Every call names the replica that it is for (`at`)."""

    def __init__(self, spec: ModelSpec, config: EngineConfig, threads: int | None, most_threads: int | None) -> None:
        self._name = serve.get_replica_context().replica_id.unique_id
        self._engine = EngineProcess(spec, config, threads=threads, most_threads=most_threads)

    def check_health(self) -> None:
        """Ray asks now and then, and makes another in place of one that raises."""
        if not self._engine.alive or self._engine.silence > SILENCE:
            raise RuntimeError(self._engine.error or f"the engine said nothing for {self._engine.silence:.0f} s")

    async def name(self) -> str:
        return self._name

    async def process(self, at: str) -> int:
        self._check(at)
        return os.getpid()

    async def watch(self, at: str) -> AsyncIterator[list[Encoded]]:
        """Its trace from the beginning, all that is new at once: once a step. Ends with the engine, and the replica
        with it."""
        self._check(at)
        loop, changed, trace, position = asyncio.get_running_loop(), asyncio.Event(), self._engine.trace, 0
        asked = False

        def wake(record: Record) -> None:
            nonlocal asked
            if not asked:
                asked = True
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(changed.set)

        trace.listen(wake)
        while True:
            changed.clear()
            asked = False
            if new := trace.since(position):
                position += len(new)
                trace.forget(position)
                yield [encode(record) for record in new]
            elif not self._engine.alive:
                os._exit(1)  # a replica without its engine is none: Ray makes another
            else:
                await changed.wait()

    async def generate(self, at: str, asked: Sequence[tuple[Submission, float]]) -> AsyncIterator[tuple[str, str]]:
        """Submits them, each with its age in seconds; goes on until they are over, so that Ray counts a replica's load
        by its open calls."""
        self._check(at)
        now = time.perf_counter()
        submissions = [replace(submission, time=now - age) for submission, age in asked]
        try:
            streams = await asyncio.to_thread(self._engine.submit_many, submissions)
        except InvalidInput as error:
            yield "refused", str(error)
            return
        yield "taken", ""
        while not all(stream.done for stream in streams):
            await asyncio.sleep(GLANCE)

    async def cancel(self, at: str, requests: list[int] | None) -> None:
        self._check(at)
        self._engine.cancel(requests)

    async def ask(self, at: str, verb: str, argument: Any) -> tuple[str, Any]:
        """`encode`, `decode` or `pieces`."""
        self._check(at)
        try:
            return "told", await asyncio.to_thread(getattr(self._engine, verb), argument)
        except InvalidInput as error:
            return "refused", str(error)

    async def die(self, at: str) -> None:
        """As a crash would."""
        self._check(at)
        self._engine.kill()

    def _check(self, at: str) -> None:
        if at != self._name:
            raise Elsewhere(f"this is replica {self._name}, not {at}")
