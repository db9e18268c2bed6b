"""A fleet: engines of one kind behind one engine's face, and one trace of all they do.

In the trace a fleet is one engine with the slots and blocks of all. A request whose replica dies is preempted there,
and goes on at another one: its prompt and what it has said are computed anew, and what follows is what would have
followed. Streams, metrics and whoever reads the trace know nothing of it.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Unpack

from engine.config.checks import check, shown, whole
from engine.config.live_budget import BudgetChanges, LiveBudget
from engine.config.plain import plain
from engine.config.specs import PAGED_MODES, EngineConfig, InvalidInput
from engine.config.submission import Prompt, Submission
from engine.core.child.process import EngineDied
from engine.core.face import EngineFace
from engine.core.stream import Stream
from engine.serving.fleet.keeper import Keeper, Make
from engine.serving.fleet.replica import Replica
from engine.serving.fleet.traffic import Traffic
from engine.trace.records import FinishReason, Header
from engine.trace.trace import Trace

MOST = 64  # replicas


def check_mode(config: EngineConfig) -> None:
    """Raises InvalidInput for a mode whose requests cannot go on at another engine."""
    modes = f"its requests could not go on at another replica; use one of {', '.join(PAGED_MODES)}"
    check(config.paged, "mode", config.mode, modes)


class Fleet(EngineFace):
    """`make(place, cancelled)` gives the engine of a place, of which there are `replicas`; all are alike, and those
    that die are made again. `first` is that of place 0, where it is there already. Returns when all places have theirs,
    or so many as are `wanted`.
    `begin` and `steer` are refused, and what cannot go on elsewhere: beams, and modes without blocks.

    `alive` turns False when no engine is left and none can be made. Raises what `make` raises, and InvalidInput.
    """

    def __init__(self, make: Make, replicas: int, first: EngineFace | None = None, wanted: int | None = None) -> None:
        whole("replicas", replicas, 1, MOST)
        self._closing = False
        self._keeper = Keeper(make, replicas)
        engine = first if first is not None else self._keeper.made(0)
        try:
            self._shape(engine, replicas)
            self._traffic.arrived(0, engine)
            self._keeper.start(self._traffic, replicas if wanted is None else wanted)
        except BaseException:
            self.close()
            engine.close()
            raise

    def _shape(self, engine: EngineFace, replicas: int) -> None:
        """What the fleet is as one engine, by one of its replicas."""
        header, config = engine.trace.header, engine.config
        check_mode(config)
        self.card, self._one = engine.card, header
        more: dict[str, Any] = {"max_running": replicas * config.max_running}
        more["token_budget"] = replicas * config.token_budget
        for name in ("kv_memory", "swap_memory"):
            if (size := getattr(config, name)) is not None:
                more[name] = replicas * size
        self.config: EngineConfig = replace(config, **more)
        sizes: dict[str, Any] = {"blocks": replicas * header.blocks, "host_blocks": replicas * header.host_blocks}
        told: Header = replace(
            header, config=self.config, created=time.time(), bill=None, **sizes
        )  # that was one's bill
        self.trace = Trace([told])
        self._traffic = Traffic(header, replicas, self.trace)
        self._traffic.lost, self._traffic.drop, self._traffic.over = self._keeper.lost, self._keeper.drop, self._over

    def _over(self, error: str) -> None:
        self.alive, self.error = False, error

    # The face.

    @property
    def budget(self) -> LiveBudget:
        return LiveBudget.of(self.config)

    @property
    def pool_tokens(self) -> int:
        return self._one.blocks * self._one.config.block_size

    def submit_many(self, submissions: Sequence[Submission], more: bool = False) -> list[Stream]:
        self._check_open()
        now = time.perf_counter()
        given: list[Submission] = plain("prompt", list(submissions))
        for submission in given:
            if (width := submission.params.beam_width) > 1:
                raise InvalidInput(f"beam_width={width}: a search cannot go on at another replica; use one engine")
            check(not submission.said, "said", shown(len(submission.said)), "a fleet moves its requests by itself")
        prompts = [self._ids(submission.prompt) for submission in given]
        traffic = self._traffic
        with traffic.lock:
            flights = [traffic.taken(one, ids, now, self.cancel) for one, ids in zip(given, prompts, strict=True)]
        try:
            traffic.place(flights, refuse=True)
        except BaseException:
            for flight in flights:
                traffic.cancel(flight)
            raise
        return [flight.stream for flight in flights]

    def cancel(self, requests: Iterable[int] | None = None, trace: Trace | None = None) -> None:
        if trace is not None and trace is not self.trace:
            return
        traffic = self._traffic
        with traffic.lock:
            ids = list(traffic.flights) if requests is None else [whole("request", i, 0) for i in requests]
            flights = [traffic.flights[i] for i in ids if i in traffic.flights]
        for flight in flights:
            traffic.cancel(flight)

    def steer(self, **changes: Unpack[BudgetChanges]) -> LiveBudget:
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
        self._keeper.close()
        if "_traffic" in vars(self):
            for replica in self._traffic.replicas:
                if replica is not None:
                    replica.engine.close()
            self._traffic.end_all(FinishReason.CANCELLED, "")
            self.trace.complete = True
        self.alive = False

    # What only a fleet has.

    @property
    def living(self) -> list[Replica]:
        """The replicas that take requests now."""
        return self._traffic.living

    @property
    def size(self) -> int:
        """Its places."""
        return len(self._traffic.replicas)

    @property
    def state(self) -> dict[str, Any]:
        """What people are told: its replicas, how many requests are open and wait for one to come back, how many
        replicas have died, and where the newest requests went."""
        traffic = self._traffic
        with traffic.lock:
            told = [{"place": i, "alive": False} if r is None else r.about for i, r in enumerate(traffic.replicas)]
            counts = {"open": len(traffic.flights), "parked": len(traffic.parked), "deaths": traffic.deaths}
            return {"replicas": told, **counts, "routes": [route._asdict() for route in traffic.routes]}

    def kill(self, place: int) -> bool:
        """Ends the engine of a place, as a crash would. False where there is none."""
        for replica in self.living:
            if replica.place == place and (kill := getattr(replica.engine, "kill", None)) is not None:
                kill()
                return True
        return False

    # Inside.

    def _ids(self, prompt: Prompt) -> list[int]:
        """Its tokens; those of a list of ids are checked with the rest."""
        if isinstance(prompt, list) and prompt and set(map(type, prompt)) == {int}:
            return list(prompt)  # type: ignore[arg-type]
        return self.encode(prompt)

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
