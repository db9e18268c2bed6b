"""What a report says of the program and its machine. Neither prompts nor texts nor paths are in it."""

import platform
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from time import strftime

import psutil

PACKAGES = ("batchscope", "PySide6-Essentials", "pyqtgraph", "qasync", "numpy", "torch", "transformers")


def facts_text(settings: Iterable[tuple[str, str]]) -> str:
    """Versions, machine, and these settings by name."""
    memory = psutil.virtual_memory()
    lines = [
        ("began", strftime("%Y-%m-%d %H:%M:%S %z")),
        ("python", f"{platform.python_version()} {sys.platform}"),
        *((name, _version(name)) for name in PACKAGES),
        ("system", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ("cores", str(psutil.cpu_count())),
        ("memory", f"{memory.total / 2**30:.1f} GiB, {memory.available / 2**30:.1f} GiB free at the start"),
        *((f"setting {name}", value) for name, value in settings),
    ]
    return "\n".join(f"{name:<24}{value}" for name, value in lines)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
