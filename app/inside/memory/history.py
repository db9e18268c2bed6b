"""What the memory bill must know of a trace: the pool's series, and what was measured of the device. No Qt in here."""

from bisect import bisect_right
from collections.abc import Sequence

from app.inside.memory.series import MemorySeries
from engine.trace import Record, Telemetry


class MemoryHistory:
    """Feed it a trace's records in order."""

    def __init__(self) -> None:
        self.series = MemorySeries()
        self._measured: list[Telemetry] = []

    def take(self, records: Sequence[Record]) -> None:
        """The next records."""
        self.series.take(records)
        self._measured += [record for record in records if isinstance(record, Telemetry)]

    def measured_at(self, time: float) -> Telemetry | None:
        """What was measured last by then."""
        place = bisect_right(self._measured, time, key=lambda record: record.time) - 1
        return self._measured[place] if place >= 0 else None
