"""A scene of a tour: a real run, what is said of it, and where to look when. No Qt."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

RUN_PANELS = (
    "streams", "timeline", "step", "kv_map", "attention", "beams", "experts", "memory", "roofline", "machine", "live",
    "requests", "transcript",
)  # fmt: skip
RACE_PANELS = ("slots", "timeline", "step", "kv_map", "memory", "roofline")  # what every lane shows
RACE_PLACES = ("lanes", "curves", "table")  # all that is on the page, and what is below the lanes
MOST_LANES = 4
APART = 0.05  # of a share: however slow a lane was, what is pointed at before it is in the light for so long


@dataclass(frozen=True, slots=True)
class Point:
    """Something to look at: the place `on` the window that is lit, and a line of words.

    `words` may hold figures of what was played, as `{2.steps}`: `app.stage.figures`. It is due at the share `at` of
    the run, in [0, 1], of a lane's own where it is on a lane, or, where `step` is not None, at the end of that step,
    counted from 0: of the lane it is on, or, on all `lanes`, of the first. `request` is selected meanwhile; -1 is none.
    """

    on: str
    words: str
    at: float = 0.0
    step: int | None = None
    request: int = -1


@dataclass(frozen=True, slots=True)
class Scene:
    """One lane is a run on the Play page, two to four are a race on the Compare page.

    `workload` is a shipped one's name or a file's path, `lanes` are texts as `parse_lane` reads them, `kv_tokens` the
    size of every KV pool. A run or race is played again from its start in about `seconds`, with each of `points` in its
    turn, and stands still at the last one. `panels` are shown on Play beside the streams, the first one in front; in a
    race, the first is what every lane shows. `run` is the scene as it was once recorded, None where it was not. `notes`
    are for the speaker alone.
    """

    file: Path
    title: str
    caption: str
    question: str
    answer: str
    workload: str
    lanes: tuple[str, ...]
    panels: tuple[str, ...]
    points: tuple[Point, ...]
    count: int | None = None
    kv_tokens: int | None = None
    beam_width: int = 1
    seconds: float = 10.0
    run: Path | None = None
    notes: str = ""

    @property
    def races(self) -> bool:
        return len(self.lanes) > 1

    @property
    def places(self) -> tuple[str, ...]:
        """What a point may be on."""
        if not self.races:
            return self.panels
        lanes = [f"lane {i + 1}" for i in range(len(self.lanes))]
        return (*lanes, *(f"{lane} figures" for lane in lanes), *RACE_PLACES)

    @property
    def command(self) -> str:
        """What does the same on the command line."""
        words = ["batchscope", "compare", "--workload", self.workload]
        words += ["--count", str(self.count)] if self.count else []
        words += ["--lanes", ",".join(self.lanes)]
        words += ["--kv-tokens", str(self.kv_tokens)] if self.kv_tokens else []
        words += ["--beams", str(self.beam_width)] if self.beam_width > 1 else []
        return shlex.join(words)


def in_words(scene: Scene, say: Callable[[str], str]) -> Scene:
    """The scene with whatever is said of it as `say` puts it: figures in it are still to be filled."""
    return replace(
        scene,
        title=say(scene.title),
        caption=say(scene.caption),
        question=say(scene.question),
        answer=say(scene.answer),
        notes=say(scene.notes),
        points=tuple(replace(point, words=say(point.words)) for point in scene.points),
    )


def shares(points: Sequence[Point], step_ends: Sequence[float], origin: float) -> list[float]:
    """When each point is due, as shares of a run whose steps ended at `step_ends` (s) and that began at `origin` (s).

    A step that the run does not have counts as its last. No point is due before the one ahead of it.
    """
    length = (step_ends[-1] - origin) if len(step_ends) else 0.0
    due: list[float] = []
    for point in points:
        share = point.at
        if point.step is not None and length > 0:
            share = (step_ends[min(point.step, len(step_ends) - 1)] - origin) / length
        due.append(max(share, due[-1] if due else 0.0))
    return due


def in_turn(asked: Sequence[float], fixed: Sequence[bool]) -> list[float]:
    """When each point of a race is due, from the shares of it that they ask for.

    Where all lanes are on one clock, the step of one lane may come before that of a lane named ahead of it. A `fixed`
    point stays at its own moment even so, and is lit in another turn than its place; any other is due after all those
    ahead of it. Two points are `APART`: the later one is put off, since each must be in the light for a while.
    """
    placed: list[float] = []
    for share, stays in zip(asked, fixed, strict=True):
        last = max(placed, default=-APART)
        placed.append(share if stays or share > last else last + APART)
    due = list(placed)
    last = -APART
    for place in sorted(range(len(placed)), key=placed.__getitem__):
        due[place] = last = max(placed[place], last + APART)
    later = 1.0 + APART
    for place in sorted(range(len(due)), key=due.__getitem__, reverse=True):  # so near the end that none is left later
        due[place] = later = max(0.0, min(due[place], later - APART))
    return due


def point_at(due: Sequence[float], share: float) -> int:
    """The place of the point that is on at this share of the run: the latest due; -1 before the first."""
    past = [place for place, moment in enumerate(due) if moment <= share]
    return max(past, key=lambda place: (due[place], place), default=-1)
