"""What lies under a point of the timeline, and what is said of it. No Qt in here."""

from dataclasses import dataclass

import numpy as np

from app.inside.phases import PHASE_TITLES
from app.inside.timeline.axis import Axis
from app.inside.timeline.layout import Part
from app.inside.timeline.marks import Mark, Marks, TimelineMarks
from app.inside.timeline.ranks import RankTimes
from app.inside.timeline.runs import TimelineCells
from app.inside.timeline.steps import PHASES, Row, TimelineSteps
from app.inside.timeline.words import (
    cell_words,
    length_words,
    mark_words,
    rank_words,
    replayed_words,
    rows_words,
    stall_words,
    step_title,
    step_words,
    token_words,
)
from app.language import tr
from app.plot.folds import NONE, Folds

MOST_MARKS = 8  # of the queue, told at once


@dataclass(frozen=True, slots=True)
class Point:
    """A place within the axis: its moment, the moments `reach` between which a mark is near enough, and the axis'
    `value` in the middle of its pixel. `slot` is -1 beside the slots, and `rank` beside the ranks' lanes."""

    part: Part | None
    time: float
    reach: tuple[float, float]
    value: float
    slot: int
    folds: Folds = NONE
    rank: int = -1


@dataclass(frozen=True, slots=True)
class Tips:
    """Finds in the columns that the timeline draws."""

    cells: TimelineCells
    steps: TimelineSteps
    marks: TimelineMarks
    ranks: RankTimes

    def marks_at(self, point: Point) -> Marks:
        """The marks that are near, of the queue or of the point's slot."""
        marks = self.marks.marks(point.reach[0], np.nextafter(point.reach[1], np.inf))
        here = marks.queued if point.part is Part.QUEUE else ~marks.queued & (marks.slot == point.slot)
        return marks.where(here)

    def tip(self, point: Point, axis: Axis, device: bool, budget: int | None) -> str:
        """Its words, over several lines; nothing between the parts."""
        if point.part is Part.QUEUE:
            waiting = int(self.steps.waiting_at(np.array([point.value]), axis, point.folds)[0])
            return "\n".join([*self._of_marks(point)[-MOST_MARKS:], tr("{count:,} waiting", count=waiting)])
        if point.part is Part.SLOTS:
            return self._of_slot(point)
        place = self.cells.place_at(point.time)
        if place < 0:
            return ""
        row = self.steps.row(place)
        match point.part:
            case Part.TOKENS:
                return f"{token_words(row, budget)}{replayed_words(row)}"
            case Part.HOST:
                return self._of_host(place, point.time, device)
            case Part.DEVICE:
                return _of_device(row)
            case Part.RANK:
                return f"{step_words(row)}\n{rank_words(self.ranks, place, point.rank, point.time)}"
            case Part.WORDS:
                return f"{step_words(row)}{replayed_words(row)}"
            case _:
                return ""

    def _of_marks(self, point: Point) -> list[str]:
        marks = self.marks_at(point)
        columns = (column.tolist() for column in (marks.kind, marks.request, marks.time, marks.count))
        return [self._of_mark(Mark(kind), *rest) for kind, *rest in zip(*columns)]

    def _of_mark(self, kind: Mark, request: int, time: float, count: int) -> str:
        if kind is Mark.BUDGET_SET:
            return tr("budget set: {budget} · {time:.3f} s", budget=self.marks.budgets[count], time=time)
        return mark_words(kind, request, time, count)

    def _of_slot(self, point: Point) -> str:
        lines = self._of_marks(point)
        stalls = self.marks.stalls(point.time, np.nextafter(point.time, np.inf))
        stalls = stalls.where(stalls.slot == point.slot)
        for request, begin, end in zip(stalls.request.tolist(), stalls.begin.tolist(), stalls.end.tolist()):
            lines.append(stall_words(request, begin, end, self.marks.threshold))
        cell = self.cells.at(point.time, point.slot)
        return "\n".join(lines if cell is None else [*lines, cell_words(cell)])

    def _of_host(self, place: int, time: float, device: bool) -> str:
        steps = self.steps
        near = steps.segments(max(0, place - 1), min(place + 2, len(steps)))
        for i in np.flatnonzero((near.begin <= time) & (time < near.end)).tolist():
            name, row = PHASES[int(near.phase[i])], steps.row(int(near.place[i]))
            title = PHASE_TITLES["launch" if device and name == "forward" else name]
            words = f"{title}, {length_words(float(near.end[i] - near.begin[i]))}"
            if name == "forward" and row.attention > 0:
                words = tr("{phase}, {time} of it attention", phase=words, time=length_words(row.attention))
            return f"{words}\n{step_title(row.step)} · {rows_words(row)}{replayed_words(row)}"
        return tr("no phase of a step is here\nthe last step before: {step:,}", step=steps.row(place).step)


def _of_device(row: Row) -> str:
    words = f"{step_title(row.step)} · {rows_words(row)}{replayed_words(row)}"
    if row.measured:
        how = tr("{time} by the GPU's own clock", time=length_words(row.measured))
    else:
        how = tr(
            "The GPU computed no longer than from forward's launch until its tokens were read: the host cannot see "
            "more."
        )
    return f"{words}\n{how}"
