"""What the machine was read to do over a run: one column a reading. No Qt in here."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from app.plot.scales import nice_bytes, nice_top
from app.words import bytes_words
from engine.trace import Array, Column, Header, Telemetry


@dataclass(frozen=True, slots=True)
class Reading:
    """One line of the panel: its field of the record, its title, unit, what it means, its hue in OKLCH."""

    field: str
    title: str
    unit: str
    about: str
    hue: float

    @property
    def of_gpu(self) -> bool:
        return self.field.startswith("gpu_")

    def figure(self, value: float) -> tuple[str, str]:
        """A number and its unit: "183", "%"."""
        if math.isnan(value):
            return "–", ""
        if self.unit == "bytes":
            number, unit = bytes_words(value).split(" ", 1)
            return number, unit
        return f"{value:,.0f}", self.unit


READINGS = (
    Reading("cpu_percent", "CPU", "%", "load of the engine's process: 100 % a core", 300.0),
    Reading("memory", "Process memory", "bytes", "memory that the engine's process holds", 195.0),
    Reading("memory_free", "Free memory", "bytes", "memory that any process could still take", 155.0),
    Reading("gpu_percent", "GPU", "%", "share of time in which the GPU was busy (NVML)", 330.0),
    Reading("gpu_memory", "GPU memory", "bytes", "memory in use on the GPU, by whichever process (NVML)", 255.0),
    Reading("gpu_watts", "Power", "W", "what the GPU draws (NVML)", 80.0),
    Reading("gpu_celsius", "Temperature", "°C", "of the GPU's chip (NVML)", 30.0),
)


class MachineReadings:
    """The readings of one trace, in order of time."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self._times = Column(np.float64)
        self._columns = {reading.field: Column(np.float64) for reading in READINGS}
        self._totals = {"memory": 0.0, "gpu_memory": 0.0}

    def take(self, record: Telemetry) -> None:
        self._times.append(record.time)
        for name, column in self._columns.items():
            column.append(float(getattr(record, name)))
        self._totals = {"memory": float(record.memory_total), "gpu_memory": float(record.gpu_memory_total)}

    @property
    def count(self) -> int:
        return self._times.count

    @property
    def times(self) -> Array:
        return self._times.values

    def values(self, reading: Reading) -> Array:
        return self._columns[reading.field].values

    def known(self) -> list[Reading]:
        """Those that were read: a GPU's only where there is one, and only what old traces had."""
        on_gpu = bool(self.count) and bool((self._columns["gpu_percent"].values >= 0).any())
        found = [reading for reading in READINGS if on_gpu or not reading.of_gpu]
        return [r for r in found if r.field != "memory_free" or bool(self.values(r).any())] if self.count else []

    def place_at(self, moment: float) -> int:
        """The last reading at a moment; -1 before the first."""
        return int(np.searchsorted(self.times, moment, "right")) - 1

    def value_at(self, reading: Reading, moment: float) -> float:
        """NaN before the first."""
        place = self.place_at(moment)
        return float(self.values(reading)[place]) if place >= 0 else math.nan

    def top(self, reading: Reading) -> float:
        """Where the axis ends: at all there is, as with cores, or just above the highest."""
        values = self.values(reading)
        highest = float(values.max()) if len(values) else 0.0
        match reading.field:
            case "cpu_percent":
                cores = self.header.machine.cores if self.header is not None else 1
                return max(100.0 * cores, highest)
            case "gpu_percent" | "gpu_celsius":
                return max(100.0, highest)
            case "memory_free":
                return max(self._totals["memory"], highest, 1.0)
            case "gpu_memory":
                return max(self._totals["gpu_memory"], highest, 1.0)
            case "memory":
                return nice_bytes(highest)
            case _:
                return nice_top(highest)

    def scale(self, reading: Reading) -> str:
        """What the axis' end is called, when it is all there is."""
        match reading.field:
            case "cpu_percent" if self.header is not None:
                cores = self.header.machine.cores
                return f"of {cores} core{'' if cores == 1 else 's'}"
            case "memory_free" if self._totals["memory"]:
                return f"of {bytes_words(self._totals['memory'])}"
            case "gpu_memory" if self._totals["gpu_memory"]:
                return f"of {bytes_words(self._totals['gpu_memory'])}"
            case _:
                return ""
