"""What is exported: the runs of a file, each with a name, on one clock that begins at its first request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.checkpoints.adapters import EMBEDDED_ADAPTERS
from engine.compare import RACE_SUFFIX, Lane, RaceResult, lane_name, lane_names, load_race
from engine.config import InvalidInput, ModelSpec, Parallel
from engine.trace import RUN_SUFFIX, Header, Trace, load_trace

Progress = Callable[[int, int], None]  # so many done, of so many


@dataclass(frozen=True, slots=True)
class NamedRun:
    """`lane` and `repeat` say which run of a race it is; of several files each is a lane. `name` tells it from the
    others, for people; `file` is the name of its own file, "" where it has none."""

    name: str
    trace: Trace
    lane: int = 0
    repeat: int = 0
    file: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """One run, several, or a race with all of its finished runs. `title` is what a person calls it, `file` the name of
    the file that it is kept in, "" where nobody knows."""

    title: str
    runs: tuple[NamedRun, ...]
    race: RaceResult | None = None
    file: str = ""

    @property
    def alone(self) -> bool:
        """One run, compared with nothing."""
        return self.race is None and len(self.runs) == 1

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

    def watched(self, look: Callable[[], None]) -> Source:
        """The same; whoever reads on in a trace calls `look` first, and what that raises ends the work."""
        race = self.race
        if race is None:
            return replace(self, runs=tuple(replace(run, trace=run.trace.watched(look)) for run in self.runs))
        lane_runs = (replace(r, trace=r.trace.watched(look)) if r.trace is not None else r for r in race.lane_runs)
        return Source.of_race(replace(race, lane_runs=tuple(lane_runs)), self.title, self.file)

    @classmethod
    def of_trace(cls, trace: Trace, title: str = "", file: str = "") -> Source:
        """Raises InvalidInput where nothing was recorded."""
        if not len(trace.records):
            raise InvalidInput("there is no run yet; send a prompt first")
        name = lane_name(Lane(trace.header.config))
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
    def read(
        cls, paths: Sequence[Path], progress: Progress | None = None, cancelled: threading.Event | None = None
    ) -> Source:
        """What is in a run's or a race's file, or several runs, each from its first request on. Raises InvalidInput and
        LoadCancelled."""
        for path in paths:
            if path.suffix not in (RUN_SUFFIX, RACE_SUFFIX):
                raise InvalidInput(f"{path} is no run: give a {RUN_SUFFIX} or {RACE_SUFFIX} file")
            if path.suffix == RACE_SUFFIX and len(paths) > 1:
                raise InvalidInput(f"{path} is a race; it is exported alone, runs can be exported together")
        if paths[0].suffix == RACE_SUFFIX:
            race, _ = load_race(paths[0], progress, cancelled)
            return cls.of_race(race, file=paths[0].name)
        traces = [load_trace(path, progress, cancelled) for path in paths]
        if len(paths) == 1:
            return cls.of_trace(traces[0], paths[0].stem, paths[0].name)
        lanes = [lane_of(trace.header) for trace in traces]
        if len({lane.spec for lane in lanes}) == 1:  # the model does not tell them apart
            lanes = [Lane(lane.config) for lane in lanes]
        names = lane_names(lanes)
        runs = [NamedRun(name, traces[i], i, file=paths[i].name) for i, name in enumerate(names)]
        return cls(f"{len(runs)} runs side by side", tuple(runs))


def lane_of(header: Header) -> Lane:
    """The lane that a run with this header was."""
    model = header.model
    ranks = header.split
    if header.rank_layers:
        parallel = Parallel(pipeline=ranks, micro_batches=header.micro_batches)
    else:
        parallel = Parallel(ranks, sequence=header.sequence_parallel, experts=header.expert_parallel)
    kv_heads: int | str = model.kv_heads if model.kv_heads_stored else "auto"
    kv_heads = "all" if kv_heads == model.heads else kv_heads
    spec = ModelSpec(model.source, model.quantization, model.dtype, parallel=parallel, kv_heads=kv_heads)
    # Those that ship are found by their names; where others lie is for a person to say.
    adapters = (name if name in EMBEDDED_ADAPTERS else f"{name}=FOLDER" for name in model.adapters)
    spec = replace(spec, adapters=tuple(adapters))
    return Lane(header.config, spec)
