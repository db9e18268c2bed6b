"""`batchscope tour`: scenes of real runs, told and shown one after another in the window."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.cli.shared.options import has_display
from app.interrupts import uninterrupted
from app.stage.scene_file import read_tour
from engine import EngineConfig, InvalidInput, ModelSpec
from engine.jobs import warm_up


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tour = commands.add_parser("tour", help="how inference works, in scenes of real runs; or scenes of your own")
    what = "a scene (.toml), or a folder of them in the order of their names (default: the shipped tour)"
    tour.add_argument("scenes", type=Path, nargs="?", metavar="FILE_OR_FOLDER", help=what)
    tour.add_argument("--list", action="store_true", help="print each scene with the command that does the same")
    tour.add_argument("--recorded", action="store_true", help="replay every scene's recording; no model is loaded")
    tour.add_argument("--present", action="store_true", help="in full screen, for a room (F5)")
    tour.set_defaults(command=show)


def show(options: argparse.Namespace) -> int:
    """Every scene is read before anything begins, so that a mistake costs no wait."""
    scenes = read_tour(options.scenes)
    if options.list:
        for number, scene in enumerate(scenes, 1):
            print(f"{number:>3}  {scene.title}\n     {scene.command}")
        return 0
    if not has_display():
        raise InvalidInput("there is no display to open a window on; --list prints commands that do without one")
    with uninterrupted():
        from app.window.start.application import open_window

    if not options.recorded:
        warm_up()
    given = ModelSpec("demo"), EngineConfig()
    return open_window(*given, tour=scenes, recorded=options.recorded, present=options.present)
