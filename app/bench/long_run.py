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

from app.bench.frames import spread
from app.inside.panel import InsightPanel
from app.window.application import make_application, unattended_window, until
from app.window.main_window import MainWindow
from engine import Trace, save_trace
from engine.bench.trace.synthetic import made_up_hour

SEEKS = 100
PAINTED_S, SEEK_MS = 2.0, 100.0  # goals
PATIENCE = 600.0  # seconds


async def long_run(file: Path) -> dict[str, Any]:
    """Seconds, of the clock and of this process's CPU, from the request to the first complete paint of all panels at
    the moment on show, and until the whole run is there; milliseconds of a seek to any moment meanwhile and then."""
    async with unattended_window((1600, 1000)) as window:
        window.page.complete()
        window.page.layout_of.everything()
        await asyncio.sleep(0.5)
        begun, cpu = time.perf_counter(), time.process_time()
        window.open_path(file)
        await until(lambda: window.runs.path is not None and _reached(window), PATIENCE)
        window.repaint()
        painted = time.perf_counter() - begun, time.process_time() - cpu
        print(f"first paint {painted[0]:.2f} s; reading on", file=sys.stderr, flush=True)
        while_read = await _seeks(window, SEEKS // 4)
        await until(lambda: not (window.runs.reading or window.bridge.behind), PATIENCE)
        window.bridge.scope.catch_up()
        print("all is read", file=sys.stderr, flush=True)
        whole = time.perf_counter() - begun, time.process_time() - cpu
        afterwards = await _seeks(window, SEEKS)
        steps = window.bridge.scope.steps
    return {"steps": steps, "painted_s": painted, "whole_s": whole, "while_read": while_read, "seeks": afterwards}


def _reached(window: MainWindow) -> bool:
    """Whether the requests and all panels know what led to the moment on show."""
    bridge = window.bridge
    moment, times = bridge.scope.moment, bridge.trace.records.times
    known = [bridge.position, *(panel.position for panel in _panels(window) if panel.isVisible())]
    return len(known) > 1 and all(place >= len(times) or times[place] > moment for place in known)


def _panels(window: MainWindow) -> list[InsightPanel]:
    return [place.panel for place in window.page.places.values() if place.panel is not None]


async def _seeks(window: MainWindow, count: int) -> dict[str, float]:
    scope, draw, spent = window.bridge.scope, random.Random(0), []
    for _ in range(count):
        begun = time.perf_counter()
        scope.seek(draw.uniform(scope.origin, scope.end))
        scope.catch_up()
        spent.append(1000 * (time.perf_counter() - begun))
        await asyncio.sleep(0.02)
    return spread(spent)


def text(result: dict[str, Any]) -> str:
    (painted, paint_cpu), (whole, whole_cpu) = result["painted_s"], result["whole_s"]
    seeks, early = result["seeks"], result["while_read"]
    met = "yes" if painted < PAINTED_S else "NO", "yes" if seeks["p95_ms"] < SEEK_MS else "NO"
    p50, p95 = seeks["p50_ms"], seeks["p95_ms"]
    return "\n".join(
        (
            f"a made-up run of {result['steps']:,} steps, all panels open",
            f"first complete paint   {painted:.2f} s ({paint_cpu:.2f} of CPU)   < {PAINTED_S:.0f} s   {met[0]}",
            f"all of it is there     {whole:.1f} s ({whole_cpu:.1f} of CPU)",
            f"a seek, p95            {p95:.1f} ms ({p50:.1f} p50)   < {SEEK_MS:.0f} ms   {met[1]}",
            f"    while it is read   {early['p95_ms']:.1f} ms ({early['p50_ms']:.1f} p50)",
        )
    )


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
