"""Plays one workload through every batching mode and draws each lane's timeline for the README.

    python packaging/mode_pictures.py [FOLDER]

Leaves a picture a mode and `modes.json` with the measured figures in the folder, and prints them as a Markdown table.
"""

import os
import sys
import threading
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from tqdm import tqdm

from app.inside.timeline.slots import Timeline
from app.ui.look import theme
from app.window.start.application import make_application
from engine import ModelSpec, Race, Trace, load_workload, measure
from engine.compare import LaneFailed, LaneFinished, LocalHost, compare_race, parse_lane

LANES = "recompute sequential static:8 dynamic:8 continuous-padded:8 continuous:8 chunked:8:budget=64".split()
LANES.append("disaggregated:8")
WORKLOAD = "mixed-lengths"
WIDTH, FOOT, SLOT = 1000, 26, 15.5  # pixels: of the picture, of its time axis, of a slot


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    workload = load_workload(WORKLOAD)
    lanes = [parse_lane(text, ModelSpec("demo")) for text in LANES]
    with tqdm(total=len(lanes)) as bar, LocalHost() as host:

        def tell(event: object) -> None:
            if isinstance(event, (LaneFinished, LaneFailed)):
                bar.update()

        result = Race(workload, lanes).play(host, tell, threading.Event())
    comparison = compare_race(result)
    application = make_application()
    theme.set_theme("dark")
    for i, lane in enumerate(lanes):
        draw(result.traces(i)[0], folder / f"mode-{lane.config.mode}.png")
    (folder / "modes.json").write_text(comparison.json() + "\n")
    print(comparison.markdown())
    application.processEvents()


def draw(trace: Trace, path: Path) -> None:
    """One lane's slots over its whole run, from the first arrival to the last token."""
    slots = trace.header.config.slots
    timeline = Timeline()
    timeline.resize(WIDTH, round(FOOT + SLOT * max(slots, 2)))
    timeline.set_slots(slots)
    timeline.feed(trace.records)
    timeline.set_cursor(None)
    timeline.set_range(0.0, measure(trace).duration)
    timeline.grab().save(str(path))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "screenshots")
