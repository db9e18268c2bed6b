"""What this process runs on: processor, memory, versions."""

import contextlib
import importlib.metadata
import os
import platform
from pathlib import Path

from engine.trace.records import Machine

try:
    import psutil
except ModuleNotFoundError:  # machines lent for measuring a GPU may lack it; there, telemetry has no CPU and memory
    psutil = None


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


def memory() -> tuple[int, int]:
    """Bytes of memory in all, and of those that could be taken now."""
    if psutil is None:
        page = os.sysconf("SC_PAGE_SIZE")
        return page * os.sysconf("SC_PHYS_PAGES"), page * os.sysconf("SC_AVPHYS_PAGES")
    now = psutil.virtual_memory()
    return now.total, now.available


def resident() -> int:
    """Bytes of memory that this process holds."""
    if psutil is not None:
        return int(psutil.Process().memory_info().rss)
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    found = {"python": platform.python_version()}
    for name in ("torch", "transformers", "triton"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def describe(threads: int, gpu: str = "", gpu_memory: int = 0) -> Machine:
    return Machine(processor_name(), usable_cores(), memory()[0], threads, gpu, gpu_memory)
