"""What a person chose to race: workload, lanes, limits. Kept between starts as one line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from app import storage
from engine import InvalidInput, Lane, ModelSpec, list_workloads
from engine.compare import RACE_ORDERS, RaceResult, lane_text, parse_lane
from engine.trace import Slo

KEY = "compare/race"
MOST_LANES = 4
FIRST_WORKLOAD = "mixed-lengths"
FIRST_LANES = ("static:8", "continuous-padded", "continuous")
ADDED = (
    *("continuous", "static:8", "chunked", "disaggregated", "dynamic:8", "continuous-padded:8", "sequential"),
    "recompute",
)


@dataclass(frozen=True, slots=True)
class LaneChoice:
    """A lane as chosen. Without a model of its own it takes the Play page's; it quantizes that its own way if
    `own_quantization`, splits it over devices its own way if `own_split`, and holds as many key and value heads as it
    says if `own_kv_heads`: on one device then, since a split model has its own; it has adapters of its own if
    `own_adapters`."""

    lane: Lane
    own_model: bool = False
    own_quantization: bool = False
    own_split: bool = False
    own_kv_heads: bool = False
    own_adapters: bool = False

    def resolved(self, spec: ModelSpec) -> Lane:
        if self.own_model:
            return self.lane
        if self.own_quantization:
            spec = replace(spec, quantization=self.lane.spec.quantization)
        if self.own_split or self.own_kv_heads:
            spec = replace(spec, parallel=self.lane.spec.parallel, kv_heads=self.lane.spec.kv_heads)
        if self.own_adapters:
            spec = replace(spec, adapters=self.lane.spec.adapters)
        return replace(self.lane, spec=spec)

    @classmethod
    def parse(cls, text: str) -> LaneChoice:
        """A lane of a workload's suggestion. Raises InvalidInput."""
        lane = parse_lane(text)
        model, quantization, kv_heads, adapters = (
            f"{key}=" in text for key in ("model", "quantization", "kv_heads", "adapters")
        )
        return cls(lane, model, quantization, lane.spec.parallel.ranks > 1, kv_heads, adapters)


OWN = tuple(each.name for each in fields(LaneChoice) if each.name != "lane")


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds a request may take and still count for goodput; 0 is no limit."""

    ttft: float = 0.0
    tpot: float = 0.0
    e2e: float = 0.0

    @property
    def slo(self) -> Slo:
        return Slo(ttft=self.ttft or None, tpot=self.tpot or None, e2e=self.e2e or None)


@dataclass(frozen=True, slots=True)
class RaceChoice:
    """`workload` is a shipped one's name or a file's path; `kv_tokens` and `count` 0 are as the workload has them;
    `price` of an hour of what computes, 0 where nobody says.

    `sizes`, `rates` and `by_rate` are a sweep's: numbers as they were typed.
    """

    workload: str = FIRST_WORKLOAD
    lanes: tuple[LaneChoice, ...] = field(default_factory=lambda: tuple(map(LaneChoice.parse, FIRST_LANES)))
    kv_tokens: int = 0
    count: int = 0
    repeats: int = 1
    order: str = next(iter(RACE_ORDERS))
    limits: Limits = field(default_factory=Limits)
    price: float = 0.0
    sizes: str = "1, 2, 4, 8, 16, 32"
    rates: str = "1, 2, 4, 8"
    by_rate: bool = False

    def to_json(self) -> str:
        lanes = [{"lane": lane_text(c.lane)} | {name: getattr(c, name) for name in OWN} for c in self.lanes]
        return json.dumps(asdict(self) | {"lanes": lanes})

    @classmethod
    def from_json(cls, text: str) -> RaceChoice:
        """Raises ValueError for what is no choice of this version."""
        try:
            kept: dict[str, Any] = json.loads(text)
            lanes = tuple(_kept_lane(each) for each in kept["lanes"])
            choice = cls(**kept | {"lanes": lanes[:MOST_LANES], "limits": Limits(**kept["limits"])})
        except (KeyError, TypeError) as error:
            raise ValueError(f"no choice of a race: {error}") from error
        if choice.order not in RACE_ORDERS or not choice.lanes:
            raise ValueError("no choice of a race")
        return choice


def _kept_lane(each: dict[str, Any]) -> LaneChoice:
    """What another version did not keep is as the lane's text has it."""
    own: dict[str, Any] = {name: bool(each[name]) for name in OWN if name in each}
    return replace(LaneChoice.parse(each["lane"]), **own)


def choice_of(result: RaceResult, asked: str, otherwise: RaceChoice) -> RaceChoice:
    """What a race that was read back was begun with: as it was `asked` for, or its lanes and repeats alone."""
    try:
        return RaceChoice.from_json(asked)
    except (ValueError, InvalidInput):  # raced on the command line, or by another version
        lanes = tuple(LaneChoice(lane, own_model=True) for lane in result.lanes[:MOST_LANES])
        repeats = 1 + max((run.repeat for run in result.lane_runs), default=0)
        shipped = {card.name: card.requests for card in list_workloads()}
        name, count = result.workload.name, len(result.workload)
        if name in shipped:
            otherwise = replace(otherwise, workload=name, count=0 if count == shipped[name] else count, kv_tokens=0)
        return replace(otherwise, lanes=lanes, repeats=repeats)


def recall() -> RaceChoice:
    """The choice of the last time, or the first one."""
    try:
        return RaceChoice.from_json(str(storage.settings().value(KEY, "")))
    except (ValueError, InvalidInput):  # never kept, or written by another version
        return RaceChoice()


def keep(choice: RaceChoice) -> None:
    storage.settings().setValue(KEY, choice.to_json())


def another_lane(choice: RaceChoice) -> LaneChoice:
    """A lane to add: a mode that is not there yet, of the batch size there is."""
    modes = {c.lane.config.mode for c in choice.lanes}
    return LaneChoice.parse(next((text for text in ADDED if text.split(":")[0] not in modes), ADDED[0]))
