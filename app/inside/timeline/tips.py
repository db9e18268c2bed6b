"""What the timeline panel says of the place under the pointer."""

from __future__ import annotations

import numpy as np

from app.inside.timeline.axis import Axis
from app.inside.timeline.hits import Hits, Point
from app.inside.timeline.layout import Part
from app.inside.timeline.steps import PHASES, Row, TimelineSteps
from app.inside.timeline.words import (
    cell_words,
    length_words,
    mark_words,
    replayed_words,
    rows_words,
    stall_words,
    step_words,
    token_words,
)

MOST_MARKS = 8  # of the queue, told at once


def tip(hits: Hits, point: Point, axis: Axis, device: bool, budget: int | None) -> str:
    """Its words, over several lines; nothing between the parts."""
    if point.part is Part.QUEUE:
        lines = [mark_words(*mark) for mark in hits.marks_at(point)[-MOST_MARKS:]]
        waiting = int(hits.waiting(np.array([point.value]), axis)[0])
        return "\n".join([*lines, f"{waiting:,} waiting"])
    if point.part is Part.SLOTS:
        return _of_slot(hits, point)
    place = hits.cells.place_at(point.time)
    if place < 0:
        return ""
    row = hits.steps.row(place)
    match point.part:
        case Part.TOKENS:
            return f"{token_words(row, budget)}{replayed_words(row)}"
        case Part.HOST:
            return _of_host(hits.steps, place, point.time, device)
        case Part.DEVICE:
            return _of_device(row)
        case Part.WORDS:
            return f"{step_words(row)}{replayed_words(row)}"
        case _:
            return ""


def _of_slot(hits: Hits, point: Point) -> str:
    lines = [mark_words(*mark) for mark in hits.marks_at(point)]
    stalls = hits.stalls_at(point)
    for request, begin, end in zip(stalls.request.tolist(), stalls.begin.tolist(), stalls.end.tolist()):
        lines.append(stall_words(request, begin, end, hits.marks.threshold))
    cell = hits.cell_at(point)
    return "\n".join([*lines, *([cell_words(cell)] if cell is not None else [])])


def _of_host(steps: TimelineSteps, place: int, time: float, device: bool) -> str:
    near = steps.segments(max(0, place - 1), min(place + 2, len(steps)))
    for i in np.flatnonzero((near.begin <= time) & (time < near.end)).tolist():
        name, row = PHASES[int(near.phase[i])], steps.row(int(near.place[i]))
        words = "launch" if device and name == "forward" else name
        words += f", {length_words(float(near.end[i] - near.begin[i]))}"
        if name == "forward" and row.attention > 0:
            words += f", {length_words(row.attention)} of it attention"
        return f"{words}\nstep {row.step:,} · {rows_words(row)}{replayed_words(row)}"
    return f"no phase of a step is here\nthe last step before: {steps.row(place).step:,}"


def _of_device(row: Row) -> str:
    words = f"step {row.step:,} · {rows_words(row)}{replayed_words(row)}"
    if row.measured:
        return f"{words}\n{length_words(row.measured)} by the GPU's own clock"
    return (
        f"{words}\nThe GPU computed no longer than from forward's launch until its tokens were read: the host cannot "
        "see more."
    )
