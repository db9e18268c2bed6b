"""The Hugging Face hub: search, a model's facts before it is downloaded, and the download itself. No torch."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from engine.job import Report
from engine.models.inspect import ModelInfo


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model on the hub. `revision` is the commit; `gated` says how access is given ("", "auto" or "manual");
    `updated` is seconds since the epoch. `files`: name and bytes of those a load needs; empty in search results."""

    id: str
    revision: str
    downloads: int = 0
    likes: int = 0
    gated: str = ""
    private: bool = False
    licence: str = ""
    updated: float = 0.0
    tags: tuple[str, ...] = ()
    files: tuple[tuple[str, int], ...] = ()

    @property
    def size(self) -> int:
        return sum(size for _, size in self.files)


def search_hub(query: str, limit: int = 30) -> list[HubModel]:
    """Text-generation models whose names match, the most downloaded first. Raises InvalidInput when the hub cannot be
    reached or refuses."""
    raise NotImplementedError


def hub_model(id: str, revision: str | None = None) -> HubModel:
    """One model's facts and files, its revision resolved to a commit. Raises InvalidInput: no such model or revision,
    gated, no network."""
    raise NotImplementedError


def hub_info(id: str, revision: str | None = None) -> ModelInfo:
    """What `inspect_model` tells of a local model, from its config and the headers of its safetensors on the hub: no
    weights are read."""
    raise NotImplementedError


def download(
    id: str,
    revision: str | None = None,
    *,
    pickles: bool = False,
    report: Report | None = None,
    cancelled: threading.Event | None = None,
) -> Path:
    """Fetches a model into the Hugging Face cache and returns its snapshot folder; blocks.

    What is there already is not fetched again, and a file that was cut short goes on where it stopped. `report` hears
    bytes. Safetensors only, unless `pickles`. Raises InvalidInput (gated, no network, disk full, ...) and
    LoadCancelled.
    """
    raise NotImplementedError
