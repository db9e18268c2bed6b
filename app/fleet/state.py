"""What a server tells of its fleet, checked: it comes from a network. No Qt."""

from dataclasses import dataclass
from typing import Any

MOST_REPLICAS, MOST_REQUESTS, MOST_ROUTES, LONGEST = 64, 256, 256, 300
LATEST = 1e9  # seconds


@dataclass(frozen=True, slots=True)
class Running:
    """A request at a replica: so many tokens of at most `limit`; `moves`, how often it went on from one that died."""

    request: int
    tokens: int
    limit: int
    moves: int


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A replica; one that does not live has no figures. `process` is 0 where it is not known."""

    place: int
    alive: bool
    process: int = 0
    open: int = 0
    slots: int = 0
    running: int = 0
    waiting: int = 0
    blocks: int = 0
    free_blocks: int = 0
    cached_blocks: int = 0
    requests: tuple[Running, ...] = ()


@dataclass(frozen=True, slots=True)
class Routed:
    """Where a request went, and why; `time` in seconds of the fleet's trace."""

    time: float
    request: int
    place: int
    why: str
    moves: int


@dataclass(frozen=True, slots=True)
class FleetState:
    """`parked` requests wait for a replica to come back; `deaths` of replicas so far; `kills`: whether the server ends
    one for who asks."""

    model: str
    replicas: tuple[ReplicaState, ...]
    routes: tuple[Routed, ...]
    open: int
    parked: int
    deaths: int
    kills: bool


def fleet_state(told: Any) -> FleetState:
    """Raises ValueError for what no fleet tells."""
    try:
        replicas = tuple(_replica(one) for one in told["replicas"][:MOST_REPLICAS])
        routes = tuple(map(_route, told["routes"][-MOST_ROUTES:]))
        open_now, parked, deaths = (_whole(told[name]) for name in ("open", "parked", "deaths"))
        return FleetState(_text(told["model"]), replicas, routes, open_now, parked, deaths, told["kills"] is True)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"no fleet tells this: {type(error).__name__} {error}") from None


def _route(one: Any) -> Routed:
    request, place, moves = (_whole(one[name]) for name in ("request", "place", "moves"))
    return Routed(_seconds(one["time"]), request, place, _text(one["why"]), moves)


def _replica(one: Any) -> ReplicaState:
    if one["alive"] is not True:
        return ReplicaState(_whole(one["place"]), False)
    names = "open", "slots", "running", "waiting", "blocks", "free_blocks", "cached_blocks"
    counts: dict[str, Any] = {name: _whole(one[name]) for name in names}
    requests = tuple(
        Running(*(_whole(each[name]) for name in ("request", "tokens", "limit", "moves")))
        for each in one["requests"][:MOST_REQUESTS]
    )
    place, process = _whole(one["place"]), _whole(one["process"] or 0)
    return ReplicaState(place, True, process, requests=requests, **counts)


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 53:
        raise ValueError(f"{value!r:.40} is no count")
    return int(value)


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < LATEST:
        raise ValueError(f"{value!r:.40} is no time")
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.40} is no text")
    return value[:LONGEST]
