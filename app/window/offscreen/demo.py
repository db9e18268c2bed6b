"""The real window on a machine with no display: plays the demo workload, prints the metrics, leaves two pictures.

`python -m app.window.offscreen.demo --compare` races lanes instead, and leaves pictures of that.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import strftime

import qasync

from app import storage
from app.compare.choice import FIRST_WORKLOAD, LaneChoice, RaceChoice
from app.compare.race.lane_show import LaneState
from app.interrupts import uninterrupted
from app.session.lessee import Phase
from app.ui.look import theme
from app.window.main_window import COMPARE, MainWindow
from app.window.start.application import POLL, make_application, unattended_window, until
from engine import EngineConfig, InvalidInput, ModelSpec, Submission, measure, save_trace
from engine.compare import table
from engine.trace import RUN_SUFFIX
from engine.workloads import demo_workload

SIZE = (1600, 1000)
Act = Callable[[MainWindow, list[str]], Awaitable[None]]  # on the window once its model is there; problems come in


def play_demo(spec: ModelSpec, config: EngineConfig, out: Path | None = None) -> int:
    """Loads the model, plays the demo workload in an offscreen window and prints its metrics.

    `out` is the folder for the two screenshots and the run's file; None: one in the app's own data folder. Returns 0,
    or 1 when the load or the run failed, which it says on stderr.
    """
    folder = out if out is not None else storage.data() / "demo" / strftime("%Y-%m-%d %H.%M.%S")
    storage.made(folder)
    return _show(spec, config, lambda window, problems: _play(window, problems, folder))


def play_race(spec: ModelSpec, choice: RaceChoice, out: Path, dark: bool = True) -> int:
    """Races lanes in an offscreen window and prints the result; pictures of the race, its replay and its end go into
    the folder `out`. Returns 0, or 1 when something failed, which it says on stderr."""
    storage.made(out)
    return _show(spec, EngineConfig(), lambda window, problems: _race(window, problems, choice, out), dark)


def _show(spec: ModelSpec, config: EngineConfig, act: Act, dark: bool = True) -> int:
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    with uninterrupted():  # what Qt makes on first use would swallow a Ctrl+C, and be half made
        loop = qasync.QEventLoop(make_application())
        theme.set_theme("dark" if dark else "light")
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(_live(spec, config, act))


async def _live(spec: ModelSpec, config: EngineConfig, act: Act) -> int:
    problems: list[str] = []
    async with unattended_window(SIZE) as window:
        session = window.session
        for signal in (session.load_failed, session.submit_failed, session.engine_died):
            signal.connect(problems.append)
        window.start(spec, config)
        await until(lambda: session.ready or bool(problems))
        if not problems:
            await act(window, problems)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


async def _play(window: MainWindow, problems: list[str], folder: Path) -> None:
    session, bridge = window.session, window.bridge
    workload = demo_workload()
    window.page.composer.take(workload.name, workload.arrivals)
    await session.submit([Submission(a.prompt, a.params, label=a.label) for a in workload.arrivals])
    half = sum(a.params.max_tokens for a in workload.arrivals) // 2

    def streaming() -> bool:
        done = sum(len(view.tokens) for view in bridge.requests.values())
        finished = sum(view.ended is not None for view in bridge.requests.values())
        return done >= half or 8 * finished >= len(workload)

    def over() -> bool:
        return not bridge.behind and len(bridge.requests) >= len(workload) and not bridge.busy

    await until(lambda: streaming() or over() or bool(problems))
    _picture(window, folder / "streaming.png")
    await until(lambda: over() or bool(problems))
    trace = session.trace
    if problems or trace is None:
        return
    await asyncio.sleep(10 * POLL)  # the last frame and the slower charts
    _picture(window, folder / "finished.png")
    run = folder / f"demo{RUN_SUFFIX}"
    await session.off_thread(lambda: save_trace(trace, run))
    print(f"{'run':<24}{run}\n\n{table(measure(trace))}")


async def _race(window: MainWindow, problems: list[str], choice: RaceChoice, folder: Path) -> None:
    window.show_page(COMPARE)
    page = window.compare
    assert page is not None
    race = page.race
    page.setup.take(choice)
    race.refused.connect(lambda words, requests_run: problems.append(words))
    page.start()

    def half_way() -> bool:
        """The last lane is under way and far enough to look at."""
        last = race.lanes[-1] if race.lanes else None
        return last is not None and last.state is LaneState.RUNNING and 2 * race.clock >= race.longest / len(race.lanes)

    def over() -> bool:
        return bool(problems) or race.phase is Phase.OVER

    await until(lambda: half_way() or over())
    if not over():
        _picture(window, folder / "racing.png")
    await until(over)
    problems += [f"{lane.name}: {lane.error}" for lane in race.lanes if lane.state is LaneState.FAILED]
    if race.report is None:
        return
    await _shown(window)
    _picture(window, folder / "raced.png")
    race.seek(0.4 * race.longest)
    await _shown(window)
    _picture(window, folder / "replay.png")
    print(f"\n{race.report.comparison.text()}\n\n{page.result.light.accessibleName()}")


async def _shown(window: MainWindow) -> None:
    """Waits until every lane shows what it should, and the slower charts too."""
    assert window.compare is not None
    race = window.compare.race
    await until(lambda: all(lane.playback.caught_up for lane in race.lanes))
    await asyncio.sleep(25 * POLL)


def _picture(window: MainWindow, path: Path) -> None:
    if not window.grab().save(str(path)):
        raise InvalidInput(f"cannot write {path}: is the disk full?")
    print(f"{'screenshot':<24}{path}")


def main(arguments: Sequence[str] | None = None) -> int:
    """`--compare` races; else the demo is played."""
    options = argparse.ArgumentParser(prog="python -m app.window.offscreen.demo", description=__doc__)
    options.add_argument("--compare", action="store_true", help="race lanes on the Compare page")
    options.add_argument("--workload", default=FIRST_WORKLOAD, help="a shipped workload or a file")
    options.add_argument("--lanes", default="static:12,continuous:12", help="lanes with commas between them")
    options.add_argument("--count", type=int, default=28, help="how many prompts; 0: all")
    options.add_argument("--model", default="demo", help="demo, a model folder or a hub id")
    options.add_argument("--light", action="store_true", help="in the light theme")
    options.add_argument("--out", type=Path, default=Path("screenshots"), help="the folder for the pictures")
    given = options.parse_args(arguments)
    try:
        spec = ModelSpec(given.model)
        if not given.compare:
            return play_demo(spec, EngineConfig(), given.out)
        lanes = tuple(LaneChoice.parse(text) for text in given.lanes.split(","))
        return play_race(spec, RaceChoice(given.workload, lanes, count=given.count), given.out, not given.light)
    except InvalidInput as error:
        print(f"app.window.offscreen.demo: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
