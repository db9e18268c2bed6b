"""The machine a run is made on, what it is doing, and what other programs take of it. No torch."""

from engine.core.machine.gauge import Gauge
from engine.core.machine.system import describe, memory, processor_name, resident, usable_cores, versions
