"""Plays a tour offscreen and draws each of its scenes as it stands at its last point.

python packaging/scene_pictures.py [FOLDER] [--only NAME ...] [--recorded] [--points] [--light]

In the desktop's language, as the window is: LC_ALL=de_DE.UTF-8 before it makes German ones. `--recorded` replays the
recordings: the same pictures each time, and no model is loaded. `--baselines` keeps these as the pictures that tests
compare with: python -m tests.without_engine packaging/scene_pictures.py --baselines
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import qasync
from PySide6.QtCore import Qt
from PySide6.QtGui import QFontInfo, QGuiApplication, QImage

from app.stage.scene_file import read_tour
from app.ui.look import theme
from app.window.main_window import MainWindow
from app.window.start.application import make_application, unattended_window, until
from engine import EngineConfig, ModelSpec

SIZE = (1280, 720)
BASELINES = Path(__file__).parents[1] / "tests/app/stage/baselines"
REST = 0.25  # seconds until streams and charts have come to rest
LONGEST = 60.0  # seconds of a scene


async def picture(window: MainWindow) -> QImage:
    """The window as it is once all panels have taken everything in."""
    await asyncio.sleep(REST)
    race = window.compare.race.lanes if window.compare is not None else []
    for scope in (window.bridge.scope, *(lane.scope for lane in race)):
        scope.catch_up()
    await asyncio.sleep(REST)
    return window.grab().toImage()


def kept(image: QImage) -> QImage:
    """At half its size, as a small file; the font it was made with is told."""
    image = image.scaled(image.size() / 2, mode=Qt.TransformationMode.SmoothTransformation)
    image.setText("font", QFontInfo(QGuiApplication.font()).family())
    return image


async def draw(window: MainWindow, given: argparse.Namespace) -> None:
    window.touring.recorded = given.recorded
    window.start(None if given.recorded else ModelSpec("demo"), EngineConfig())
    await until(lambda: (window.session.ready or given.recorded) and "live" in window.page.docks)
    if not given.recorded:
        (await picture(window)).save(str(given.folder / "scene-card.png"))
    scenes = [s for s in read_tour(given.tour) if not given.only or any(name in s.file.stem for name in given.only)]
    if given.present:
        window.presenting.begin()
        window.showNormal()  # the offscreen screen is a small one
        window.resize(*SIZE)
    window.touring.take(scenes)
    tour = window.touring.tour
    assert tour is not None
    tour.replays = False
    for number, scene in enumerate(scenes):
        tour.go(number)
        if not await until(lambda number=number: tour.number == number and tour.over, LONGEST):
            print(f"{scene.file.name}: {window.touring.bar.status.text()}", file=sys.stderr)
        last = len(tour.due) - 1
        for place in range(last + 1) if given.points else [last]:
            if tour.show is not None and tour.due:
                tour.show.go(tour.due[place])
            name = f"scene-{scene.file.stem}{f'-{place}' if given.points else ''}{'-light' if given.light else ''}.png"
            shown = await picture(window)
            (kept(shown) if given.baselines else shown).save(str(given.folder / name), quality=given.quality)
            print(f"{'picture':<24}{given.folder / name}")
    window.touring.leave()
    await until(lambda: window.touring.tour is None)


async def live(given: argparse.Namespace) -> None:
    async with unattended_window(SIZE) as window:
        await draw(window, given)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", nargs="?", type=Path, default=Path("scenes"))
    options.add_argument("--tour", type=Path, help="a scene or a folder of them (default: the shipped tour)")
    options.add_argument("--only", nargs="+", metavar="NAME", help="scenes whose files have this in their names")
    options.add_argument("--recorded", action="store_true", help="replay the recordings")
    options.add_argument("--points", action="store_true", help="a picture of every point")
    options.add_argument("--light", action="store_true", help="in the light theme")
    options.add_argument("--present", action="store_true", help="as a room sees them")
    options.add_argument("--zoom", type=float, default=1.0, help="how large words and lines are")
    options.add_argument("--baselines", action="store_true", help="make the pictures that tests compare with anew")
    options.add_argument("--quality", type=int, default=0, help="0: small files, 100: quickly made; they show the same")
    given = options.parse_args()
    if given.baselines and given.only:
        options.error("--baselines are of a whole tour: every scene says which of all it is; leave --only away")
    if given.baselines:
        given.folder, given.recorded = BASELINES, True
    given.folder.mkdir(parents=True, exist_ok=True)
    loop = qasync.QEventLoop(make_application())
    theme.set_theme("light" if given.light else "dark")
    theme.set_zoom(given.zoom)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(live(given))


if __name__ == "__main__":
    main()
