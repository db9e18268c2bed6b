"""The real window on a machine with no display: plays the demo workload, prints the metrics, leaves two pictures."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import strftime
from typing import TYPE_CHECKING

import qasync

from app import places, theme
from engine import RUN_SUFFIX, EngineConfig, ModelSpec, Prompt, Submission, demo_workload, measure, save_trace, table

if TYPE_CHECKING:
    from app.main_window import MainWindow

SIZE = (1600, 1000)
POLL = 0.02


def play_demo(spec: ModelSpec, config: EngineConfig, out: Path | None = None) -> int:
    """Loads the model, plays the demo workload in an offscreen window and prints its metrics.

    `out` is the folder for the two screenshots and the run's file; None: one in the app's own data folder. Returns 0,
    or 1 when the load or the run failed, which it says on stderr.
    """
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    from app.main_window import make_application

    make_application()
    theme.set_theme("dark")
    folder = out if out is not None else places.data() / "demo" / strftime("%Y-%m-%d %H.%M.%S")
    return int(qasync.run(_live(spec, config, folder)))


async def _live(spec: ModelSpec, config: EngineConfig, folder: Path) -> int:
    from app.bridge import Bridge
    from app.main_window import MainWindow, show
    from app.session import Session

    session, bridge = Session(), Bridge()
    window = MainWindow(session, bridge)
    window.keeps_layout = False
    problems: list[str] = []
    for signal in (session.load_failed, session.submit_failed, session.engine_died):
        signal.connect(problems.append)
    closed = asyncio.get_running_loop().create_future()
    window.closed.connect(lambda: closed.set_result(None))
    window.resize(*SIZE)
    show(window)
    window.start(spec, config)
    try:
        await _until(lambda: session.ready or bool(problems))
        if not problems:
            await _play(window, problems, folder)
    finally:
        window.close()
        await closed
        window.deleteLater()
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


async def _play(window: MainWindow, problems: list[str], folder: Path) -> None:
    session, bridge = window.session, window.bridge
    folder.mkdir(parents=True, exist_ok=True)
    workload = demo_workload()
    window.page.composer.take(workload.name, [text_of(a.prompt) for a in workload.arrivals])
    await session.submit([Submission(a.prompt, a.params, label=a.label) for a in workload.arrivals])
    half = sum(a.params.max_tokens for a in workload.arrivals) // 2

    def streaming() -> bool:
        done = sum(len(view.tokens) for view in bridge.requests.values())
        finished = sum(view.ended is not None for view in bridge.requests.values())
        return done >= half or 8 * finished >= len(workload)

    def over() -> bool:
        return not bridge.behind and len(bridge.requests) >= len(workload) and not bridge.busy

    await _until(lambda: streaming() or over() or bool(problems))
    _picture(window, folder / "streaming.png")
    await _until(lambda: over() or bool(problems))
    trace = session.trace
    if problems or trace is None:
        return
    await asyncio.sleep(10 * POLL)  # the last frame and the slower charts
    _picture(window, folder / "finished.png")
    run = folder / f"demo{RUN_SUFFIX}"
    await session.off_thread(lambda: save_trace(trace, run))
    print(f"{'run':<24}{run}\n\n{table(measure(trace))}")


def text_of(prompt: Prompt) -> str:
    """What a person wrote of a prompt."""
    if isinstance(prompt, str):
        return prompt
    return " ".join(part["content"] if isinstance(part, dict) else str(part) for part in prompt)


def _picture(window: MainWindow, path: Path) -> None:
    window.grab().save(str(path))
    print(f"{'screenshot':<24}{path}")


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(POLL)
