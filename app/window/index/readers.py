"""Who reads a run for the window: requests, counts, charts and every panel that looks inside. No Qt in here."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.inside.attention.history import AttentionHistory
from app.inside.beams.history import BeamHistory
from app.inside.experts.history import ExpertHistory
from app.inside.kv_map.history import KvHistory
from app.inside.machine.readings import MachineReadings
from app.inside.memory.history import MemoryHistory
from app.inside.roofline.points import RooflinePoints
from app.inside.step.history import StepHistory
from app.inside.timeline.history import TimelineHistory
from app.play.charts.series import ChartSeries
from engine.trace import IndexFolder, Record, RequestIndex, TallyIndex

MODULES = (  # that define what these keep
    "app.inside.attention.history",
    *("app.inside.beams.history", "app.inside.columns", "app.inside.experts.history"),
    *("app.inside.kv_map.history", "app.inside.kv_map.state", "app.inside.kv_map.tables"),
    *("app.inside.machine.readings", "app.inside.memory.history", "app.inside.memory.series"),
    *("app.inside.roofline.points", "app.inside.step.history"),
    *("app.inside.timeline.history", "app.inside.timeline.marks"),
    *("app.inside.timeline.ranks", "app.inside.timeline.runs", "app.inside.timeline.steps", "app.play.charts.series"),
)
PACKAGES = ("app.inside", "app.play.charts.series", "app.window.index")


def indexes(folder: Path) -> IndexFolder:
    """The indexes that the app keeps in a folder."""
    return IndexFolder(folder, MODULES, PACKAGES)


class WindowReaders:
    """Takes the records of one run, each once and in order."""

    def __init__(self) -> None:
        self._requests, self._tally, self._charts = RequestIndex(), TallyIndex(), ChartSeries()
        self._panels: dict[str, Any] = {  # by the panels' names
            "timeline": TimelineHistory(),
            "step": StepHistory(),
            "kv_map": KvHistory(),
            "beams": BeamHistory(),
            "attention": AttentionHistory(),
            "experts": ExpertHistory(),
            "memory": MemoryHistory(),
            "roofline": RooflinePoints(),
            "machine": MachineReadings(),
        }

    def take(self, records: Sequence[Record]) -> None:
        """The next records."""
        for record in records:
            self._requests.feed(record)
        self._tally.feed(records)
        self._charts.feed(list(records), self._tally)
        for panel in self._panels.values():
            panel.take(records)

    def known(self) -> Mapping[str, Any]:
        """What became of them, by the names that the window asks for."""
        return {"requests": self._requests, "tally": self._tally, "charts": self._charts, **self._panels}
