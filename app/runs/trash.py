"""Files that were deleted and can come back, until the window closes. No Qt in here."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.language import tr
from engine import InvalidInput
from engine.trace import RUN_SUFFIX

BESIDE = ("", "-wal", "-shm")  # what SQLite keeps beside the file of a run that was killed


@dataclass(frozen=True, slots=True)
class Trashed:
    """Where a file was, and where it is."""

    path: Path
    place: Path


class Trash:
    """Each window has a folder of its own below `folder`, named after its process."""

    def __init__(self, folder: Path, forget: Callable[[Path], None] = lambda path: None) -> None:
        """`forget` hears of each file that goes for good, and that is still there."""
        self._all, self.folder, self._forget = folder, folder / str(os.getpid()), forget
        self._count = 0

    def take(self, path: Path) -> Trashed:
        """Raises InvalidInput where the file cannot be moved."""
        self._count += 1
        place = self.folder / f"{self._count} {path.name}"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _move(path, place)
        except OSError as error:
            raise InvalidInput(tr("{path} cannot be deleted: {why}", path=path, why=error.strerror)) from error
        return Trashed(path, place)

    def give_back(self, trashed: Trashed) -> Path:
        """Where it was, or beside what has its name now. Raises InvalidInput."""
        path, count = trashed.path, 2
        while path.exists():
            path, count = trashed.path.with_name(f"{trashed.path.stem} {count}{trashed.path.suffix}"), count + 1
        try:
            _move(trashed.place, path)
        except OSError as error:
            raise InvalidInput(
                tr("{name} cannot come back: {why}", name=trashed.path.name, why=error.strerror)
            ) from error
        return path

    @property
    def size(self) -> int:
        """Bytes that are free only when it is emptied."""
        if not self.folder.is_dir():
            return 0
        return sum(entry.stat().st_size for entry in os.scandir(self.folder))

    def empty(self) -> None:
        """Its own, and what windows left that ended without."""
        for folder in self._all.iterdir() if self._all.is_dir() else ():
            if folder == self.folder or not _alive(folder.name):
                for path in folder.glob(f"*{RUN_SUFFIX}"):
                    self._forget(path)
                shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._all.rmdir()


def _move(path: Path, place: Path) -> None:
    for beside in BESIDE:
        source = path.with_name(path.name + beside)
        if not beside or source.exists():
            source.replace(place.with_name(place.name + beside))


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except OSError:
        pass  # another person's
    return True
