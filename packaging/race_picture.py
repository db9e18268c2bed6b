"""Draws the picture of a race that was kept: that against a server that is not ours, and that of a target for gaps.

python packaging/race_picture.py RACE [FILE]

RACE was kept by `batchscope compare LANES --out RACE`: `continuous:8 server=URL:name=llama.cpp`, or, for
`compare-target.png`, `chunked:16 chunked:16:budget=128 chunked:16:itl=0.004 --workload long-prompt --repeats 3`.
"""

import argparse
import asyncio
import os
import tempfile
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import qasync
from PIL import Image

from app.compare.page import ComparePage
from app.session.lessee import Phase
from app.window.main_window import COMPARE
from app.window.start.application import make_application, unattended_window, until
from engine import EngineConfig

SIZE, PATIENCE, COLORS = (1440, 860), 30.0, 255
OUT = Path(__file__).parent / "screenshots" / "race-server.png"


def still(page: ComparePage | None) -> bool:
    if page is None or page.race.phase is not Phase.OVER or page.race.report is None:
        return False
    return all(lane.playback.caught_up for lane in page.race.lanes)


async def draw(race: Path, path: Path) -> None:
    async with unattended_window(SIZE) as window:
        window.start(None, EngineConfig())
        window.show_page(COMPARE)
        assert window.compare is not None
        window.compare.open_race(race)
        if not await until(lambda: still(window.compare), PATIENCE):
            raise TimeoutError
        window.compare.notice.hide()
        await asyncio.sleep(1.0)  # until everything is drawn as it will stand
        window.grab().toImage().save(str(path))
    with Image.open(path) as drawn:
        drawn.convert("RGB").quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("race", type=Path)
    options.add_argument("file", nargs="?", type=Path, default=OUT)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BATCHSCOPE_DATA"] = folder
        make_application()
        qasync.run(draw(given.race.absolute(), given.file))
    print(f"{given.file}: {given.file.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
