"""The models that are on this machine: those that ship, those in the Hugging Face cache, and folders. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Place(StrEnum):
    SHIPPED = "shipped"
    CACHE = "cache"
    FOLDER = "folder"
    HUB = "hub"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that can be chosen. `source` and `revision` are what `ModelSpec` takes; `size` is bytes on disk,
    `changed`
    seconds since the epoch, `problem` why it cannot be loaded as it lies there, with the remedy ("" where it can)."""

    source: str
    name: str
    place: Place
    folder: Path | None = None
    revision: str | None = None
    size: int = 0
    changed: float = 0.0
    problem: str = ""


def shipped_models() -> list[ModelEntry]:
    """The demo models."""
    raise NotImplementedError


def cached_models() -> list[ModelEntry]:
    """Models in the Hugging Face cache, an entry a revision, the latest used first; blocks on disk. Datasets, and
    snapshots without config or weights (incomplete downloads, adapters, tokenizers), are told by `problem` or left
    out."""
    raise NotImplementedError


def folder_model(folder: Path) -> ModelEntry:
    """A local folder as an entry; never raises: what is wrong with it is its `problem`."""
    raise NotImplementedError
