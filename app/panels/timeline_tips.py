"""What the timeline panel says of the place under the pointer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtCore import QPointF

from app.panels.timeline_steps import PHASES
from app.panels.timeline_words import (
    cell_words,
    length_words,
    mark_words,
    replayed_words,
    rows_words,
    stall_words,
    step_words,
    token_words,
)

if TYPE_CHECKING:
    from app.panels.timeline_view import TimelineView

MOST_MARKS = 8  # of the queue, told at once


def tip(view: TimelineView, position: QPointF) -> str:
    """Its words, over several lines; nothing beside all parts."""
    area, bands = view.area(), view.bands()
    if not len(view.cells) or not area.left() <= position.x() <= area.right():
        return ""
    time, y = view.time_at(position.x()), position.y()
    if bands.queue.holds(y):
        lines = [mark_words(*mark) for mark in view.marks_near(position, in_queue=True)[-MOST_MARKS:]]
        waiting = view.waiting()[min(int(position.x()) - area.left(), area.width() - 1)]
        return "\n".join([*lines, f"{waiting:,} waiting"])
    if area.contains(position.toPoint()):
        return _of_slot(view, position, time)
    place = view.cells.place_at(time)
    if place < 0:
        return ""
    if bands.tokens.holds(y):
        row = view.steps.row(place)
        return f"{token_words(row, view.budget)}{replayed_words(row)}"
    for i, band in enumerate(bands.lanes):
        if band.holds(y):
            return _of_device(view, place) if i else _of_host(view, place, time)
    row = view.steps.row(place)
    return f"{step_words(row)}{replayed_words(row)}" if bands.words.holds(y) else ""


def _of_slot(view: TimelineView, position: QPointF, time: float) -> str:
    lines = [mark_words(*mark) for mark in view.marks_near(position, in_queue=False)]
    stalls = view.marks.stalls(time, np.nextafter(time, np.inf))
    for i in np.flatnonzero(stalls.slot == view.slot_at(position.y())).tolist():
        begin, end = float(stalls.begin[i]), float(stalls.end[i])
        lines.append(stall_words(int(stalls.request[i]), begin, end, view.marks.threshold))
    cell = view.cell_at(position)
    return "\n".join([*lines, *([cell_words(cell)] if cell is not None else [])])


def _of_host(view: TimelineView, place: int, time: float) -> str:
    near = view.steps.segments(max(0, place - 1), min(place + 2, len(view.steps)))
    for i in np.flatnonzero((near.begin <= time) & (time < near.end)).tolist():
        name, row = PHASES[int(near.phase[i])], view.steps.row(int(near.place[i]))
        words = "launch" if view.device and name == "forward" else name
        words += f", {length_words(float(near.end[i] - near.begin[i]))}"
        if name == "forward" and row.attention > 0:
            words += f", {length_words(row.attention)} of it attention"
        return f"{words}\nstep {row.step:,} · {rows_words(row)}{replayed_words(row)}"
    return f"no phase of a step is here\nthe last step before: {view.steps.row(place).step:,}"


def _of_device(view: TimelineView, place: int) -> str:
    row = view.steps.row(place)
    words = f"step {row.step:,} · {rows_words(row)}{replayed_words(row)}"
    if row.measured:
        return f"{words}\n{length_words(row.measured)} by the GPU's own clock"
    return (
        f"{words}\nThe GPU computed no longer than from forward's launch until its tokens were read: the host cannot "
        "see more."
    )
