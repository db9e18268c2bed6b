"""`batchscope replay`: a saved run in the window, or its panels as pictures."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.cli.shared.options import has_display
from app.interrupts import uninterrupted
from engine import EngineConfig, InvalidInput, ModelSpec
from engine.compare import RACE_SUFFIX
from engine.jobs import warm_up
from engine.trace import RUN_SUFFIX


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    replay = commands.add_parser("replay", help="show a saved run or race; --pictures: a run's panels as PNG files")
    replay.add_argument(
        "run", type=Path, metavar="RUN", help=f"a {RUN_SUFFIX} or {RACE_SUFFIX} file, as every run and race leaves one"
    )
    replay.add_argument("--present", action="store_true", help="in full screen, for a room (F5)")
    replay.add_argument("--pictures", type=Path, metavar="FOLDER", help="write pictures there and open no window")
    replay.add_argument("--at", type=seconds, metavar="SECONDS", help="the moment on show (default: the end)")
    replay.add_argument("--request", type=int, default=-1, metavar="ID", help="the request that is selected")
    replay.add_argument("--light", action="store_true", help="pictures in the light theme")
    replay.add_argument("--scale", type=float, default=1.0, help="device pixels a pixel of the pictures")
    replay.set_defaults(command=show)


def seconds(text: str) -> float:
    """A moment of the run. Raises ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r}: give seconds from the first prompt, 0 or more")
    return value


def show(options: argparse.Namespace) -> int:
    """Opens the window on the run; where there is no display, pictures are asked for."""
    if not options.run.is_file():
        raise InvalidInput(f"no run at {options.run}; runs are kept as *{RUN_SUFFIX} files, races as *{RACE_SUFFIX}")
    if options.run.suffix == RACE_SUFFIX and options.pictures is not None:
        raise InvalidInput(f"--pictures is for a run: open {options.run} in the window, Export saves its picture")
    if options.present and options.pictures is not None:
        raise InvalidInput("--present: is for the window; leave it out, or leave out --pictures")
    if options.pictures is not None:
        with uninterrupted():
            from app.window.offscreen.pictures import run_pictures

        given = {name: getattr(options, name) for name in ("at", "request", "light", "scale")}
        return run_pictures(options.run, options.pictures, **given)
    if not has_display():
        raise InvalidInput("there is no display to open a window on; write pictures with --pictures FOLDER")
    with uninterrupted():
        from app.window.start.application import open_window

    warm_up()
    return open_window(ModelSpec("demo"), EngineConfig(), run=options.run, present=options.present)
