"""What the machine is doing while steps run."""

from engine.core.machine.nvml import Card
from engine.core.machine.system import memory
from engine.trace.records import Telemetry

try:
    import psutil
except ModuleNotFoundError:  # as in system.py
    psutil = None


class Gauge:
    """Reads the load of this process and of a GPU, where NVML knows one."""

    def __init__(self, card: Card | None = None) -> None:
        self._process = psutil.Process() if psutil is not None else None
        if self._process is not None:
            self._process.cpu_percent()  # the first reading begins the interval
        self._card = card

    def read(self, time: float) -> Telemetry:
        """`cpu_percent` is of this process, 100 a core; `memory` its resident bytes."""
        gpu = self._card.load() if self._card is not None else {}
        total, free = memory()
        return Telemetry(
            time,
            self._process.cpu_percent() if self._process is not None else 0.0,
            self._process.memory_info().rss if self._process is not None else 0,
            total,
            memory_free=free,
            **gpu,  # type: ignore[arg-type]
        )
