"""Records the scenes of a tour: each is played once here, and its run or race is kept in the folder `runs` beside it.

python packaging/scene_runs.py [--tour FILE_OR_FOLDER] [--only NAME ...]

A race that other programs disturbed is played again, a few times; what is kept then still says so.
"""

import argparse
import threading
from dataclasses import replace
from pathlib import Path

from app.compare.choice import LaneChoice
from app.stage.scene import Scene
from app.stage.scene_file import RUNS, read_tour
from engine import ModelSpec, Race, load_workload, save_trace
from engine.compare import RACE_SUFFIX, LocalHost, RaceResult, save_race
from engine.trace import RUN_SUFFIX

TRIES = 4


def played(scene: Scene) -> RaceResult:
    lanes = [LaneChoice.parse(text).resolved(ModelSpec()) for text in scene.lanes]
    if scene.beam_width > 1:
        lanes = [replace(lane, beams=scene.beam_width) for lane in lanes]
    workload = load_workload(scene.workload, model_folder=lanes[0].spec.source, count=scene.count)
    workload = replace(workload, name=Path(workload.name).stem)  # and not where it lies here
    race = Race(workload, lanes, kv_tokens=scene.kv_tokens)
    for _ in range(TRIES):
        with LocalHost() as host:
            result = race.play(host, lambda event: None, threading.Event())
        if failed := next(filter(None, map(result.error, range(len(lanes)))), ""):
            raise SystemExit(f"{scene.file}: {failed}")
        disturbed = [result.disturbance(lane) for lane in range(len(lanes)) if result.disturbance(lane)]
        if not disturbed:
            break
    for words in disturbed:
        print(f"{'disturbed':<24}{scene.file.stem}: {words}")
    return result


def record(scene: Scene) -> Path:
    file = scene.file.parent / RUNS / f"{scene.file.stem}{RACE_SUFFIX if scene.races else RUN_SUFFIX}"
    file.parent.mkdir(exist_ok=True)
    result = played(scene)
    if scene.races:
        save_race(result, file)
    else:
        save_trace(result.traces(0)[0], file)
    file.chmod(0o644)
    return file


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tour", type=Path, help="a scene or a folder of them (default: the shipped tour)")
    options.add_argument("--only", nargs="+", metavar="NAME", help="scenes whose files have this in their names")
    given = options.parse_args()
    total = 0
    for scene in read_tour(given.tour):
        if not given.only or any(name in scene.file.stem for name in given.only):
            file = record(scene)
            total += file.stat().st_size
            print(f"{'recorded':<24}{file}  {file.stat().st_size / 1e3:,.0f} kB", flush=True)
    print(f"{'together':<24}{total / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
