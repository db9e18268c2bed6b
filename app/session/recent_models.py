"""Which models were loaded before, and which folders were added: remembered between starts."""

import math
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Signal

import resources
from app import storage
from engine import InvalidInput, ModelSpec

MOST = 12
RECENT_KEY, FOLDERS_KEY, LAST_KEY = "models/recent", "models/folders", "models/last"


@dataclass(frozen=True, slots=True)
class Recent:
    """How a model was loaded last, and when (seconds since the epoch)."""

    spec: ModelSpec
    used: float


def last_loaded() -> ModelSpec:
    """How the model was loaded that was loaded last; the demo where none was, or that cannot be told any more."""
    try:
        (kept,) = storage.kept_list(LAST_KEY)
        return ModelSpec(**kept)
    except (TypeError, ValueError):
        return ModelSpec("demo")


def _same_model(one: ModelSpec, other: ModelSpec) -> bool:
    return (one.source, one.revision) == (other.source, other.revision)


class RecentModels(QObject):
    """Newest first, a model once with its last settings, at most `MOST`; a folder that was loaded is listed from then
    on. The demo as it ships is not kept: it is always on show."""

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.entries: list[Recent] = _kept_entries()
        kept = (Path(text) for text in storage.kept_list(FOLDERS_KEY) if isinstance(text, str) and "\0" not in text)
        self.folders: list[Path] = [folder for folder in kept if folder.is_absolute()]

    def add(self, spec: ModelSpec) -> None:
        """What was loaded now."""
        storage.keep(LAST_KEY, [asdict(spec)])
        if spec == ModelSpec("demo"):
            return
        if Path(spec.source).is_absolute() and Path(spec.source) not in self.folders and not _shipped(spec.source):
            self.add_folder(Path(spec.source))
        others = (entry for entry in self.entries if not _same_model(entry.spec, spec))
        self._set([Recent(spec, time.time()), *others])

    def remove(self, spec: ModelSpec) -> None:
        self._set(entry for entry in self.entries if not _same_model(entry.spec, spec))

    def clear(self) -> None:
        self._set([])

    def put_back(self, entries: Iterable[Recent], folders: list[Path]) -> None:
        """The lists as they were."""
        self._set_folders(list(folders))
        self._set(entries)

    def add_folder(self, folder: Path) -> None:
        """Lists a folder from now on, newest first."""
        folder = folder.expanduser().absolute()
        self._set_folders([folder, *(each for each in self.folders if each != folder)])

    def remove_folder(self, folder: Path) -> None:
        """Takes it off the list; its files stay."""
        self._set_folders([each for each in self.folders if each != folder])

    def _set(self, entries: Iterable[Recent]) -> None:
        self.entries = list(entries)[:MOST]
        storage.keep(RECENT_KEY, [{"used": entry.used, **asdict(entry.spec)} for entry in self.entries])
        self.changed.emit()

    def _set_folders(self, folders: list[Path]) -> None:
        self.folders = folders
        storage.keep(FOLDERS_KEY, [str(folder) for folder in folders])
        self.changed.emit()


def _shipped(source: str) -> bool:
    return Path(source).is_relative_to(resources.path("models"))


def _kept_entries() -> list[Recent]:
    """What an earlier start has written; what cannot be read any more is left out."""
    entries = []
    for kept in storage.kept_list(RECENT_KEY):
        if isinstance(kept, dict):
            try:
                used, spec = float(kept.pop("used", 0.0)), ModelSpec(**kept)
                if math.isfinite(used) and isinstance(spec.revision, str | None):
                    entries.append(Recent(spec, used))
            except (InvalidInput, TypeError, ValueError, AttributeError):
                continue
    return entries[:MOST]
