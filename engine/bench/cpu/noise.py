"""What else the machine did while we measured."""

import time
from dataclasses import dataclass

import psutil

BUSY_SHARE = 0.05  # of all cores, by others, from which a run is not to be trusted


@dataclass(frozen=True, slots=True)
class Noise:
    """Processor time of other processes over the run, as a share of all cores (0-1), and the load average before it."""

    others: float
    load_before: float
    cores: int

    @property
    def busy(self) -> bool:
        return self.others > BUSY_SHARE

    def text(self) -> str:
        said = (
            f"other processes took {self.others:.0%} of {self.cores} cores; load average before {self.load_before:.1f}"
        )
        if self.busy:
            return f"WARNING: the machine is busy with something else, so these times are not its best: {said}"
        return f"The machine was quiet: {said}"


class NoiseMeter:
    """Counts from its making on. Time stolen by a hypervisor counts as others'."""

    def __init__(self) -> None:
        self._load = psutil.getloadavg()[0]
        self._begun, self._busy, self._own = time.perf_counter(), _busy_seconds(), _own_seconds()

    def read(self) -> Noise:
        cores = psutil.cpu_count() or 1
        wall = time.perf_counter() - self._begun
        others = (_busy_seconds() - self._busy) - (_own_seconds() - self._own)
        return Noise(min(1.0, max(0.0, others / (wall * cores))), self._load, cores)


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0)


def _own_seconds() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system
