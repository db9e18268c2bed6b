"""What lies under a point of the timeline: its cell, the marks near it, its stalls, and how many waited. No Qt in
here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from app.inside.timeline.axis import Axis
from app.inside.timeline.layout import Part
from app.inside.timeline.marks import Mark, Stalls, TimelineMarks
from app.inside.timeline.runs import Cell, TimelineCells
from app.inside.timeline.steps import TimelineSteps
from engine.trace import Array


@dataclass(frozen=True, slots=True)
class Point:
    """A place within the axis: its moment, the moments `reach` between which a mark is near enough, and the axis'
    `value` in the middle of its pixel. `slot` is -1 beside the slots."""

    part: Part | None
    time: float
    reach: tuple[float, float]
    value: float
    slot: int


class MarkHit(NamedTuple):
    kind: Mark
    request: int
    time: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Hits:
    """Finds in the columns that the timeline draws."""

    cells: TimelineCells
    steps: TimelineSteps
    marks: TimelineMarks

    def marks_at(self, point: Point) -> list[MarkHit]:
        """The marks that are near, of the queue or of the point's slot."""
        marks = self.marks.marks(point.reach[0], np.nextafter(point.reach[1], np.inf))
        if point.part is Part.QUEUE:
            marks = marks.where((marks.kind == Mark.SUBMITTED) | (marks.slot < 0))
        else:
            marks = marks.where((marks.slot == point.slot) & (marks.kind != Mark.SUBMITTED))
        columns = (marks.kind, marks.request, marks.time, marks.count)
        return [MarkHit(Mark(kind), *rest) for kind, *rest in zip(*(column.tolist() for column in columns))]

    def stalls_at(self, point: Point) -> Stalls:
        stalls = self.marks.stalls(point.time, np.nextafter(point.time, np.inf))
        return stalls.where(stalls.slot == point.slot)

    def cell_at(self, point: Point) -> Cell | None:
        return self.cells.at(point.time, point.slot)

    def waiting(self, values: Array, axis: Axis) -> Array:
        """How many waited after the last step before each value of the axis; nothing where none was before or is to
        come."""
        if axis is Axis.TIME:
            places = np.searchsorted(self.cells.step_ends, values, "right") - 1
            known = (places >= 0) & (values <= self.cells.end)
        else:
            places = values.astype(np.int64)
            known = (places >= 0) & (places < self.cells.steps)
        return np.where(known, self.steps.waiting[np.clip(places, 0, self.cells.steps - 1)], 0)
