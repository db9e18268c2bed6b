"""One life of one replica: its engine, and its records in the fleet's numbers."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from engine.core.child.process import PULSE
from engine.core.face import EngineFace
from engine.serving.fleet.flight import Flight
from engine.serving.fleet.holdings import Holdings
from engine.trace.column import Array
from engine.trace.records import EMPTY, Ended, PromptScored, Step, StepStarted, freeze

REQUESTS = ("request", "block_request", "preempted", "refused", "beam_request", "swap_request")
BLOCKS = ("block", "copied", "copied_to", "swap_block")
COUNTS = ("running", "waiting", "free_blocks", "cached_blocks", "kv_used", "kv_reserved", "kv_internal", "kv_external")


SHOWN = 256  # of its requests
WHOLE = ("request", "branch", "slot", "first", "count", "wasted", "token_row", "token", "text_end")


class Replica:
    """The engine at `place`. In the fleet's trace its slots and blocks stand behind those of the places before.

    `open`: samples that it was sent and has not ended. `counts` are the last step's. `offset`: what its times are
    behind the fleet's, in seconds.
    """

    def __init__(self, place: int, engine: EngineFace, steps: Callable[[], int]) -> None:
        header = engine.trace.header
        self.place, self.engine, self._next_step = place, engine, steps
        self.name = f"replica {place}"
        self.blocks, self.slots, self.host_blocks = header.blocks, header.config.slots, header.host_blocks
        self.flights: dict[int, Flight] = {}
        self.holdings = Holdings()
        self.counts = dict.fromkeys(COUNTS, 0) | {"free_blocks": header.blocks}
        self.offset = 0.0
        self.gone = False
        self._ids: Array = np.full(64, -1, np.int32)  # by its own numbers; the last stays -1, which stands for none
        self._steps: dict[int, int] = {}

    @property
    def open(self) -> int:
        return sum(flight.stream.samples - len(flight.stream.ended) for flight in self.flights.values())

    @property
    def silent(self) -> bool:
        """Whether it has missed its signs of life: nobody should be sent there."""
        return bool(getattr(self.engine, "silence", 0.0) > 3 * PULSE)

    @property
    def about(self) -> dict[str, Any]:
        """What people are told of it."""
        told = {"place": self.place, "process": getattr(self.engine, "pid", None), "alive": not self.gone}
        told |= {"open": self.open, "slots": self.slots, "blocks": self.blocks, **self.counts}
        told["requests"] = [flight.about for flight in list(self.flights.values())[:SHOWN]]
        return told

    def takes(self, flight: Flight, local: int) -> None:
        """It has a flight under this number of its own."""
        if local >= len(self._ids) - 1:
            self._ids = np.concatenate([self._ids, np.full(max(len(self._ids), local), -1, np.int32)])
        self._ids[local] = flight.number
        flight.local = local

    def number(self, local: int) -> int:
        return int(self._ids[local])

    # Its records, as the fleet's.

    def step_started(self, record: StepStarted) -> StepStarted:
        number = self._steps[record.step] = self._next_step()
        return replace(record, time=record.time + self.offset, step=number)

    def step(self, step: Step, others: Mapping[str, int], chains: Mapping[int, tuple[int, ...]]) -> Step:
        """`others`: the counts of all other replicas."""
        self.counts = {name: getattr(step, name) for name in COUNTS}
        changed: dict[str, Any] = {name: others[name] + value for name, value in self.counts.items()}
        for name in REQUESTS:
            if len(column := getattr(step, name)):
                changed[name] = freeze(self._ids[column])
        if self.place:
            for names, by in ((("slot",), self.slots), (BLOCKS, self.blocks), (("swap_host",), self.host_blocks)):
                for name in names:
                    if len(column := getattr(step, name)):
                        changed[name] = freeze(np.where(column < 0, column, column + np.int32(by * self.place)))
        number = self._steps.pop(step.step, None)
        changed["step"] = self._next_step() if number is None else number
        changed["started"], changed["ended"] = step.started + self.offset, step.ended + self.offset
        told = replace(step, **changed)
        if len(told.block) or len(told.swap_event):
            self.holdings.learn(told, chains)
        return told

    def ended(self, record: Ended) -> Ended:
        return replace(record, time=record.time + self.offset, request=self.number(record.request))

    def prompt_scored(self, record: PromptScored) -> PromptScored:
        return replace(record, time=record.time + self.offset, request=self.number(record.request))

    def lost(self, now: float, others: Mapping[str, int]) -> Step:
        """The step without rows that tells its end at `now`: its blocks go back, and its samples are preempted."""
        self.counts = dict.fromkeys(COUNTS, 0) | {"free_blocks": self.blocks}
        none: dict[str, Any] = dict.fromkeys(WHOLE, EMPTY[np.int32])
        begun = [flight for flight in self.flights.values() if flight.local >= 0]
        whom = [(f.number, i) for f in begun for i in range(f.stream.samples) if i not in f.stream.ended]
        columns = np.array(whom, np.int32).reshape(-1, 2).T.copy()
        none |= {"kind": EMPTY[np.uint8], "logprob": EMPTY[np.float32], "text": "", "seconds": {}}
        none |= {"preempted": freeze(columns[0]), "preempted_branch": freeze(columns[1])}
        none |= {name: others[name] + value for name, value in self.counts.items()}
        return Step(step=self._next_step(), started=now, ended=now, **none, **self.holdings.lost())


def numbering() -> Callable[[], int]:
    """Numbers from 0 on, a call each."""
    return count().__next__
