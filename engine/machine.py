"""The machine a run was made on, and what it is doing: processor, memory, GPU. No torch."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import psutil

from engine.trace.records import Machine, Telemetry


def processor_name() -> str:
    """The processor's name in words."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def usable_cores() -> int:
    """Cores this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    found = {"python": platform.python_version()}
    for name in ("torch", "transformers", "triton"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


class Gauge:
    """Reads the load of this process and of a GPU, where NVML finds one."""

    def __init__(self, gpu: int | None = None) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent()
        self._nvml: Any = None
        self._handle: Any = None
        if gpu is not None:
            with contextlib.suppress(Exception):  # NVML raises its own errors where driver or card are missing
                import pynvml

                pynvml.nvmlInit()
                self._nvml, self._handle = pynvml, pynvml.nvmlDeviceGetHandleByIndex(gpu)

    def read(self, time: float) -> Telemetry:
        """`cpu_percent` is of this process, 100 a core; `memory` its resident bytes."""
        gpu: dict[str, float] = {}
        if self._nvml is not None:
            with contextlib.suppress(self._nvml.NVMLError):
                memory = self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
                gpu = {
                    "gpu_percent": float(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu),
                    "gpu_memory": int(memory.used),
                    "gpu_memory_total": int(memory.total),
                    "gpu_watts": self._nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000,
                    "gpu_celsius": float(self._nvml.nvmlDeviceGetTemperature(self._handle, 0)),
                }
        return Telemetry(
            time,
            self._process.cpu_percent(),
            self._process.memory_info().rss,
            psutil.virtual_memory().total,
            **gpu,  # type: ignore[arg-type]
        )


def describe(threads: int, gpu: str = "", gpu_memory: int = 0) -> Machine:
    return Machine(processor_name(), usable_cores(), psutil.virtual_memory().total, threads, gpu, gpu_memory)
