"""A fleet's requests on their way: where each is, where it goes next, and what is told of it."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from engine.config.specs import InvalidInput
from engine.config.submission import Submission
from engine.core.child.process import EngineDied
from engine.core.face import EngineFace
from engine.core.stream import Cancel, StreamRouter, Ticket
from engine.serving.fleet.flight import Flight, chained
from engine.serving.fleet.replica import COUNTS, Replica, numbering
from engine.serving.fleet.router import Candidate, choose
from engine.trace.records import (
    Ended,
    FinishReason,
    Header,
    Notice,
    PromptScored,
    Record,
    Step,
    StepStarted,
    Submitted,
    Telemetry,
    freeze,
)
from engine.trace.thoughts import begins_amid
from engine.trace.trace import Trace

ROUTES = 256  # of the newest requests that it is told where they went


class Routed(NamedTuple):
    """Where a request went, and why; `moves` is how often it had gone on before. `time` in seconds of the trace."""

    time: float
    request: int
    place: int
    why: str
    moves: int


class Traffic:
    """Sends flights to the replicas, and writes the fleet's trace from theirs; safe from any thread. `one` is the
    header of each replica's trace. `lost` and `drop` tell the keeper of a replica that is gone, and of a request there
    that nobody waits for; `over` hears why there is no replica any more."""

    def __init__(self, one: Header, replicas: int, trace: Trace) -> None:
        self.lock = threading.RLock()
        self.trace, self._one = trace, one
        self.replicas: list[Replica | None] = [None] * replicas
        self.flights: dict[int, Flight] = {}
        self.parked: deque[Flight] = deque()
        self.routes: deque[Routed] = deque(maxlen=ROUTES)
        self.deaths = 0
        self.lost: Callable[[Replica], None] = lambda replica: None
        self.drop: Callable[[Replica, int], None] = lambda replica, local: None
        self.over: Callable[[str], None] = lambda error: None
        self._start = time.perf_counter()
        self._number, self._step_number, self._unseeded = numbering(), numbering(), 0
        self._chains: dict[int, tuple[int, ...]] = {}
        self._router = StreamRouter(trace)
        self._absent = dict.fromkeys(COUNTS, 0) | {"free_blocks": one.blocks}

    @property
    def living(self) -> list[Replica]:
        return [r for r in self.replicas if r is not None and not r.gone and r.engine.alive]

    def taken(self, one: Submission, ids: list[int], now: float, cancel: Cancel) -> Flight:
        params, number, sent = one.params, self._number(), one.time if one.time is not None else now
        if params.seed is None:  # as an engine would give it
            self._unseeded += 1
            params = params.with_(seed=(self._one.config.seed << 32) + self._unseeded)
        ticket = Ticket(number, sent - self._start, len(ids), params.branches)
        stream = self._router.open(ticket, cancel)
        text = one.prompt if isinstance(one.prompt, str) else None
        chat = [dict(part) for part in one.prompt if isinstance(part, Mapping)] if text is None else []
        about = one.params, params, one.label, sent, stream
        flight = Flight(number, ids, text, tuple(chat), *about)
        if self._one.config.prefix_caching:
            flight.chain = self._chains[number] = chained(ids, self._one.config.block_size, params.adapter)
        self.flights[number] = flight
        return flight

    def place(self, flights: Sequence[Flight], refuse: bool = False) -> None:
        """Sends each where it goes best; those that nobody can take now wait. With `refuse`, raises InvalidInput for
        what an engine does not take; else that ends as an error."""
        groups: dict[Replica, list[Flight]] = {}
        with self.lock:
            for flight in flights:
                if flight.cancelled:
                    self._end(flight, FinishReason.CANCELLED)
                elif (replica := self._route(flight)) is not None:
                    groups.setdefault(replica, []).append(flight)
                else:
                    self.parked.append(flight)
        for replica, group in groups.items():
            try:
                replica.engine.submit_many([flight.submission(time.perf_counter()) for flight in group])
            except (InvalidInput, EngineDied) as error:
                if not replica.engine.alive:
                    self.lost(replica)  # they go on when its end is known
                elif refuse:
                    with self.lock:
                        for flight in group:
                            self._forget(flight)
                    raise
                else:
                    with self.lock:
                        for flight in group:
                            self._end(flight, FinishReason.ERROR, str(error))

    def _route(self, flight: Flight) -> Replica | None:
        living, size = self.living, self._one.config.block_size
        living = [replica for replica in living if not replica.silent] or living
        if not living:
            return None
        known = [
            Candidate(
                r.place, r.open, r.counts["waiting"], r.slots, r.counts["free_blocks"] + r.counts["cached_blocks"],
                size * r.holdings.found(flight.chain),
            )
            for r in living
        ]  # fmt: skip
        place, why = choose(known)
        replica = next(r for r in living if r.place == place)
        flight.replica, replica.flights[flight.number] = replica, flight
        why = f"goes on there: {why}" if flight.moves else why
        self.routes.append(Routed(time.perf_counter() - self._start, flight.number, place, why, flight.moves))
        return replica

    def cancel(self, flight: Flight) -> None:
        with self.lock:
            flight.cancelled = True
            replica, local = flight.replica, flight.local
            if replica is None and flight.number in self.flights:
                self._end(flight, FinishReason.CANCELLED)
        if replica is not None and local >= 0:
            replica.engine.cancel([local], replica.engine.trace)

    def _end(self, flight: Flight, reason: FinishReason, error: str = "") -> None:
        """Ends what is left of it. Under the lock."""
        self._tell(flight, "")
        now = time.perf_counter() - self._start
        for sample in range(flight.stream.samples):
            if sample not in flight.stream.ended:
                self.trace.append(Ended(now, flight.number, reason, "", error, sample))
        self._forget(flight)

    def _tell(self, flight: Flight, text: str) -> None:
        """Its submission, once; `text` as the model sees it."""
        if not flight.told:
            flight.told = True
            ids = freeze(np.array(flight.prompt, np.int32))
            text, came = flight.text if flight.text is not None else text, flight.time - self._start
            about = flight.asked, flight.messages, flight.label
            self.trace.append(Submitted(came, flight.number, text, ids, *about))

    def _forget(self, flight: Flight) -> None:
        self.flights.pop(flight.number, None)
        self._chains.pop(flight.number, None)
        self._router.streams.pop(flight.number, None)
        if flight.replica is not None:
            flight.replica.flights.pop(flight.number, None)

    def end_all(self, reason: FinishReason, error: str) -> None:
        with self.lock:
            self.parked.clear()
            for flight in list(self.flights.values()):
                self._end(flight, reason, error)

    # What the keeper tells.

    def arrived(self, place: int, engine: EngineFace) -> None:
        """A place has its engine."""
        with self.lock:
            replica = Replica(place, engine, self._step_number)
            replica.offset = time.perf_counter() - self._start
            again = self.deaths > 0
            self.replicas[place] = replica
            engine.trace.listen(lambda record: self._hear(replica, record))
            if again:
                self._notice("info", f"{replica.name} is there again")
        if not engine.alive:
            self.lost(replica)
        self.place_parked()

    def place_parked(self) -> None:
        with self.lock:
            if not self.parked or not self.living:
                return
            flights, self.parked = list(self.parked), deque()
        self.place(flights)

    def bury(self, replica: Replica) -> None:
        """A replica is gone: what it had waits for another, and its blocks are free. Once for each."""
        with self.lock:
            if replica.gone:
                return
            replica.gone, self.replicas[replica.place] = True, None
            self.deaths += 1
            now, moving = time.perf_counter() - self._start, list(replica.flights.values())
            self.trace.append(replica.lost(now, self._others(replica)))
            going = f"; its {len(moving)} requests go on at another" if moving else ""
            self._notice("warning", f"{replica.name} is gone: {replica.engine.error}{going}")
            for flight in moving:
                if flight.moved():
                    self.parked.append(flight)
                else:
                    died = f"{flight.stalls} replicas died while it was computed, and no token came of it"
                    self._end(flight, FinishReason.ERROR, died)
            replica.flights = {}

    def given_up(self, error: str) -> None:
        """No engine is left, and none can be made."""
        with self.lock:
            self.over(error)
            self._notice("error", error)
            self.end_all(FinishReason.ERROR, error)
            self.trace.complete = True

    def _notice(self, level: str, text: str) -> None:
        self.trace.append(Notice(time.perf_counter() - self._start, level, text))

    # Records, on the threads that they arrive on.

    def _others(self, replica: Replica) -> dict[str, int]:
        others = [self._absent if r is None else r.counts for r in self.replicas[: replica.place]]
        others += [self._absent if r is None else r.counts for r in self.replicas[replica.place + 1 :]]
        return {name: sum([counts[name] for counts in others]) for name in COUNTS}

    def _hear(self, replica: Replica, record: Record) -> None:
        with self.lock:
            if replica.gone:
                return
            match record:
                case Step():
                    self.trace.append(replica.step(record, self._others(replica), self._chains))
                case StepStarted():
                    self.trace.append(replica.step_started(record))
                case Submitted():
                    self._submitted(replica, record)
                case Ended():
                    self._ended(replica, record)
                case PromptScored():
                    self.trace.append(replica.prompt_scored(record))
                case Telemetry() if self.living[:1] == [replica]:
                    self.trace.append(replace(record, time=record.time + replica.offset))
                case Notice() if replica.engine.alive:
                    said = f"{replica.name}: {record.text}"
                    self.trace.append(Notice(record.time + replica.offset, record.level, said))
                case Notice():
                    self.lost(replica)
                case _:
                    pass

    def _submitted(self, replica: Replica, record: Submitted) -> None:
        flight = self.flights.get(int(record.label))
        if flight is None or flight.replica is not replica:  # ended meanwhile
            self.drop(replica, record.request)
            return
        replica.offset = flight.sent - self._start - record.time
        replica.takes(flight, record.request)
        flight.stream.amid = begins_amid(record.text, flight.params)
        self._tell(flight, record.text)
        if flight.cancelled:
            self.drop(replica, record.request)

    def _ended(self, replica: Replica, record: Ended) -> None:
        flight = self.flights.get(replica.number(record.request))
        died = record.reason is FinishReason.ERROR and not replica.engine.alive
        if flight is None or died or record.branch in flight.stream.ended:
            return
        self.trace.append(replica.ended(record))
        if flight.stream.done:
            self._forget(flight)
