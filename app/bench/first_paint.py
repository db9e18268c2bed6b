"""How long the command takes to the window's first paint: the measuring side, and the child that is measured."""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PySide6.QtCore import QEvent, QObject, QTimer
from PySide6.QtWidgets import QWidget

from engine import EngineConfig, ModelSpec

TOLD = "first paint"
CHILD = "import app.__main__\nfrom app.bench.first_paint import main\nmain()"  # a start reads the command's imports too


class _FirstPaint(QObject):
    """Says so on stdout once the window has been painted, then ends the process."""

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Paint:
            watched.removeEventFilter(self)
            QTimer.singleShot(0, self, self._painted)  # after this paint, of the whole window, has returned
        return False

    def _painted(self) -> None:
        print(TOLD, json.dumps({"torch": "torch" in sys.modules}), flush=True)
        os._exit(0)


def announce_first_paint(window: QWidget) -> None:
    """The process tells the first paint of this window, not shown yet, and exits."""
    window.installEventFilter(_FirstPaint(window))


def first_paint(times: int = 5) -> dict[str, Any]:
    """Seconds from the start of Python to the window's first paint. Raises RuntimeError if it never comes."""
    seconds, torch = [], False
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "BATCHSCOPE_DATA": folder}
        if not (environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")) or sys.platform == "win32":
            environment["QT_QPA_PLATFORM"] = "offscreen"
        command, root = [sys.executable, "-c", CHILD], Path(__file__).parents[2]
        for _ in range(times + 1):
            begun = time.perf_counter()
            with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=root) as child:
                assert child.stdout is not None
                line = next((line for line in child.stdout if line.startswith(TOLD)), "")
                seconds.append(time.perf_counter() - begun)
                child.kill()
            if not line:
                raise RuntimeError("the window ended before its first paint; run `batchscope` to see why")
            torch = torch or json.loads(line.removeprefix(TOLD))["torch"]
    # the first start reads the libraries from disk
    return {"cold_s": seconds[0], "median_s": statistics.median(seconds[1:]), "seconds": seconds, "torch": torch}


def main() -> None:
    """The child: the window as `batchscope` opens it, to its first paint."""
    from app.window.start.application import open_window

    open_window(ModelSpec("demo"), EngineConfig(), on_made=announce_first_paint)
