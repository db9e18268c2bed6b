"""What is exported: the runs of a file, each with a name, on one clock that begins at its first request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.compare import RACE_SUFFIX, Lane, RaceResult, lane_name, load_race
from engine.config import InvalidInput, ModelSpec
from engine.trace import RUN_SUFFIX, Header, Trace, load_trace

Progress = Callable[[int, int], None]  # so many done, of so many


@dataclass(frozen=True, slots=True)
class NamedRun:
    """`lane` and `repeat` say which run of a race it is. `name` tells it from the others, for people."""

    name: str
    trace: Trace
    lane: int = 0
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """One run, or a race with all of its finished runs. `title` is what a person calls it, `file` the name of the file
    that it is kept in, "" where nobody knows."""

    title: str
    runs: tuple[NamedRun, ...]
    race: RaceResult | None = None
    file: str = ""

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return self.race.lanes if self.race is not None else tuple(lane_of(run.trace.header) for run in self.runs)

    @property
    def names(self) -> tuple[str, ...]:
        """The lanes' names, for people."""
        return self.race.names if self.race is not None else tuple(run.name for run in self.runs)

    def of_lane(self, lane: int) -> tuple[Trace, ...]:
        """The repeats of a lane."""
        return tuple(run.trace for run in self.runs if run.lane == lane)

    @property
    def first(self) -> tuple[tuple[str, Trace], ...]:
        """Each lane that was played, by name, with the first of its repeats."""
        return tuple((name, traces[0]) for i, name in enumerate(self.names) if (traces := self.of_lane(i)))

    @classmethod
    def of_trace(cls, trace: Trace, title: str = "", file: str = "") -> Source:
        """Raises InvalidInput where nothing was recorded."""
        if not len(trace.records):
            raise InvalidInput("there is no run yet; send a prompt first")
        name = lane_name(lane_of(trace.header))
        return cls(title or name, (NamedRun(name, trace),), file=file)

    @classmethod
    def of_race(cls, race: RaceResult, title: str = "", file: str = "") -> Source:
        """Raises InvalidInput where no run came to its end."""
        finished = [run for run in race.lane_runs if run.finished and run.trace is not None]
        if not finished:
            raise InvalidInput(
                f"no run of the race {title} came to its end; there is nothing to export".replace("  ", " ")
            )
        often = any(run.repeat for run in finished)
        runs = tuple(
            NamedRun(
                race.names[r.lane] + (f", run {r.repeat + 1}" if often else ""), r.trace, lane=r.lane, repeat=r.repeat
            )
            for r in finished
            if r.trace is not None
        )
        return cls(title or race.workload.title or race.workload.name, runs, race, file)

    @classmethod
    def read(cls, path: Path, progress: Progress | None = None, cancelled: threading.Event | None = None) -> Source:
        """What is in a run's or a race's file. Raises InvalidInput and LoadCancelled."""
        if path.suffix == RACE_SUFFIX:
            race, _ = load_race(path, progress, cancelled)
            return cls.of_race(race, file=path.name)
        if path.suffix != RUN_SUFFIX:
            raise InvalidInput(f"{path} is no run: give a {RUN_SUFFIX} or {RACE_SUFFIX} file")
        return cls.of_trace(load_trace(path, progress, cancelled), path.stem, path.name)


def lane_of(header: Header) -> Lane:
    """The lane that a run with this header was."""
    model = header.model
    return Lane(header.config, ModelSpec(model.source, model.quantization, model.dtype))
