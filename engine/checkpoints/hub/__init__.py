"""The Hugging Face hub: search, a model's facts before it is downloaded, and the download itself. No torch.

Each call is a job in a child process (engine.checkpoints.hub.client, engine.checkpoints.hub.resumable_download).
"""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.checkpoints.inspect import ModelInfo, inspect_parts
from engine.config.specs import InvalidInput
from engine.jobs.job import JobDied, Report, run_job

CLIENT = "engine.checkpoints.hub.client"
DOWNLOAD = "engine.checkpoints.hub.resumable_download"


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model on the hub. `revision` is the commit; `gated` says how access is given ("", "auto" or "manual");
    `updated` is seconds since the epoch. `files`: name and bytes of those a load needs; empty in search results, as is
    `problem`: why it cannot be loaded, with the remedy."""

    id: str
    revision: str
    downloads: int = 0
    likes: int = 0
    gated: str = ""
    private: bool = False
    licence: str = ""
    updated: float = 0.0
    files: tuple[tuple[str, int], ...] = ()
    problem: str = ""

    @property
    def size(self) -> int:
        return sum(size for _, size in self.files)


def search_hub(query: str, limit: int = 30) -> list[HubModel]:
    """Text-generation models with safetensors whose names match, the most downloaded first; blocks. Raises InvalidInput
    when the hub cannot be reached or refuses."""
    return [_model(found) for found in _ask(f"{CLIENT}:search", {"query": query.strip(), "limit": limit})]


def hub_model(id: str, revision: str | None = None) -> HubModel:
    """One model's facts and files, its revision resolved to a commit; blocks. A gated model's facts are told to anyone.
    Raises InvalidInput: no such model or revision, private, no network."""
    return _model(_ask(f"{CLIENT}:facts", {"id": id, "revision": revision}))


def hub_info(id: str, revision: str | None = None, kv_heads: int | str = "auto") -> ModelInfo:
    """What `inspect_model` tells of a local model, from its config and the headers of its safetensors on the hub: no
    weights are read; blocks. Raises InvalidInput as `hub_model`, and for a gated model without access."""
    told = _ask(f"{CLIENT}:parts", {"id": id, "revision": revision})
    headers = {name: (tuple(shape), dtype) for name, (shape, dtype) in told["tensors"].items()}
    return inspect_parts(
        *(told["config"], headers, id),
        kv_heads=kv_heads,
        chat=told["chat"],
        licence=told["licence"],
        place=f"config.json of {id}",
    )


def download(
    id: str,
    revision: str | None = None,
    *,
    pickles: bool = False,
    code: bool = False,
    report: Report | None = None,
    cancelled: threading.Event | None = None,
) -> Path:
    """Fetches a model into the Hugging Face cache and returns its snapshot folder; blocks.

    What is there already is not fetched again, and a file that was cut short goes on where it stopped. `report` hears
    bytes, those that were there included. Safetensors only: `pickles` takes *.bin where there are none, which a load
    refuses until they are converted; `code` takes *.py too. Where the hub does not answer, a snapshot that is whole
    does. Raises InvalidInput (gated, no network, disk full, ...) and LoadCancelled; what has come stays for next time.
    """
    arguments = {"id": id, "revision": revision, "pickles": pickles, "code": code}
    return Path(_ask(f"{DOWNLOAD}:work", arguments, report, cancelled))


def _ask(work: str, arguments: Any, report: Report | None = None, cancelled: threading.Event | None = None) -> Any:
    try:
        return run_job(work, arguments, report, cancelled, light=True)
    except JobDied as error:
        raise InvalidInput(f"the hub could not be asked: {error}") from error


def _model(told: dict[str, Any]) -> HubModel:
    files = tuple((name, size) for name, size in told["files"])
    return HubModel(**{**told, "files": files})
