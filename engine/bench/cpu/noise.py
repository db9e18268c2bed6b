"""What else the machine did while we measured."""

from dataclasses import dataclass

import psutil

from engine.core.machine import usable_cores
from engine.core.machine.others import OthersMeter

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
    """Counts from its making on."""

    def __init__(self) -> None:
        self._load, self._others = psutil.getloadavg()[0], OthersMeter()

    def read(self) -> Noise:
        return Noise(self._others.read() or 0.0, self._load, usable_cores())
