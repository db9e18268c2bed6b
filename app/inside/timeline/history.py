"""What the timeline must know of a trace: runs, steps, marks, and when requests were there. No Qt in here."""

from __future__ import annotations

from collections.abc import Sequence

from app.inside.timeline.marks import TimelineMarks
from app.inside.timeline.ranks import RankTimes
from app.inside.timeline.runs import TimelineCells
from app.inside.timeline.steps import TimelineSteps
from engine.config import PAGED_MODES
from engine.trace import Ended, Header, Presence, Record, Steered, Step, Submitted


class TimelineHistory:
    """Feed it a trace's records in order; `cells` and `ranks` are given by who draws them. `origin` is when the first
    request came in; `device` is true where a GPU computes, `budget` is that of a step, as the header tells."""

    def __init__(self, cells: TimelineCells | None = None) -> None:
        self.cells = cells if cells is not None else TimelineCells(_nowhere)
        self.presence, self.steps, self.marks = Presence(), TimelineSteps(), TimelineMarks()
        self.ranks = RankTimes()
        self.origin, self._begun = 0.0, False
        self.device = False
        self.budget: int | None = None

    def clear(self, threshold: float | None) -> None:
        """Forgets everything: another trace begins, or the same again."""
        self.presence, self.origin, self._begun = Presence(), 0.0, False
        self.steps.clear()
        self.marks.clear(threshold)
        self.cells.clear()
        self.ranks.clear()
        self.device, self.budget = False, None

    def adopt(self, other: TimelineHistory) -> None:
        """Knows what another one does, whose columns are shared and no longer fed; its own parts stay the same objects,
        and the threshold of stalls its own."""
        reader, chosen = self.cells.step_reader, self.marks.chosen
        for name in ("cells", "steps", "marks", "ranks"):
            vars(getattr(self, name)).update(vars(getattr(other, name)))
        self.cells.step_reader, self.marks.chosen = reader, chosen
        self.presence, self.origin, self._begun = other.presence, other.origin, other._begun
        self.device, self.budget = other.device, other.budget

    def take(self, records: Sequence[Record]) -> None:
        """The next records."""
        cells = self.cells
        for record in records:
            self.presence.feed(record)
            if not isinstance(record, Step):
                cells.feed((record,))
            match record:
                case Step():
                    cells.feed((record,), self.origin)
                    begin, end = float(cells.step_begins[-1]), float(cells.step_ends[-1])
                    self.steps.feed(record, begin, end, self.origin)
                    self.ranks.feed(record, self.origin)
                    self.marks.step(record, begin, end, self.origin)
                case Submitted():
                    if not self._begun:
                        self._begun, self.origin = True, record.time
                    self.marks.submit(record, self.origin)
                case Ended():
                    self.marks.end(record, self.origin)
                case Steered():
                    self.marks.steered(record, self.origin)
                case Header():
                    self.device = record.model.device.startswith("cuda")
                    self.ranks.apart = record.config.disaggregated
                    self.budget = record.config.token_budget if record.config.mode in PAGED_MODES else None
                case _:
                    pass


def _nowhere(place: int) -> Step:
    raise IndexError(f"step {place}: nobody reads steps here")
