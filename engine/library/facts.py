"""What a run or a race was, in so few words and figures that a list of thousands can be kept."""

from __future__ import annotations

import hashlib
import sqlite3
import zipfile
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.compare import RACE_SUFFIX, Lane, lane_name, load_race
from engine.compare.race_file import INDEX
from engine.config.specs import InvalidInput
from engine.library.likeness import Making
from engine.library.strip import strip_of
from engine.trace import Trace, load_trace, measure


@dataclass(frozen=True, slots=True)
class LaneFacts:
    """A run, or one lane of a race by its first finished repeat. Seconds, and output tokens a second; `ttft_p95` is
    None where no request got a token."""

    name: str
    mode: str
    requests: int
    completed: int
    prompt_tokens: int
    output_tokens: int
    duration: float
    throughput: float
    ttft_p95: float | None


@dataclass(frozen=True, slots=True)
class RunFacts:
    """`created` is Unix time. `identity` stays what it is when the file is renamed or moved. `strip` is a `Strip` as
    text."""

    identity: str
    created: float
    making: Making
    strip: str
    lanes: tuple[LaneFacts, ...]
    race: bool = False

    @property
    def best(self) -> LaneFacts:
        """The lane of most tokens a second: the run itself, where it is no race."""
        return max(self.lanes, key=lambda lane: lane.throughput)

    @property
    def modes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(lane.mode for lane in self.lanes))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RunFacts:
        """Raises TypeError and KeyError for what `to_json` did not give."""
        return cls(
            **values
            | {"making": Making(**values["making"]), "lanes": tuple(LaneFacts(**lane) for lane in values["lanes"])}
        )


def read_facts(path: Path) -> RunFacts:
    """Reads all of the file. Raises InvalidInput where it is no run, or holds none that came to anything."""
    if path.suffix == RACE_SUFFIX:
        result, _ = load_race(path)
        lanes = [(name, traces[0]) for i, name in enumerate(result.names) if (traces := result.traces(i))]
        if not lanes:
            raise InvalidInput(f"{path}: no run of this race came to its end")
        return _facts(lanes, _race_identity(path), race=True)
    trace = load_trace(path)
    return _facts([(lane_name(Lane(trace.header.config)), trace)], _run_identity(path))


def _facts(lanes: list[tuple[str, Trace]], identity: str, *, race: bool = False) -> RunFacts:
    first = lanes[0][1]
    return RunFacts(
        identity=identity,
        created=first.header.created,
        making=Making.of(first),
        strip=strip_of([trace for _, trace in lanes]).text(),
        lanes=tuple(_lane(name, trace) for name, trace in lanes),
        race=race,
    )


def _lane(name: str, trace: Trace) -> LaneFacts:
    m = measure(trace)
    told = any(view.ttft is not None for view in trace.requests.values())
    return LaneFacts(
        name,
        trace.header.config.mode,
        m.requests,
        m.completed,
        m.prompt_tokens,
        m.output_tokens,
        m.duration,
        m.output_throughput,
        m.ttft.p95 if told else None,
    )


def _run_identity(path: Path) -> str:
    """Of the first record, which says when the run was begun to the microsecond."""
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        (data,) = db.execute("select data from records order by seq limit 1").fetchone()
    return hashlib.sha256(data).hexdigest()[:16]


def _race_identity(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        parts = sorted((part.filename, part.CRC, part.file_size) for part in archive.infolist())
    return hashlib.sha256(f"{INDEX} {parts}".encode()).hexdigest()[:16]
