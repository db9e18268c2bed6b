"""Draws the picture of engine/parallel/README.md: a race of one device and of the same model split over two ranks, by
its heads and, where that is known here, by its layers; each lane shows its timeline, with a lane of each rank.

    python packaging/parallel_picture.py [FILE] [--light] [--size WIDE HIGH] [--race RACE] [--model FOLDER]

Without --race the race is run first: on a quiet machine of two cores it takes a minute.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import qasync
from PIL import Image

from app.compare.page import ComparePage
from app.inside.insights import INSIGHTS
from app.session.lessee import Phase
from app.ui.look import theme
from app.window.main_window import COMPARE
from app.window.start.application import make_application, unattended_window, until
from engine import EngineConfig, InvalidInput, parse_lanes
from engine.bench.parallel.run import save
from engine.bench.subject import Shape
from engine.checkpoints.inspect import embedded_folder

SIZE, PATIENCE, COLORS = (1440, 1080), 60.0, 255
LANES = ("continuous:8", "continuous:8:tp=2", "continuous:8:pp=2")
STEPS = 9  # that are in sight: of so few a rank's phases have a place of their own
OUT = Path(__file__).parent / "screenshots" / "parallel.png"


def known(lanes: tuple[str, ...]) -> list[str]:
    """Those that this version can race."""
    found = []
    for lane in lanes:
        try:
            parse_lanes(lane)
        except InvalidInput:
            continue
        found.append(lane)
    return found


def save_random(folder: Path) -> None:
    """A model of 33.6 M random parameters with the demo model's words."""
    demo = embedded_folder("demo")
    assert demo is not None
    save(folder, Shape(vocabulary=json.loads((demo / "config.json").read_text())["vocab_size"]))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(demo / name, folder)


def run(model: Path, race: Path) -> None:
    """Races the lanes with a model."""
    command = [sys.executable, "-m", "app", "compare", "--model", str(model), "--dtype", "float32", "--device", "cpu"]
    command += ["--workload", "mixed-lengths", "--count", "24", *known(LANES), "--out", str(race)]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[1])


def still(page: ComparePage | None) -> bool:
    if page is None or page.race.phase is not Phase.OVER or page.race.report is None:
        return False
    return all(lane.playback.caught_up for lane in page.race.lanes)


async def draw(race: Path, path: Path, size: tuple[int, int]) -> None:
    async with unattended_window(size) as window:
        window.start(None, EngineConfig())
        window.show_page(COMPARE)
        page = window.compare
        assert page is not None
        page.open_race(race)
        if not await until(lambda: still(page), PATIENCE):
            raise TimeoutError
        page.notice.hide()
        timeline = next(insight for insight in INSIGHTS if insight.name == "timeline")
        page.replay.view.setCurrentIndex(page.replay.view.findText(timeline.title))
        await asyncio.sleep(1.0)
        page.views[0].range_changed.emit(*moments(page))
        page.race.show_end()
        await asyncio.sleep(1.0)
        await until(lambda: still(page), PATIENCE)
        await asyncio.sleep(1.5)  # until everything is drawn as it will stand
        window.grab().toImage().save(str(path))
    with Image.open(path) as drawn:
        drawn.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)


def moments(page: ComparePage) -> tuple[float, float]:
    """The span of some steps of the slowest lane while all computed the most, in seconds from its first request."""
    lane = max(page.race.lanes, key=lambda lane: lane.span)
    trace, busiest = lane.playback.trace, page.race.busiest
    origin = trace.origin or 0.0
    ends = [step.ended - origin for step in trace.steps if step.rows]
    last = max(STEPS, next((i for i, end in enumerate(ends) if end >= busiest), len(ends) - 1))
    return ends[last - STEPS], ends[min(last, len(ends) - 1)]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("file", nargs="?", type=Path, default=OUT)
    options.add_argument("--light", action="store_true")
    options.add_argument("--size", type=int, nargs=2, default=SIZE, metavar=("WIDE", "HIGH"))
    options.add_argument("--race", type=Path, help="one that was kept; none is run then")
    options.add_argument("--model", type=Path, help="a model folder, in place of the random one")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BATCHSCOPE_DATA"] = folder
        race = given.race or Path(folder) / "parallel.bsrace"
        if given.race is None:
            if given.model is None:
                save_random(Path(folder) / "random 33.6 M")
            run(given.model or Path(folder) / "random 33.6 M", race)
        make_application()
        theme.set_theme("light" if given.light else "dark")
        qasync.run(draw(race.absolute(), given.file, tuple(given.size)))
    print(f"{given.file}: {given.file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
