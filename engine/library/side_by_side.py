"""Runs that were made apart, as the lanes of one race: shown on one clock, each from its first request on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from engine.compare import LaneRun, RaceResult
from engine.config import InvalidInput, Prompt
from engine.export.source import NamedRun, Source, lane_of
from engine.trace import Submitted, Trace
from engine.workloads import Arrival, Workload

MOST_SIDES = 4


def as_race(runs: Sequence[NamedRun]) -> RaceResult:
    """Each run a lane with its name. The workload is the first run's: where the others had other prompts, nothing but
    the clock is common to them. Raises InvalidInput for fewer than two runs, or more than `MOST_SIDES`."""
    if not 2 <= len(runs) <= MOST_SIDES:
        raise InvalidInput(f"{len(runs)} runs: two to {MOST_SIDES} fit beside each other")
    lanes = tuple(replace(lane_of(run.trace.header), name=run.name) for run in runs)
    return RaceResult(
        workload=_workload(runs[0].trace),
        lanes=lanes,
        lane_runs=tuple(LaneRun(i, 0, trace=run.trace) for i, run in enumerate(runs)),
    )


def read_side_by_side(
    paths: Sequence[Path], progress: Callable[[int, int], None] | None = None, cancelled: threading.Event | None = None
) -> RaceResult:
    """The runs in these files, each named as its file is. Raises InvalidInput and LoadCancelled."""
    source = Source.read(paths, progress, cancelled)
    return as_race([replace(run, name=path.stem) for run, path in zip(source.runs, paths)])


def _workload(trace: Trace) -> Workload:
    arrivals = []
    for record in trace.records:
        if isinstance(record, Submitted):
            prompt: Prompt = list(record.messages) or record.token_ids.tolist()
            arrivals.append(Arrival(record.time - (trace.origin or 0.0), prompt, record.params, record.label))
    return Workload("saved runs", tuple(arrivals))
