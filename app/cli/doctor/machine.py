"""The system, its processor, memory and Python."""

from __future__ import annotations

import contextlib
import platform
import re
from pathlib import Path

from app.cli.doctor.finding import Finding, Status, missing

GIB = 1024**3


def system_finding() -> Finding:
    return Finding("system", Status.OK, f"{platform.system()} {platform.release()}, {distribution()}")


def distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "an unnamed distribution")
    except OSError:
        return platform.version()


def instruction_sets() -> frozenset[str]:
    """The processor's flags as Linux names them; none where the system lists none."""
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        if match := re.search(r"^flags\s*:\s*(.*)$", text, re.MULTILINE):
            return frozenset(match[1].split())
    return frozenset()


def hardware_findings() -> list[Finding]:
    try:
        import psutil

        from engine.core import processor_name, usable_cores
    except ImportError:
        return [Finding("CPU", Status.NOTE, "neither it nor the memory is known without psutil")]
    memory = psutil.virtual_memory()
    detail = f"{memory.total / GIB:.1f} GiB, {memory.available / GIB:.1f} GiB of it available"
    return [cpu_finding(processor_name(), usable_cores(), instruction_sets()), Finding("memory", Status.OK, detail)]


def cpu_finding(name: str, cores: int, flags: frozenset[str]) -> Finding:
    spoken = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_bf16": "AVX-512 bf16", "amx_bf16": "AMX bf16"}
    known = [word for flag, word in spoken.items() if flag in flags]
    detail = f"{name}, {cores} {'core' if cores == 1 else 'cores'}" + (f", {', '.join(known)}" if known else "")
    if flags and "avx2" not in flags:
        return missing("CPU", f"{detail}, no AVX2", cost="models on the CPU run several times slower")
    if flags and not flags & {"avx512_bf16", "amx_bf16"}:
        return Finding("CPU", Status.NOTE, detail, cost="bfloat16 is computed in software: float32 may be faster here")
    return Finding("CPU", Status.OK, detail)


def python_finding(version: tuple[int, ...]) -> Finding:
    spoken = ".".join(map(str, version))
    if version < (3, 11):
        return missing("Python", f"{spoken}, older than 3.11", "nothing runs", "install Python 3.11 or newer")
    return Finding("Python", Status.OK, spoken)
