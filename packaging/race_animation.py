"""Plays static against continuous batching and draws the race that the README begins with.

    python packaging/race_animation.py [--race FILE] [--to PICTURE]

A race during which other programs took the CPU is played again, a few times; `--race` draws one that was kept.
"""

import argparse
import sys
import tempfile
import threading
from pathlib import Path

from app.figure.job import draw
from app.figure.subject import Film, Subject
from engine import Race, load_workload
from engine.compare import LocalHost, RaceResult, compare_race, load_race, parse_lanes, save_race

WORKLOAD, COUNT, LANES = "mixed-lengths", 32, "static:8,continuous:8"
SECONDS, SIZE, FPS = 11.0, (1760, 920), 15  # twice what a page shows, for sharp type
TRIES = 5
PICTURE = Path(__file__).parent / "screenshots" / "race.webp"
LARGEST = 2_000_000  # bytes


def play() -> RaceResult:
    """The race that was least disturbed."""
    workload, lanes = load_workload(WORKLOAD, count=COUNT), parse_lanes(LANES)
    races: list[RaceResult] = []
    with LocalHost() as host:
        while len(races) < TRIES and not (races and not _others(races[-1])):
            races.append(Race(workload, lanes).play(host, lambda event: None, threading.Event()))
    return min(races, key=_others)


def _others(race: RaceResult) -> float:
    """The share of the CPU that other programs took in its lanes that were disturbed."""
    return max((run.others or 0.0 for run in race.lane_runs if run.disturbed), default=0.0)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--race", type=Path, help="a race that was kept")
    options.add_argument("--to", type=Path, default=PICTURE)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = given.race
        if file is None:
            file, race = Path(folder) / "race.bsrace", play()
            save_race(race, file)
            print(compare_race(race).text())
        prompts = len(load_race(file)[0].workload)
        subject = Subject(str(file), title=f"The same {prompts} prompts, two ways of batching")
        draw(Film(subject, SECONDS, SIZE, FPS).checked(), given.to, None, None)
    size = given.to.stat().st_size
    print(f"{given.to}: {size:,} bytes")
    if size >= LARGEST:
        sys.exit(f"it has more than {LARGEST:,} bytes")


if __name__ == "__main__":
    main()
