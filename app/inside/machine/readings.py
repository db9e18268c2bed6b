"""What the machine was read to do over a run: one column a reading. No Qt in here."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from app.inside.columns import Columns, Numbers
from app.language import digits, tr, trn
from app.plot.scales import nice_bytes, nice_top
from app.words import bytes_words
from engine.trace import Array, Header, Record, Telemetry


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

    @property
    def unit_title(self) -> str:
        return tr("bytes") if self.unit == "bytes" else self.unit

    def figure(self, value: float) -> tuple[str, str]:
        """A number and its unit: "183", "%"."""
        if math.isnan(value):
            return "–", ""
        if self.unit == "bytes":
            number, unit = bytes_words(value).split(" ", 1)
            return number, unit
        return digits(f"{value:,.0f}"), self.unit

    def words(self, value: float) -> str:
        """ "183 %"."""
        return " ".join(self.figure(value)).strip()


GPU_MEMORY = tr("memory in use on the GPU, by whichever process (NVML)")
READINGS = (
    Reading("cpu_percent", tr("CPU"), "%", tr("load of the engine's process: 100 % a core"), 300.0),
    Reading("memory", tr("Process memory"), "bytes", tr("memory that the engine's process holds"), 195.0),
    Reading("memory_free", tr("Free memory"), "bytes", tr("memory that any process could still take"), 155.0),
    Reading("gpu_percent", tr("GPU"), "%", tr("share of time in which the GPU was busy (NVML)"), 330.0),
    Reading("gpu_memory", tr("GPU memory"), "bytes", GPU_MEMORY, 255.0),
    Reading("gpu_watts", tr("Power"), "W", tr("what the GPU draws (NVML)"), 80.0),
    Reading("gpu_celsius", tr("Temperature"), "°C", tr("of the GPU's chip (NVML)"), 30.0),
)


class MachineReadings(Columns):
    """The readings of one trace, in order of time."""

    time, cpu_percent, memory, memory_free = (Numbers(np.float64) for _ in range(4))
    gpu_percent, gpu_memory, gpu_watts, gpu_celsius = (Numbers(np.float64) for _ in range(4))

    def __init__(self) -> None:
        super().__init__()
        self.header: Header | None = None
        self._totals = {"memory_free": 0.0, "gpu_memory": 0.0}

    def take(self, records: Iterable[Record]) -> None:
        for record in records:
            if isinstance(record, Telemetry):
                self.append(*(getattr(record, name) for name in self.names))
                self._totals = {"memory_free": record.memory_total, "gpu_memory": record.gpu_memory_total}
            elif isinstance(record, Header):
                self.header = record

    def values(self, reading: Reading) -> Array:
        return np.asarray(getattr(self, reading.field))

    def known(self) -> list[Reading]:
        """Those that were read: of a GPU only what it tells, and only what old traces had."""

        def told(reading: Reading) -> bool:
            values = self.values(reading)
            return bool((values >= 0 if reading.field == "gpu_percent" else values > 0).any())

        return [r for r in READINGS if r.field in ("cpu_percent", "memory") or told(r)] if len(self) else []

    def place_at(self, moment: float) -> int:
        """The last reading at a moment; -1 before the first."""
        return self.last_at("time", moment)

    def value_at(self, reading: Reading, moment: float) -> float:
        """NaN before the first."""
        place = self.place_at(moment)
        return float(self.values(reading)[place]) if place >= 0 else math.nan

    def top(self, reading: Reading) -> float:
        """Where the axis ends: at all there is, as with cores, or just above the highest."""
        highest = float(self.values(reading).max(initial=0.0))
        if reading.field == "memory":
            return nice_bytes(highest)
        if reading.field == "gpu_watts":
            return nice_top(highest)
        cores = self.header.machine.cores if self.header is not None else 1
        of = {"cpu_percent": 100.0 * cores, "gpu_percent": 100.0, "gpu_celsius": 100.0, **self._totals}
        return max(of[reading.field], highest, 1.0)

    def scale(self, reading: Reading) -> str:
        """What the axis' end is called, when it is all there is."""
        if reading.field == "cpu_percent" and self.header is not None:
            return trn("of {count:,} core", "of {count:,} cores", self.header.machine.cores)
        total = self._totals.get(reading.field)
        return tr("of {bytes}", bytes=bytes_words(total)) if total else ""
