"""Programs in a Python that has no torch, no transformers and nothing else that runs models."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def run(*arguments: str | Path, data: Path) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS`, with settings and runs in the folder `data`."""
    found = os.pathsep.join(map(str, (HERE, ROOT)))  # sitecustomize is imported from the first
    environment = os.environ | {"PYTHONPATH": found, "BATCHSCOPE_DATA": str(data), "QT_QPA_PLATFORM": "offscreen"}
    for display in ("DISPLAY", "WAYLAND_DISPLAY"):
        environment.pop(display, None)
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
