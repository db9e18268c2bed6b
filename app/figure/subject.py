"""What is drawn: a panel of the run in a file, or of a race's lanes. As JSON it goes to the process that draws. No
Qt in here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from app.inside.insights import INSIGHTS
from app.inside.look import Look
from app.language import tr
from engine import InvalidInput
from engine.compare import RACE_SUFFIX

RACE = "race"
PANELS = tuple(insight.name for insight in INSIGHTS)
FIGURE_ENDINGS = (".pdf", ".svg", ".png")
FILM_ENDINGS = (".webm", ".gif", ".webp")


@dataclass(frozen=True, slots=True)
class Subject:
    """`panel` of what `file` holds, as `look` says; of a race `lane` is the one that is drawn alone, None: all of them.
    `title` and `kept` are what a person calls it and where it is kept, where the file is but a copy of that."""

    file: str
    panel: str = ""
    lane: int | None = None
    look: Look = Look()
    title: str = ""
    kept: str = ""

    def checked(self) -> Subject:
        """With a panel that there is. Raises InvalidInput."""
        lanes = self.file.endswith(RACE_SUFFIX) and self.lane is None
        known = (RACE, *PANELS) if lanes else PANELS
        panel = self.panel or known[0]
        if panel not in known:
            raise InvalidInput(f"panel {panel!r}: {'a race' if lanes else 'a run'} has {', '.join(known)}")
        return replace(self, panel=panel)


@dataclass(frozen=True, slots=True)
class Figure:
    """A subject at one of `WIDTHS`."""

    subject: Subject
    width: str = "column"


REST = 0.22  # of an animation's time, in which its end stands still
LONGEST, SMALLEST, LARGEST, FASTEST = 120.0, (320, 180), 3840, 60
DESIGN = 880  # pixels of the design from side to side


@dataclass(frozen=True, slots=True)
class Film:
    """A subject from its first request to its last token within `seconds`, a part of which is a rest at the end."""

    subject: Subject
    seconds: float = 10.0
    size: tuple[int, int] = (1280, 720)
    fps: int = 20
    light: bool = False

    @property
    def frames(self) -> int:
        return max(2, round(self.seconds * self.fps))

    @property
    def zoom(self) -> float:
        """So large is everything that its width holds what `DESIGN` pixels do."""
        return self.size[0] / DESIGN

    def share(self, frame: int) -> float:
        """How far the run has come in a frame, 0 to 1; then it rests."""
        return min(1.0, frame / max(1, round((self.frames - 1) * (1 - REST))))

    def checked(self) -> Film:
        """Raises InvalidInput."""
        (width, height), (narrow, low) = self.size, SMALLEST
        if not 0.5 <= self.seconds <= LONGEST:
            raise InvalidInput(f"seconds={self.seconds:g}: an animation lasts from 0.5 to {LONGEST:g} seconds")
        if not 1 <= self.fps <= FASTEST:
            raise InvalidInput(f"fps={self.fps}: must be from 1 to {FASTEST}")
        if not (narrow <= width <= LARGEST and low <= height <= LARGEST) or width % 2 or height % 2:
            why = f"sides are even numbers of pixels, from {narrow}x{low} to {LARGEST}x{LARGEST}"
            raise InvalidInput(f"size={width}x{height}: {why}")
        return replace(self, subject=self.subject.checked())


def check_video() -> None:
    """Raises InvalidInput where nothing here can write an animation."""
    if find_spec("av") is None:
        raise InvalidInput(tr("animations are written by PyAV: pip install 'batchscope[video]'"))


def figure_of(told: Mapping[str, Any]) -> Figure:
    """What `asdict` made of it, by way of JSON."""
    return Figure(_subject(told["subject"]), told["width"])


def film_of(told: Mapping[str, Any]) -> Film:
    """As `figure_of`."""
    return Film(**{**told, "subject": _subject(told["subject"]), "size": tuple(told["size"])})


def _subject(told: Mapping[str, Any]) -> Subject:
    look = told["look"]
    sight = tuple(look["sight"]) if look["sight"] is not None else None
    return Subject(**{**told, "look": Look(**{**look, "sight": sight})})
