"""`batchscope export`: a saved run or race as files for other programs, as figures for a paper, as an animation."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.cli.replay import seconds
from app.cli.shared.progress import job_bar
from app.figure.subject import FIGURE_ENDINGS, FILM_ENDINGS, PANELS, RACE, Figure, Film, Subject, check_video
from app.figure.width import WIDTHS, width_words
from app.inside.look import Look
from engine import InvalidInput
from engine.compare import RACE_SUFFIX
from engine.export import KINDS, Source, export, kind_of
from engine.jobs import LoadProgress
from engine.trace import RUN_SUFFIX


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    told = {name: (kind.words, kind.endings) for name, kind in KINDS.items()}
    told |= {"figure": ("a panel, laid out for a page", FIGURE_ENDINGS), "film": ("an animation of it", FILM_ENDINGS)}
    kinds = "\n".join(f"  {name:<10}{words} ({', '.join(endings)})" for name, (words, endings) in told.items())
    also = f"what can be written:\n{kinds}\n\nA race is written with all its lanes, several runs as a comparison."
    form = argparse.RawDescriptionHelpFormatter
    does = "a saved run or race as a report, figures, an animation, a trace for Perfetto, or tables"
    to = commands.add_parser("export", help=does, formatter_class=form, epilog=also)
    to.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help=f"a {RUN_SUFFIX} or {RACE_SUFFIX} file, or several runs"
    )
    to.add_argument("--to", type=Path, nargs="+", required=True, metavar="FILE", help="its ending says what is written")
    what = "where the ending leaves a choice (.json: perfetto, .csv and .parquet: requests)"
    to.add_argument("--what", choices=KINDS, help=what)
    drawn = to.add_argument_group("figures and animations")
    drawn.add_argument("--panel", choices=(RACE, *PANELS), help=f"default: timeline; of a race: {RACE}")
    drawn.add_argument("--lane", type=int, metavar="N", help="one lane of a race alone; the first is 1")
    drawn.add_argument("--request", type=int, default=-1, metavar="ID", help="the request that is selected")
    figure = to.add_argument_group("figures")
    widths = "; ".join(f"{name}: {width_words(name)}" for name in WIDTHS)
    figure.add_argument("--width", choices=WIDTHS, default="column", help=f"{widths} (default: column)")
    figure.add_argument("--at", type=seconds, metavar="SECONDS", help="the moment (default: where it shows most)")
    film = to.add_argument_group("animations")
    usual = Film(Subject(""))
    shape = "x".join(map(str, usual.size))
    long = f"how long it is, with a rest at its end (default: {usual.seconds:g})"
    film.add_argument("--seconds", type=float, default=usual.seconds, metavar="S", help=long)
    film.add_argument("--size", type=_size, default=usual.size, metavar="WxH", help=f"pixels (default: {shape})")
    film.add_argument(
        "--fps", type=int, default=usual.fps, metavar="N", help=f"pictures a second (default: {usual.fps})"
    )
    film.add_argument("--light", action="store_true", help="in the light theme")
    to.set_defaults(command=run_export)


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.lower().replace("×", "x").partition("x")
    if not (width.isdigit() and height.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 1280x720")
    return int(width), int(height)


def run_export(options: argparse.Namespace) -> int:
    """All names are looked at before the run is read, so that a mistake costs no wait."""
    pictures = {path: what for path in options.to if (what := _picture(path, options)) is not None}
    words = {path: KINDS[_kind(path, options)].words for path in options.to if path not in pictures}
    for path in options.to:
        if path.exists():
            raise InvalidInput(f"{path} exists; choose another name, or delete it first")
    with job_bar(False, "what was written before stays", "draw a shorter run") as (bar, interrupted):

        def told(done: int, total: int) -> None:
            bar.loading(LoadProgress(stage, done, total))

        stage = "reading"
        source = Source.read(options.runs, told, interrupted) if words else None
        for path in options.to:
            stage = f"writing {path.name}"
            if path in pictures:
                from app.figure.job import draw

                draw(pictures[path], path, bar.loading, interrupted)
                words[path] = "animation" if isinstance(pictures[path], Film) else "figure"
            elif source is not None:
                export(source, path, options.what, told, interrupted)
    for path in options.to:
        print(f"{path}: {words[path]}, {path.stat().st_size:,} bytes")
    return 0


def _kind(path: Path, options: argparse.Namespace) -> str:
    return kind_of(path, options.what, (*FIGURE_ENDINGS, *FILM_ENDINGS))


def _picture(path: Path, options: argparse.Namespace) -> Figure | Film | None:
    """What is to be drawn, where the name says so. Raises InvalidInput."""
    if options.what is not None or path.suffix not in (*FIGURE_ENDINGS, *FILM_ENDINGS):
        return None
    if len(options.runs) > 1:
        raise InvalidInput(f"{path.name} shows one run or race, and here are {len(options.runs)}; draw them one by one")
    run, lane = options.runs[0], options.lane
    if lane is not None and (run.suffix != RACE_SUFFIX or lane < 1):
        raise InvalidInput(f"--lane {lane}: is of a race, whose lanes are counted from 1")
    look = Look(options.at, options.request)
    subject = Subject(str(run), options.panel or "", None if lane is None else lane - 1, look)
    if path.suffix in FIGURE_ENDINGS:
        return Figure(subject.checked(), options.width)
    check_video()
    return Film(subject, options.seconds, options.size, options.fps, options.light).checked()
