"""Runs that were made apart, as the lanes of one race: shown on one clock, each from its first request on."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.compare import LaneRun, RaceResult
from engine.config import InvalidInput, Prompt
from engine.export.source import Source, lane_of
from engine.library.likeness import Making, differences
from engine.trace import Submitted, Trace
from engine.workloads import Arrival, Workload

MOST_SIDES = 4
DATED = re.compile(r"^\d{4}-\d\d-\d\d \d\d\.\d\d\.\d\d ")  # how a run's file is called at first


def run_title(path: Path) -> str:
    """What a person calls a run: its file's name, without the date that it begins with at first."""
    return DATED.sub("", path.stem) or path.stem


@dataclass(frozen=True, slots=True)
class SideBySide:
    """`race` has the first run's prompts as its workload. `differs`: what the runs do not have in common; where that
    is anything, nothing but the clock makes them a race."""

    race: RaceResult
    differs: tuple[str, ...]


def read_side_by_side(
    paths: Sequence[Path], progress: Callable[[int, int], None] | None = None, cancelled: threading.Event | None = None
) -> SideBySide:
    """The runs in two to `MOST_SIDES` files, each a lane that is called as the run is, with its date where two are
    called the same. Raises InvalidInput and LoadCancelled."""
    if not 2 <= len(paths) <= MOST_SIDES:
        raise InvalidInput(f"{len(paths)} runs: two to {MOST_SIDES} fit beside each other")
    traces = [run.trace for run in Source.read(paths, progress, cancelled).runs]
    titles = list(map(run_title, paths))
    names = titles if len(set(titles)) == len(titles) else [path.stem for path in paths]
    lanes = tuple(replace(lane_of(trace.header), name=name) for trace, name in zip(traces, names))
    runs = tuple(LaneRun(lane, 0, trace=trace) for lane, trace in enumerate(traces))
    return SideBySide(RaceResult(_workload(traces[0]), lanes, runs), differences([Making.of(t) for t in traces]))


def _workload(trace: Trace) -> Workload:
    arrivals = []
    for record in trace.records:
        if isinstance(record, Submitted):
            prompt: Prompt = list(record.messages) or record.token_ids.tolist()
            arrivals.append(Arrival(record.time - (trace.origin or 0.0), prompt, record.params, record.label))
    return Workload("saved runs", tuple(arrivals), title="Saved runs")
