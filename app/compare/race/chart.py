"""One chart of a race, over all its lanes."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

from app.compare.race.series import LaneSeries
from app.plot.plot import Plot
from engine.trace import Array, Column


@dataclass(slots=True)
class RaceLane:
    """A lane as the charts know it: its name, its colour's index, and what it did up to `cursor` (None: all). `short`
    is the name where there is little room."""

    name: str
    index: int
    short: str = ""
    series: LaneSeries = field(default_factory=LaneSeries)
    cursor: float | None = None

    def end(self, span: float) -> float:
        """Where its lines end: at its cursor, else where it is; a lane that is over stays level to the end."""
        if self.cursor is not None:
            return min(self.cursor, span)
        return span if self.series.over else self.series.now

    def seen(self, times: Column, values: Column) -> Array:
        return values.values[: self.series.count(times, self.cursor)]


class RaceChart(Plot):
    """One chart of all lanes; nothing is drawn before there are any."""

    def __init__(self, name: str, title: str, formula: str, lanes: Sequence[RaceLane]) -> None:
        super().__init__(name)
        self.title, self.formula, self.lanes = title, formula, lanes
        self.setAccessibleName(title)
        self.span = 10.0

    def tooltip(self) -> str:
        """The formula, and each lane's figures."""
        return "\n".join((self.formula, *(f"{lane.name}: {self.figure(lane)}" for lane in self.lanes)))

    @abstractmethod
    def figure(self, lane: RaceLane) -> str:
        """A lane's latest value in words; "–" when there is none."""

    def describe(self) -> None:
        """Tells screen readers the figures."""
        self.setAccessibleDescription(", ".join(f"{lane.name} {self.figure(lane)}" for lane in self.lanes))
