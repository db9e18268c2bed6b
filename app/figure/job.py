"""Has figures and animations drawn by a process of its own, on no display: the window goes on meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from app.figure.subject import Figure, Film
from app.figure.width import VECTOR_SHARP, WIDTHS
from app.language import spoken, tr
from engine import InvalidInput
from engine.jobs import LoadProgress, run_job

Report = Callable[[LoadProgress], None]


def draw(what: Figure | Film, path: Path, report: Report | None, cancelled: threading.Event | None) -> None:
    """Writes the file; blocks, and what was there is replaced when that is done. Raises InvalidInput, LoadCancelled and
    JobDied."""
    half = path.with_name(f".{os.getpid()}.{path.name}")
    if isinstance(what, Figure):
        width = WIDTHS[what.width]
        sharp = width.ratio * (1.0 if path.suffix == ".png" else VECTOR_SHARP)
        work, told = "app.figure.work:figure", {"figure": asdict(what)}
    else:
        sharp, work, told = 1.0, "app.figure.work:film", {"film": asdict(what)}
    environment = {"QT_QPA_PLATFORM": "offscreen", "QT_SCALE_FACTOR": f"{sharp:.6f}"}
    try:
        half.touch()  # here, where it costs no wait
        run_job(work, told | {"path": str(half), "language": spoken()}, report, cancelled, environment, light=True)
        half.replace(path)
    except OSError as error:
        why = error.strerror or error
        raise InvalidInput(tr("cannot write {path}: {why}; choose another place", path=path, why=why)) from error
    finally:
        half.unlink(missing_ok=True)
