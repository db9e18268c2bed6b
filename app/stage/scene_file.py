"""Scenes are TOML files, a folder of them a tour in the order of their names. What is wrong with one is told with its
file, line and remedy. No Qt."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import resources
from app.stage.figures import check_places
from app.stage.scene import MOST_LANES, RACE_PANELS, RUN_PANELS, Point, Scene
from engine import InvalidInput, list_workloads
from engine.compare import RACE_SUFFIX, parse_lane
from engine.config import check, known_keys, number, one_of, read_file, text, whole
from engine.trace import RUN_SUFFIX
from engine.workloads import PROMPT_FILES

LONGEST = 1 << 20  # bytes of a scene
MOST_COUNT, MOST_TOKENS, MOST_STEPS = 100_000, 1 << 24, 1 << 30
MOST_SECONDS = 600.0
RUNS = "runs"  # the folder of recordings beside scenes
_TOLD = ("title", "caption", "question", "answer")
_TOP = (*_TOLD, "workload", "count", "lanes", "kv_tokens", "beam_width", "panels", "seconds", "run", "notes", "points")
_POINT = ("on", "words", "at", "step", "request")
_HEADER = re.compile(r"\s*\[\[?\s*([\w.-]+)\s*\]\]?")
_KEY = re.compile(r"\s*([\w-]+)\s*=")
_NAMED = re.compile(r"[\w-]+(\[\d+\])?(\.[\w-]+)?")


def shipped_tour() -> Path:
    """The folder of the tour that is shipped."""
    return resources.path("scenes")


def read_tour(source: Path | None = None) -> tuple[Scene, ...]:
    """The scenes of a folder by their files' names, or the one in a file; without `source`, those that are shipped.

    Raises InvalidInput naming the file, the line and the remedy.
    """
    folder = shipped_tour() if source is None else source.expanduser()
    if not folder.is_dir():
        return (read_scene(folder),)
    files = sorted(folder.glob("*.toml"))
    if not files:
        raise InvalidInput(f"no scene in {folder}: scenes are *.toml files; {shipped_tour()} holds some to start from")
    return tuple(read_scene(file) for file in files)


def read_scene(path: Path) -> Scene:
    """The scene in a TOML file. Raises InvalidInput naming the file, the line and the remedy."""
    try:
        written = read_file(path, LONGEST).decode()
        table = tomllib.loads(written)
    except OSError as error:
        raise InvalidInput(f"cannot read the scene {path}: {error.strerror}; check the path") from error
    except ValueError as error:  # not UTF-8, or not TOML: that names line and column
        raise InvalidInput(f"{path}: not TOML: {error}") from error
    try:
        return _scene(table, path)
    except InvalidInput as error:
        raise InvalidInput(f"{path}, line {_line(written, str(error))}: {error}") from None


def _scene(table: dict[str, Any], path: Path) -> Scene:
    known_keys(table, _TOP)
    for key in (*_TOLD, "workload", "lanes", "panels", "points"):
        if key not in table:
            raise InvalidInput(f"has no {key}; every scene has {', '.join((*_TOLD, 'workload', 'lanes', 'panels'))}")
    told = {key: text(key, table[key]).strip() for key in _TOLD}
    for key, words in told.items():
        check(bool(words), key, words, "write a sentence or two")
    lanes = _names(table, "lanes", 'must be a list such as ["static:8"], or ["static:8", "continuous"] for a race')
    check(len(lanes) <= MOST_LANES, "lanes", list(lanes), f"a race has at most {MOST_LANES} lanes")
    for lane in lanes:
        try:
            parse_lane(lane)
        except InvalidInput as error:
            raise InvalidInput(f"lanes: {error}") from None
    panels = _names(table, "panels", 'must be a list such as ["timeline", "kv_map"]')
    for panel in panels:
        one_of("panels", panel, RUN_PANELS if len(lanes) == 1 else RACE_PANELS)
    beams = whole("beam_width", table.get("beam_width", 1), 1, 64)
    check(beams == 1 or len(lanes) == 1, "beam_width", beams, "is for a scene with one lane; leave it out of a race")
    scene = Scene(
        path,
        told["title"],
        told["caption"],
        told["question"],
        told["answer"],
        workload=_workload(table["workload"], path.parent),
        lanes=lanes,
        panels=panels,
        points=(),
        count=whole("count", table["count"], 1, MOST_COUNT) if "count" in table else None,
        kv_tokens=whole("kv_tokens", table["kv_tokens"], 1, MOST_TOKENS) if "kv_tokens" in table else None,
        beam_width=beams,
        seconds=number("seconds", table.get("seconds", 10.0), 0.1, MOST_SECONDS, "must be from 0.1 to 600 seconds"),
        run=_run(table.get("run"), path, RACE_SUFFIX if len(lanes) > 1 else RUN_SUFFIX),
        notes=text("notes", table.get("notes", "")).strip(),
    )
    return replace(scene, points=tuple(_points(table["points"], scene)))


def _names(table: dict[str, Any], key: str, rule: str) -> tuple[str, ...]:
    given = table[key]
    check(isinstance(given, list) and bool(given) and all(isinstance(n, str) and n for n in given), key, given, rule)
    return tuple(given)


@cache
def _shipped_workloads() -> tuple[str, ...]:
    return tuple(card.name for card in list_workloads())


def _workload(given: Any, folder: Path) -> str:
    """A shipped one's name, or the path of a file: beside the scene, where it is not absolute."""
    name = text("workload", given)
    shipped = _shipped_workloads()
    if name in shipped:
        return name
    path, kinds = folder / Path(name).expanduser(), (".toml", *PROMPT_FILES)
    remedy = f"no such workload; use one of {', '.join(shipped)}, or a file beside the scene ({', '.join(kinds)})"
    check(path.suffix in kinds and path.is_file(), "workload", name, remedy)
    return str(path)


def _run(given: Any, scene: Path, suffix: str) -> Path | None:
    """The recording that is named, beside the scene; else the one of the scene's name in the folder `runs`, if any."""
    if given is None:
        usual = scene.parent / RUNS / f"{scene.stem}{suffix}"
        return usual if usual.is_file() else None
    path = scene.parent / Path(text("run", given)).expanduser()
    remedy = (
        f"no such file; name a *{suffix} beside the scene, as a {'race' if suffix == RACE_SUFFIX else 'run'} leaves"
    )
    check(path.suffix == suffix and path.is_file(), "run", given, f"{remedy} one")
    return path


def _points(given: Any, scene: Scene) -> Iterator[Point]:
    check(isinstance(given, list) and bool(given), "points", given, "write a table [[points]] with on and words")
    for i, table in enumerate(given):
        where = f"points[{i}]"
        check(isinstance(table, dict), where, table, "must be a table [[points]]")
        known_keys(table, _POINT, f"{where}: ")
        for key in ("on", "words"):
            if key not in table:
                raise InvalidInput(f"{where}: has no {key}; give one")
        one_of(f"{where}.on", table["on"], scene.places)
        if "at" in table and "step" in table:
            raise InvalidInput(f"{where}.step: at says when, too; give one of the two")
        on_lane = table["on"].startswith("lane")
        if "step" in table and scene.races and not on_lane:
            raise InvalidInput(f"{where}.step: lanes of a race have steps of their own; give at, a share of the race")
        words = text(f"{where}.words", table["words"]).strip()
        try:
            check_places(words, len(scene.lanes))
        except InvalidInput as error:
            raise InvalidInput(f"{where}.words: {error}") from None
        yield Point(
            table["on"],
            words,
            number(f"{where}.at", table.get("at", 0.0), 0.0, 1.0, "must be a share of the run, from 0 to 1"),
            whole(f"{where}.step", table["step"], 0, MOST_STEPS) if "step" in table else None,
            whole(f"{where}.request", table.get("request", -1), -1, MOST_COUNT),
        )


def _line(written: str, error: str) -> int:
    """The line that an error is about, which begins with a key, such as `points[1].at`; 1 where the file has none."""
    unknown = re.match(r"(?:(points\[\d+\]): )?unknown key '([^']*)'", error)
    named = ".".join(filter(None, unknown.groups())) if unknown else ""
    if not named and (found := _NAMED.match(error)):
        named = found[0]
    lines = _lines(written)
    while named not in lines and "." in named:
        named = named.rpartition(".")[0]
    return lines.get(named, 1)


def _lines(written: str) -> dict[str, int]:
    """Where every key and every table stands, by its name as errors have it."""
    lines: dict[str, int] = {}
    table, many = "", 0
    for i, line in enumerate(written.splitlines(), 1):
        if header := _HEADER.match(line):
            many = many + 1 if table.startswith(f"{header[1]}[") else 0
            table = f"{header[1]}[{many}]"
            lines.setdefault(table, i)
            lines.setdefault(header[1], i)
        elif key := _KEY.match(line):
            lines.setdefault(f"{table}.{key[1]}" if table else key[1], i)
    return lines
