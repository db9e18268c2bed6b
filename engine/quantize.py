"""Making AWQ checkpoints, by autoawq in a child process (`engine.awq_maker`). No torch here."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from engine.job import Report

GROUPS = (32, 64, 128)


@dataclass(frozen=True, slots=True)
class AwqRecipe:
    """`source` and `revision` as in ModelSpec; `calibration` is a text file, one sample a paragraph or line (or the
    name
    of a shipped text); `out` a folder that must not exist or be empty. `group` inputs share a scale; at most `samples`
    calibration samples of at most `length` tokens are used."""

    source: str
    calibration: str
    out: Path
    revision: str | None = None
    group: int = 128
    samples: int = 128
    length: int = 512


def check_recipe(recipe: AwqRecipe) -> None:
    """Raises InvalidInput for what can be known beforehand: autoawq missing, an architecture it cannot do (with the
    reason), widths that the group does not divide, an `out` that holds something, no calibration text, a full disk."""
    raise NotImplementedError


def quantize_to_awq(recipe: AwqRecipe, report: Report | None = None, cancelled: threading.Event | None = None) -> Path:
    """Makes the checkpoint and returns its folder; blocks for minutes. `report` hears layers done of all. Nothing is
    left
    in `out` when it fails or is cancelled. Raises InvalidInput, LoadCancelled, JobDied."""
    raise NotImplementedError
