"""A fleet: engines of one kind behind one engine's face, and one trace of all they do.

In the trace a fleet is one engine with the slots and blocks of all. A request whose replica dies is preempted there,
and goes on at another one: its prompt and what it has said are computed anew, and what follows is what would have
followed. Streams, metrics and whoever reads the trace know nothing of it.
"""

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from engine.config.checks import check, shown, whole
from engine.config.live_budget import LiveBudget
from engine.config.plain import plain
from engine.config.specs import PAGED_MODES, EngineConfig, InvalidInput, Prompt, Submission
from engine.core.face import EngineFace
from engine.core.process import EngineDied
from engine.core.stream import Stream, StreamRouter, Ticket
from engine.serving.fleet.flight import Flight, chained
from engine.serving.fleet.keeper import Keeper, Make
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
from engine.trace.trace import Trace

MOST = 64  # replicas
ROUTES = 256  # of the newest requests that it is told where they went


def check_mode(config: EngineConfig) -> None:
    """Raises InvalidInput for a mode whose requests cannot go on at another engine."""
    modes = f"its requests could not go on at another replica; use one of {', '.join(PAGED_MODES)}"
    check(config.paged, "mode", config.mode, modes)


class Routed(NamedTuple):
    """Where a request went, and why; `moves` is how often it had gone on before. `time` in seconds of the trace."""

    time: float
    request: int
    place: int
    why: str
    moves: int


class Fleet(EngineFace):
    """`make(place, cancelled)` gives the engine of a place, of which there are `replicas`; all are alike, and those
    that die are made again. `first` is that of place 0, where it is there already. Returns when all places have theirs,
    or so many as are `wanted`.
    `begin` and `steer` are refused, and what cannot go on elsewhere: beams, and modes without blocks.

    `alive` turns False when no engine is left and none can be made. Raises what `make` raises, and InvalidInput.
    """

    def __init__(self, make: Make, replicas: int, first: EngineFace | None = None, wanted: int | None = None) -> None:
        whole("replicas", replicas, 1, MOST)
        self._lock = threading.RLock()
        self._closing = False
        self._start = time.perf_counter()
        self._number, self._step_number = numbering(), numbering()
        self._unseeded = 0
        self.replicas: list[Replica | None] = [None] * replicas
        self.deaths = 0
        self.routes: deque[Routed] = deque(maxlen=ROUTES)
        self._flights: dict[int, Flight] = {}
        self._chains: dict[int, tuple[int, ...]] = {}
        self._parked: deque[Flight] = deque()
        self.keeper = Keeper(self, make, replicas)
        engine = first if first is not None else self.keeper.made(0)
        try:
            self._shape(engine, replicas)
            self.arrived(0, engine)
            self.keeper.start(replicas if wanted is None else wanted)
        except BaseException:
            self.close()
            engine.close()
            raise

    def _shape(self, engine: EngineFace, replicas: int) -> None:
        """What the fleet is as one engine, by one of its replicas."""
        header, config = engine.trace.header, engine.config
        check_mode(config)
        self.card, self._of_one, self._absent = engine.card, header, dict.fromkeys(COUNTS, 0)
        self._absent["free_blocks"] = header.blocks
        more: dict[str, Any] = {"max_running": replicas * config.max_running}
        more["token_budget"] = replicas * config.token_budget
        for name in ("kv_memory", "swap_memory"):
            if (size := getattr(config, name)) is not None:
                more[name] = replicas * size
        self.config: EngineConfig = replace(config, **more)
        sizes = {"blocks": replicas * header.blocks, "host_blocks": replicas * header.host_blocks}
        told: Header = replace(header, config=self.config, created=time.time(), **sizes)
        self.trace = Trace([told])
        self._router = StreamRouter(self.trace)

    # The face.

    @property
    def budget(self) -> LiveBudget:
        return LiveBudget.of(self.config)

    @property
    def pool_tokens(self) -> int:
        return self._of_one.blocks * self._of_one.config.block_size

    def submit_many(self, submissions: Sequence[Submission], more: bool = False) -> list[Stream]:
        self._check_open()
        now = time.perf_counter()
        given: list[Submission] = plain("prompt", list(submissions))
        for submission in given:
            if (width := submission.params.beam_width) > 1:
                raise InvalidInput(f"beam_width={width}: a search cannot go on at another replica; use one engine")
            check(not submission.said, "said", shown(len(submission.said)), "a fleet moves its requests by itself")
        prompts = [self._ids(submission.prompt) for submission in given]
        with self._lock:
            flights = [self._taken(one, ids, now) for one, ids in zip(given, prompts, strict=True)]
        try:
            self._place(flights, refuse=True)
        except BaseException:
            for flight in flights:
                self._cancel(flight)
            raise
        return [flight.stream for flight in flights]

    def cancel(self, requests: Iterable[int] | None = None, trace: Trace | None = None) -> None:
        if trace is not None and trace is not self.trace:
            return
        with self._lock:
            ids = list(self._flights) if requests is None else [whole("request", i, 0) for i in requests]
            flights = [self._flights[i] for i in ids if i in self._flights]
        for flight in flights:
            self._cancel(flight)

    def steer(
        self, token_budget: int | None = None, max_running: int | None = None, prefill_share: float | None = None
    ) -> LiveBudget:
        raise InvalidInput("a fleet's budget stays as it was loaded; steer an engine by itself")

    def begin(self, config: EngineConfig) -> Trace:
        raise InvalidInput("a fleet keeps its config and its trace; use one engine to change them")

    def encode(self, prompt: Prompt) -> list[int]:
        return list(self._ask("encode", prompt))

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._ask("decode", tokens))

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        return list(self._ask("pieces", tokens))

    def close(self) -> None:
        self._closing = True
        self.keeper.close()
        with self._lock:
            living = [replica for replica in self.replicas if replica is not None]
        for replica in living:
            replica.engine.close()
        if "trace" in vars(self):
            self._end_all(FinishReason.CANCELLED, "")
            self.trace.complete = True
        self.alive = False

    @property
    def state(self) -> dict[str, Any]:
        """What people are told: replicas, waiting requests, and where the newest went."""
        with self._lock:
            told = [{"place": i, "alive": False} if r is None else r.about for i, r in enumerate(self.replicas)]
            routes = [route._asdict() for route in self.routes]
            return {"replicas": told, "parked": len(self._parked), "deaths": self.deaths, "routes": routes}

    # Requests on their way.

    def _ids(self, prompt: Prompt) -> list[int]:
        """Its tokens; those of a list of ids are checked with the rest."""
        if isinstance(prompt, list) and prompt and set(map(type, prompt)) == {int}:
            return list(prompt)  # type: ignore[arg-type]
        return self.encode(prompt)

    @property
    def living(self) -> list[Replica]:
        return [r for r in self.replicas if r is not None and not r.gone and r.engine.alive]

    def _ask(self, verb: str, argument: Any) -> Any:
        """Of any replica: all have one tokenizer."""
        while True:
            self._check_open()
            living = sorted(self.living, key=lambda r: r.open)
            if not living:
                time.sleep(0.02)
                continue
            try:
                return getattr(living[0].engine, verb)(argument)
            except (InvalidInput, EngineDied):
                if living[0].engine.alive:
                    raise

    def _check_open(self) -> None:
        if not self.alive or self._closing:
            raise InvalidInput(f"{self.error or 'the fleet is closed'}; load a model first")

    def _taken(self, one: Submission, ids: list[int], now: float) -> Flight:
        params, number, sent = one.params, self._number(), one.time if one.time is not None else now
        if params.seed is None:  # as an engine would give it
            self._unseeded += 1
            params = params.with_(seed=(self._of_one.config.seed << 32) + self._unseeded)
        ticket = Ticket(number, sent - self._start, len(ids), params.branches)
        stream = self._router.open(ticket, self.cancel)
        text = one.prompt if isinstance(one.prompt, str) else None
        chat = isinstance(one.prompt, list) and bool(one.prompt) and isinstance(one.prompt[0], Mapping)
        messages: Any = tuple(map(dict, one.prompt)) if chat else ()  # type: ignore[call-overload]
        flight = Flight(number, ids, text, messages, one.params, params, one.label, sent, stream)
        if self._of_one.config.prefix_caching:
            flight.chain = self._chains[number] = chained(ids, self._of_one.config.block_size)
        self._flights[number] = flight
        return flight

    def _place(self, flights: Sequence[Flight], refuse: bool = False) -> None:
        """Sends each where it goes best; those that nobody can take now wait. With `refuse`, raises InvalidInput for
        what an engine does not take; else that ends as an error."""
        groups: dict[Replica, list[Flight]] = {}
        with self._lock:
            for flight in flights:
                if flight.cancelled:
                    self._end(flight, FinishReason.CANCELLED)
                elif (replica := self._route(flight)) is not None:
                    groups.setdefault(replica, []).append(flight)
                else:
                    self._parked.append(flight)
        for replica, group in groups.items():
            try:
                replica.engine.submit_many([flight.submission(time.perf_counter()) for flight in group])
            except (InvalidInput, EngineDied) as error:
                if not replica.engine.alive:
                    self.keeper.lost(replica)  # they go on when its end is known
                elif refuse:
                    with self._lock:
                        for flight in group:
                            self._forget(flight)
                    raise
                else:
                    with self._lock:
                        for flight in group:
                            self._end(flight, FinishReason.ERROR, str(error))

    def _route(self, flight: Flight) -> Replica | None:
        living, size = self.living, self._of_one.config.block_size
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

    def _cancel(self, flight: Flight) -> None:
        with self._lock:
            flight.cancelled = True
            replica, local = flight.replica, flight.local
            if replica is None and flight.number in self._flights:
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
        self._flights.pop(flight.number, None)
        self._chains.pop(flight.number, None)
        self._router.streams.pop(flight.number, None)
        if flight.replica is not None:
            flight.replica.flights.pop(flight.number, None)

    def _end_all(self, reason: FinishReason, error: str) -> None:
        with self._lock:
            self._parked.clear()
            for flight in list(self._flights.values()):
                self._end(flight, reason, error)

    # What the keeper tells.

    def arrived(self, place: int, engine: EngineFace) -> None:
        """A place has its engine."""
        with self._lock:
            replica = Replica(place, engine, self._step_number)
            replica.offset = time.perf_counter() - self._start
            again = self.deaths > 0
            self.replicas[place] = replica
            engine.trace.listen(lambda record: self._hear(replica, record))
            if again:
                self._notice("info", f"{replica.name} is there again")
        if not engine.alive:
            self.keeper.lost(replica)
        self.place_parked()

    def place_parked(self) -> None:
        with self._lock:
            if not self._parked or not self.living:
                return
            flights, self._parked = list(self._parked), deque()
        self._place(flights)

    def bury(self, replica: Replica) -> None:
        """A replica is gone: what it had waits for another, and its blocks are free. Once for each."""
        with self._lock:
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
                    self._parked.append(flight)
                else:
                    died = f"{flight.stalls} replicas died while it was computed, and no token came of it"
                    self._end(flight, FinishReason.ERROR, died)
            replica.flights = {}

    def given_up(self, error: str) -> None:
        """No engine is left, and none can be made."""
        with self._lock:
            self.alive, self.error = False, error
            self._notice("error", error)
            self._end_all(FinishReason.ERROR, error)
            self.trace.complete = True

    def _notice(self, level: str, text: str) -> None:
        self.trace.append(Notice(time.perf_counter() - self._start, level, text))

    # Records, on the threads that they arrive on.

    def _others(self, replica: Replica) -> dict[str, int]:
        others = [self._absent if r is None else r.counts for r in self.replicas[: replica.place]]
        others += [self._absent if r is None else r.counts for r in self.replicas[replica.place + 1 :]]
        return {name: sum([counts[name] for counts in others]) for name in COUNTS}

    def _hear(self, replica: Replica, record: Record) -> None:
        with self._lock:
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
                    self.keeper.lost(replica)
                case _:
                    pass

    def _submitted(self, replica: Replica, record: Submitted) -> None:
        flight = self._flights.get(int(record.label))
        if flight is None or flight.replica is not replica:  # ended meanwhile
            self.keeper.drop(replica, record.request)
            return
        replica.offset = flight.sent - self._start - record.time
        replica.takes(flight, record.request)
        self._tell(flight, record.text)
        if flight.cancelled:
            self.keeper.drop(replica, record.request)

    def _ended(self, replica: Replica, record: Ended) -> None:
        flight = self._flights.get(replica.number(record.request))
        died = record.reason is FinishReason.ERROR and not replica.engine.alive
        if flight is None or died or record.branch in flight.stream.ended:
            return
        self.trace.append(replica.ended(record))
        if flight.stream.done:
            self._forget(flight)
