"""A lane's run: one workload through one lane, once. Races and sweeps are made of lane runs on one track."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Event
from typing import TYPE_CHECKING

from engine.compare.host import EngineHost
from engine.compare.lane import Lane
from engine.compare.remote import Server
from engine.config.checks import InvalidInput, check
from engine.config.specs import EngineConfig
from engine.core.face import EngineFace
from engine.core.machine.others import OthersMeter
from engine.core.run import Run
from engine.jobs.progress import LoadCancelled, LoadProgress
from engine.trace.records import Ended, FinishReason
from engine.trace.trace import Trace
from engine.workloads.workload import Workload

if TYPE_CHECKING:
    from engine.compare.remote.player import ServerPlayer

DEFAULT_KV_TOKENS = 8192
DISTURBED = 0.1
"""Share of the CPU that other programs took, from which a run is not to be trusted. An engine that computes on every
core waits in each step for the core that was taken from it, and so loses this share of its speed or more: from a tenth
on, that is as much as the differences between lanes that a race is run to see."""
GLANCE = 0.02  # seconds between looks at whether a run is over, was cancelled or lost its engine
REHEARSED_PROMPTS, REHEARSED_TOKENS = 16, 8


@dataclass(frozen=True, slots=True)
class _OfLane:
    lane: int
    repeat: int


@dataclass(frozen=True, slots=True)
class LaneLoading(_OfLane):
    """A lane's model is being loaded, off the clock."""

    progress: LoadProgress


@dataclass(frozen=True, slots=True)
class LaneStarted(_OfLane):
    """A lane is under way; `run.trace` grows."""

    run: Run


@dataclass(frozen=True, slots=True)
class LaneFinished(_OfLane):
    """`others` as in `LaneRun`."""

    trace: Trace
    others: float | None = None


@dataclass(frozen=True, slots=True)
class LaneFailed(_OfLane):
    """A lane could not be played, or not to the end; `error` is for people."""

    error: str


LaneEvent = LaneLoading | LaneStarted | LaneFinished | LaneFailed
Tell = Callable[[LaneEvent], None]


@dataclass(frozen=True, slots=True)
class LaneRun(_OfLane):
    """What became of one run. `trace` holds what was recorded, also where it was cut short; `error` is for people.
    `others`: the share of the CPU, from 0 to 1, that other programs took meanwhile; None where nobody knows."""

    trace: Trace | None = None
    error: str = ""
    cancelled: bool = False
    others: float | None = None

    @property
    def disturbed(self) -> bool:
        return self.others is not None and self.others >= DISTURBED

    @property
    def finished(self) -> bool:
        return self.trace is not None and not self.error and not self.cancelled


class Track:
    """Plays lane runs on engines of one host, all with the same bytes of KV memory.

    These are `kv_memory`, or `kv_tokens` tokens of the first model that is loaded; with neither, each engine sizes its
    own from what is free. `tell` hears events on the thread that plays. Setting `cancelled` ends the run under way and
    its load.
    """

    def __init__(
        self, host: EngineHost, tell: Tell, cancelled: Event, kv_tokens: int | None, kv_memory: int | None = None
    ) -> None:
        self._host, self._tell, self._cancelled = host, tell, cancelled
        self._kv_tokens = kv_tokens
        self.kv_memory = kv_memory
        self._engine: EngineFace | None = None
        self._rehearsed: set[tuple[EngineConfig, int]] = set()
        self._servers: dict[Server, ServerPlayer] = {}
        self._greeted: set[Server] = set()

    def close(self) -> None:
        """Lets go of the servers; the host stays open."""
        for player in self._servers.values():
            player.close()

    def play(self, index: int, repeat: int, lane: Lane, workload: Workload) -> LaneRun:
        """One run, told about as lane `index`. Never raises for what goes wrong in it."""
        trace: Trace | None = None
        try:
            engine = self._open(index, repeat, lane) if lane.server is None else self._greet(index, repeat, lane.server)
            if not self._rehearse(engine, lane, workload):
                return LaneRun(index, repeat, cancelled=True)
            meter = OthersMeter()
            run = self._start(engine, lane, workload)
            trace = run.trace
            self._tell(LaneStarted(index, repeat, run))
            if not self._finish(run, engine):
                return LaneRun(index, repeat, trace, cancelled=True)
            error, others = _failure(trace), meter.read() if lane.server is None else None  # a server is one of them
            if not error:
                self._tell(LaneFinished(index, repeat, trace, others))
                return LaneRun(index, repeat, trace, others=others)
        except LoadCancelled:
            return LaneRun(index, repeat, cancelled=True)
        except Exception as failure:  # the lane says so in its place, and the others are played
            error = _words(failure)
        self._tell(LaneFailed(index, repeat, error))
        return LaneRun(index, repeat, trace, error)

    def _open(self, index: int, repeat: int, lane: Lane) -> EngineFace:
        config = replace(lane.config, kv_memory=self.kv_memory)
        engine = self._host.open(
            lane.spec, config, lambda progress: self._tell(LaneLoading(index, repeat, progress)), self._cancelled
        )
        if self._cancelled.is_set():
            raise LoadCancelled("the comparison was cancelled")
        if self.kv_memory is None and self._kv_tokens is not None:
            self.kv_memory = engine.card.kv_memory(self._kv_tokens, config)
        return engine

    def _greet(self, index: int, repeat: int, server: Server) -> ServerPlayer:
        """A server that was asked what it can do, off the clock."""
        from engine.compare.remote.player import ServerPlayer

        if server not in self._servers:
            self._tell(LaneLoading(index, repeat, LoadProgress(f"asking {server.place} what it can do")))
            self._servers[server] = ServerPlayer(server, self._cancelled)
        return self._servers[server]

    def _rehearse(self, engine: EngineFace | ServerPlayer, lane: Lane, workload: Workload) -> bool:
        """Plays the workload's beginning off the clock when an engine meets a config for the first time, so that what
        is made on first use is in no lane's time. False when it was cancelled."""
        if lane.server is not None:
            if lane.server in self._greeted:
                return True
            self._greeted.add(lane.server)
        elif isinstance(engine, EngineFace):
            if engine is not self._engine:
                self._engine, self._rehearsed = engine, set()
            if (lane.config, lane.beams) in self._rehearsed:
                return True
            self._rehearsed.add((lane.config, lane.beams))
        few = workload.arrivals[: min(lane.config.slots, REHEARSED_PROMPTS)]
        arrivals = tuple(
            replace(a, time=0.0, params=a.params.with_(max_tokens=min(a.params.max_tokens, REHEARSED_TOKENS)))
            for a in few
        )
        return self._finish(self._start(engine, lane, replace(workload, arrivals=arrivals, concurrency=None)), engine)

    def _start(self, engine: EngineFace | ServerPlayer, lane: Lane, workload: Workload) -> Run:
        return engine.run(lane.plays(workload), replace(lane.config, kv_memory=self.kv_memory))

    def _finish(self, run: Run, engine: EngineFace | ServerPlayer) -> bool:
        """Waits for the end of the run: True when it was not cancelled. Raises what else stopped it early."""
        over = stopping = False
        while not over:
            over = run.wait(GLANCE)
            if not engine.alive:
                raise RuntimeError(engine.error or "the engine is gone")
            if self._cancelled.is_set() and not over and not stopping:
                stopping = True
                run.cancel()
        run.result(timeout=0)
        return not stopping


def check_runs(workload: Workload, repeats: int, kv_tokens: int | None, kv_memory: int | None) -> None:
    """Raises InvalidInput for what no comparison can be made of."""
    if not len(workload):
        raise InvalidInput(f"workload {workload.name!r} has no prompts: add one")
    for name, value in (("repeats", repeats), ("kv_tokens", kv_tokens), ("kv_memory", kv_memory)):
        check(value is None or value >= 1, name, value, "must be at least 1")
    if kv_tokens is not None and kv_memory is not None:
        raise InvalidInput(f"kv_tokens={kv_tokens} and kv_memory={kv_memory}: give one of them")


def _failure(trace: Trace) -> str:
    """Why no request of a run came to its end; "" where one did."""
    why = ""
    for ended in (r for r in trace.records if isinstance(r, Ended)):
        if ended.reason is not FinishReason.ERROR:
            return ""
        why = why or ended.error
    return why


def _words(error: Exception) -> str:
    """An error for people, on one line."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return f"out of memory: {text or 'the model and its KV cache do not fit'}"
    return text if isinstance(error, (ValueError, RuntimeError)) and text else f"{type(error).__name__}: {text}"
