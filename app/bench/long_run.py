"""`python -m app.bench.long_run`: how long a file of 100,000 steps takes to open in the window, and to scrub."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import qasync
from PySide6.QtCore import QCoreApplication, QEvent

from app.bench.frames import spread
from app.inside.panel import InsightPanel
from app.window.main_window import MainWindow
from app.window.start.application import make_application, unattended_window, until
from engine import Trace, save_trace
from engine.bench.trace.synthetic import made_up_hour

SEEKS = 100
WHOLE_S, SEEK_MS = 2.0, 100.0  # goals
PATIENCE = 3600.0  # seconds: the process of the lowest priority may have to wait for others


async def long_run(file: Path) -> dict[str, Any]:
    """The run opened as one that nobody has read before, then by its index, which was made meanwhile."""
    async with unattended_window((1600, 1000)) as window:
        indexes = window.runs.indexes
        first = await _opened(window, file)
        begun = time.perf_counter()
        indexes.ask(file)
        await until(lambda: not indexes.busy, PATIENCE)
        first["until_indexed_s"] = time.perf_counter() - begun
        index = indexes.file(file)
        sizes = {"file_bytes": file.stat().st_size, "index_bytes": index.stat().st_size if index.exists() else 0}
        window.runs.close()
    async with unattended_window((1600, 1000)) as window:
        again = await _opened(window, file)
    return {"steps": again["steps"], **sizes, "read": first, "indexed": again}


async def _opened(window: MainWindow, file: Path) -> dict[str, Any]:
    """Seconds, of the clock and of this process's CPU, from the request to the first complete paint of all panels at
    the moment on show, and until the whole run is there; milliseconds of a seek to any moment meanwhile and then, with
    the painting of all panels."""
    window.page.complete()
    window.page.layout_of.everything()
    await asyncio.sleep(0.5)
    begun, cpu = time.perf_counter(), time.process_time()
    window.open_path(file)
    await until(lambda: window.runs.path is not None and _reached(window), PATIENCE)
    window.repaint()
    painted = time.perf_counter() - begun, time.process_time() - cpu
    print(f"first paint {painted[0]:.2f} s; reading on", file=sys.stderr, flush=True)
    while_read = await _seeks(window, SEEKS // 4) if not _whole(window) else None
    await until(lambda: not window.runs.reading and not window.bridge.behind, PATIENCE)
    window.bridge.scope.catch_up()
    assert _whole(window)
    print("all is there", file=sys.stderr, flush=True)
    whole = time.perf_counter() - begun, time.process_time() - cpu
    seeks, scope = await _seeks(window, SEEKS), window.bridge.scope
    told = {"painted_s": painted, "whole_s": whole, "while_read": while_read, "seeks": seeks}
    return {"steps": scope.steps, "by_index": bool(window.bridge.trace.known), **told}


def _whole(window: MainWindow) -> bool:
    """Whether every step can be gone to, and the requests and all panels know what led to it."""
    records = len(window.bridge.trace.records)
    known = [window.bridge.position, *(panel.position for panel in _panels(window) if panel.isVisible())]
    return window.bridge.trace.complete and min(known) == records


def _reached(window: MainWindow) -> bool:
    """Whether the requests and all panels know what led to the moment on show."""
    bridge = window.bridge
    moment, times = bridge.scope.moment, bridge.trace.records.times
    known = [bridge.position, *(panel.position for panel in _panels(window) if panel.isVisible())]
    return len(known) > 1 and all(place >= len(times) or times[place] > moment for place in known)


def _panels(window: MainWindow) -> list[InsightPanel]:
    return [place.panel for place in window.page.places.values() if place.panel is not None]


async def _seeks(window: MainWindow, count: int) -> dict[str, float]:
    scope, draw, spent, worked = window.bridge.scope, random.Random(0), [], []
    for _ in range(count):
        begun, cpu = time.perf_counter(), time.thread_time()
        scope.seek(draw.uniform(scope.origin, scope.end))
        scope.catch_up()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.UpdateRequest.value)  # what is painted for it
        spent.append(1000 * (time.perf_counter() - begun))
        worked.append(1000 * (time.thread_time() - cpu))
        await asyncio.sleep(0.02)
    return spread(spent) | {f"cpu_{name}": value for name, value in spread(worked).items()}


def text(result: dict[str, Any]) -> str:
    read, again = result["read"], result["indexed"]
    met = "yes" if again["whole_s"][0] < WHOLE_S else "NO", "yes" if again["seeks"]["p95_ms"] < SEEK_MS else "NO"
    early, late, now = read["while_read"] or read["seeks"], read["seeks"], again["seeks"]
    how = "read to its end" if not read["by_index"] else "by the index that was made meanwhile"
    made, written = result["file_bytes"] / 1e6, result["index_bytes"] / 1e6
    return "\n".join(
        (
            f"a made-up run of {result['steps']:,} steps, all panels open",
            f"{'':24}{'never read before':28}with its index",
            f"{'first complete paint':24}{_seconds(read['painted_s']):28}{_seconds(again['painted_s'])}",
            f"{'all of it is there':24}{_seconds(read['whole_s']):28}{_seconds(again['whole_s'])}   "
            f"< {WHOLE_S:.0f} s   {met[0]}",
            f"{'a seek: p50, p95':24}{_millis(late):28}{_millis(now)}   < {SEEK_MS:.0f} ms   {met[1]}",
            f"{'while it is read':24}{_millis(early)}",
            f"all of it was there {how}; the index was {read['until_indexed_s']:.0f} s later than that",
            f"the run's file has {made:,.0f} MB, as before; its index {written:,.0f} MB ({100 * written / made:.0f} %)",
            "nothing is done for it while a run is recorded: a process of the lowest priority makes it afterwards",
        )
    )


def _seconds(told: tuple[float, float]) -> str:
    return f"{told[0]:.2f} s ({told[1]:.2f} of CPU)"


def _millis(told: dict[str, float]) -> str:
    return f"{told['p50_ms']:.0f}, {told['p95_ms']:.0f} ms ({told['cpu_p50_ms']:.0f}, {told['cpu_p95_ms']:.0f} of CPU)"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m app.bench.long_run", description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000, help="steps of the made-up run")
    parser.add_argument("--rows", type=int, default=64, help="rows a step")
    parser.add_argument("--file", type=Path, help="a run of your own instead")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BATCHSCOPE_DATA"] = folder
        file = options.file or Path(folder) / "long.bsrun"
        if options.file is None:
            print(f"making a run of {options.steps:,} steps", file=sys.stderr, flush=True)
            save_trace(Trace(made_up_hour(options.steps, options.rows)), file)
        application = make_application()
        result = qasync.run(long_run(file))
        del application
    print(json.dumps(result, indent=1) if options.json else text(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
