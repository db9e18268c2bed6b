"""A race: the same workload through several lanes, one after another, each warmed up and with the same KV memory."""

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Self

from engine.compare.host import EngineHost
from engine.compare.lane import Lane
from engine.compare.lane_grammar import lane_names
from engine.compare.lane_run import DEFAULT_KV_TOKENS, LaneEvent, LaneRun, Track, check_runs
from engine.config.checks import InvalidInput, one_of
from engine.trace.trace import Trace
from engine.workloads.workload import Workload

MOST_LANES = 8
RACE_ORDERS = {
    "as listed": "the lanes in their order, in every repeat",
    "rotated": "each repeat begins with the next lane, so that no lane is always first",
    "shuffled": "a new order in every repeat, fixed by the seed",
}


@dataclass(frozen=True, slots=True)
class RaceResult:
    """What became of every lane. `lane_runs` in the order they were played; `kv_memory` in bytes, None when no model
    came to be loaded."""

    workload: Workload
    lanes: tuple[Lane, ...]
    lane_runs: tuple[LaneRun, ...]
    kv_memory: int | None = None
    cancelled: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return lane_names(self.lanes)

    def traces(self, lane: int) -> tuple[Trace, ...]:
        """A lane's finished repeats."""
        return tuple(r.trace for r in self.lane_runs if r.lane == lane and r.finished and r.trace is not None)

    def disturbed(self, lane: int) -> tuple[LaneRun, ...]:
        """A lane's finished repeats during which other programs took much of the CPU."""
        return tuple(r for r in self.lane_runs if r.lane == lane and r.finished and r.disturbed)

    def disturbance(self, lane: int) -> str:
        """What of a lane's figures is not to be trusted, for people; "" where all is."""
        runs, played = self.disturbed(lane), len(self.traces(lane))
        if not runs:
            return ""
        shares = sorted({f"{100 * (r.others or 0.0):.0f}" for r in runs}, key=int)
        often = "each" if len(runs) == played else f"{len(runs)}"
        during = "this lane" if played == 1 else f"{often} of its {played} runs"
        return f"other programs used {'–'.join(dict.fromkeys((shares[0], shares[-1])))} % of the CPU during {during}"

    def error(self, lane: int) -> str:
        """Why the lane failed: no repeat of it was finished. "" where one was, or where it was not played."""
        if self.traces(lane):
            return ""
        return next((r.error for r in self.lane_runs if r.lane == lane and r.error), "")


@dataclass(frozen=True, slots=True)
class RaceFinished:
    result: RaceResult


RaceEvent = LaneEvent | RaceFinished


class Race:
    """`repeats` rounds of a workload through 1 to 8 lanes. The lanes' own `kv_memory` is replaced by one for all:
    `kv_memory` bytes, or `kv_tokens` tokens of the first model that is loaded (None: what the workload suggests).

    Raises InvalidInput for what cannot be raced.
    """

    def __init__(
        self,
        workload: Workload,
        lanes: Sequence[Lane],
        *,
        repeats: int = 1,
        order: str = "as listed",
        kv_tokens: int | None = None,
        kv_memory: int | None = None,
        seed: int = 0,
    ) -> None:
        check_runs(workload, repeats, kv_tokens, kv_memory)
        if not 1 <= len(lanes) <= MOST_LANES:
            raise InvalidInput(f"{len(lanes)} lanes: a race has 1 to {MOST_LANES}")
        one_of("order", order, RACE_ORDERS)
        self.workload, self.repeats, self.order, self.seed = workload, repeats, order, seed
        self.lanes = tuple(lane.adapted(workload) for lane in lanes)
        self.kv_tokens = kv_tokens or workload.suggested.kv_tokens or DEFAULT_KV_TOKENS
        self.kv_memory = kv_memory
        self._plan = [(repeat, lane) for repeat, lanes in enumerate(self.rounds()) for lane in lanes]
        self._before: RaceResult | None = None  # a race in whose runs' places those that are played come

    @classmethod
    def again(cls, result: RaceResult, lane: int) -> Self:
        """A lane's disturbed runs once more, under the same rules: each takes the place of the one before it if it
        comes to its end. All other runs stay as they were."""
        repeats = 1 + max((run.repeat for run in result.lane_runs), default=0)
        race = cls(result.workload, result.lanes, repeats=repeats, kv_memory=result.kv_memory)
        race._plan = [(run.repeat, lane) for run in result.disturbed(lane)]
        race._before = result
        return race

    def rounds(self) -> list[list[int]]:
        """Which lanes are played in each repeat, in order."""
        lanes = list(range(len(self.lanes)))
        dice = random.Random(self.seed)
        match self.order:
            case "rotated":
                return [lanes[r % len(lanes) :] + lanes[: r % len(lanes)] for r in range(self.repeats)]
            case "shuffled":
                return [dice.sample(lanes, len(lanes)) for _ in range(self.repeats)]
            case _:
                return [lanes] * self.repeats

    def play(self, host: EngineHost, tell: Callable[[RaceEvent], None], cancelled: threading.Event) -> RaceResult:
        """Runs the race in the caller's thread; `tell` is called on it too. A lane that fails lets the others finish.
        Setting `cancelled` ends the lane under way; what was finished is in the result. The host stays open."""
        track = Track(host, tell, cancelled, self.kv_tokens, self.kv_memory)
        lane_runs: list[LaneRun] = []
        with closing(track):
            for repeat, index in self._plan:
                if not cancelled.is_set():
                    lane_runs.append(track.play(index, repeat, self.lanes[index], self.workload))
        cut_short = len(lane_runs) < len(self._plan) or any(r.cancelled for r in lane_runs)
        if self._before is not None:
            fresh = {(r.lane, r.repeat): r for r in lane_runs if r.finished}
            lane_runs = [fresh.get((r.lane, r.repeat), r) for r in self._before.lane_runs]
            cut_short = self._before.cancelled
        result = RaceResult(self.workload, self.lanes, tuple(lane_runs), track.kv_memory, cut_short)
        tell(RaceFinished(result))
        return result
