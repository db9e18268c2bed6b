"""The models that are on this machine: those that ship, those in the Hugging Face cache, and folders. No torch."""

from __future__ import annotations

import contextlib
import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import resources
from engine.checkpoints.hub import cache
from engine.checkpoints.hub.cache import cache_folder, in_units
from engine.checkpoints.info import ModelInfo
from engine.checkpoints.inspect import (
    EMBEDDED,
    EMBEDDED_AWQ,
    EMBEDDED_NAMES,
    INDEX,
    fault,
    inspect_folder,
    inspect_model,
    resolve,
)
from engine.config.specs import InvalidInput, ModelSpec

if TYPE_CHECKING:
    from huggingface_hub import CachedRepoInfo, CachedRevisionInfo, HFCacheInfo

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt")


class Place(StrEnum):
    SHIPPED = "shipped"
    CACHE = "cache"
    FOLDER = "folder"
    HUB = "hub"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that can be chosen. `source` and `revision` are what `ModelSpec` takes; `size` is bytes on disk,
    `changed` seconds since the epoch, `problem` why it cannot be loaded as it lies there, with the remedy ("" where it
    can)."""

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
    named: list[tuple[str, Path]] = []
    for source, name in EMBEDDED.items():
        named.append((source, resources.path(name)))
        if source in EMBEDDED_AWQ:
            awq = resources.path(EMBEDDED_AWQ[source])
            named.append((str(awq), awq))
    return [
        ModelEntry(source, EMBEDDED_NAMES[folder.name], Place.SHIPPED, folder, None, *_measured(folder), fault(folder))
        for source, folder in named
        if folder.is_dir()
    ]


def folder_model(folder: Path) -> ModelEntry:
    """A local folder as an entry; never raises: what is wrong with it is its `problem`."""
    with contextlib.suppress(RuntimeError):  # of a ~name that nobody has
        folder = folder.expanduser()
    measured, problem = (0, 0.0), f"no folder {folder}"
    try:
        if folder.is_dir():
            measured, problem = _measured(folder), fault(folder)
        elif folder.exists():
            problem = f"{folder} is a file: choose the folder that holds it"
    except OSError as error:
        problem = f"{folder} cannot be read: {error.strerror}"
    return ModelEntry(str(folder), folder.name or str(folder), Place.FOLDER, folder, None, *measured, problem)


def _measured(folder: Path) -> tuple[int, float]:
    """Bytes of a folder's own files, and when the latest of them was changed."""
    stats = [path.stat() for path in folder.iterdir() if path.is_file()]
    return sum(s.st_size for s in stats), max((s.st_mtime for s in stats), default=folder.stat().st_mtime)


# The Hugging Face cache.


def cached_models() -> list[ModelEntry]:
    """Models in the Hugging Face cache, an entry a revision, the latest used first; blocks on disk. Datasets, and
    snapshots without a config (tokenizers, say), are left out; downloads cut short, adapters and weights that are no
    safetensors are told by `problem`."""
    info = _scan()
    if info is None:
        return []
    found: list[tuple[float, ModelEntry]] = []
    for repo in info.repos:
        if repo.repo_type == "model":
            found += [(_used(rev), entry) for rev in repo.revisions if (entry := _cached(repo, rev)) is not None]
    whole = {repo.repo_path.name for repo in info.repos}
    for folder in sorted(cache_folder().resolve().glob("models--*")):
        partial = [_partial(folder, plan) for plan in sorted((folder / cache.PLANS).glob("*.json"))]
        if not partial and folder.name not in whole and folder.is_dir():
            partial = [entry for entry in [_damaged(folder)] if entry.size]
        found += [(entry.changed, entry) for entry in partial]
    return [entry for _, entry in sorted(found, key=lambda pair: (-pair[0], -pair[1].changed, pair[1].source))]


def local_info(spec: ModelSpec) -> ModelInfo:
    """A model's facts where its files are here, those of the Hugging Face cache included. Raises InvalidInput where
    they are not."""
    if resolve(spec) is None:
        for entry in cached_models():
            wanted = entry.source == spec.source and spec.revision in (None, entry.revision)
            if wanted and entry.folder is not None and not entry.problem:
                return inspect_folder(entry.folder, spec.source, spec.kv_heads)
    return inspect_model(spec)


def _scan() -> HFCacheInfo | None:
    from huggingface_hub import CacheNotFound, scan_cache_dir

    try:
        return scan_cache_dir(cache_folder())
    except (CacheNotFound, ValueError, OSError):  # nothing was ever downloaded, or it cannot be read
        return None


def _used(revision: CachedRevisionInfo) -> float:
    """When its weights were last read; a config is read to list it."""
    read = [file.blob_last_accessed for file in revision.files if Path(file.file_name).suffix in WEIGHTS]
    return max(read, default=revision.last_modified)


def _cached(repo: CachedRepoInfo, revision: CachedRevisionInfo) -> ModelEntry | None:
    folder, names = revision.snapshot_path, {file.file_name for file in revision.files}
    if (repo.repo_path / cache.PLANS / f"{revision.commit_hash}.json").exists():
        return None  # told as a download cut short
    problem = ""
    if "config.json" in names or "adapter_config.json" in names:
        problem = fault(folder)
        if not names & {"adapter_config.json", INDEX} and not any(Path(n).suffix in WEIGHTS for n in names):
            problem = "only its config is here, no weights: download it"
    elif any(name.endswith(".gguf") for name in names):
        problem = "GGUF, another program's format: choose a model with safetensors"
    else:
        return None
    id, size, changed = repo.repo_id, revision.size_on_disk, revision.last_modified
    problem = problem.replace(f"{folder}: ", "").replace(str(folder), "it")
    return ModelEntry(id, id, Place.CACHE, folder, revision.commit_hash, size, changed, problem)


def _partial(repository: Path, path: Path) -> ModelEntry:
    plan, source = cache.read_plan(path), cache.id_of(repository)
    size, words = 0, "downloaded only in part"
    if plan is not None:
        size = plan.here(repository)
        words += f", {in_units(size)} of {in_units(plan.size)}"
    problem = f"{words}: download it again, and it goes on where it stopped"
    changed = max((p.stat().st_mtime for p in repository.glob("blobs/*")), default=path.stat().st_mtime)
    return ModelEntry(source, source, Place.CACHE, None, path.stem, size, changed, problem)


def _damaged(repository: Path) -> ModelEntry:
    """A repository that huggingface_hub cannot read: another program's download cut short at its beginning, mostly."""
    blobs = [path.stat() for path in repository.glob("blobs/*") if path.is_file()]
    source, size, changed = cache.id_of(repository), sum(s.st_size for s in blobs), repository.stat().st_mtime
    problem = "its folder in the cache is not whole: download it again, or delete it"
    return ModelEntry(source, source, Place.CACHE, None, None, size, changed, problem)


def freed_by(entry: ModelEntry) -> int:
    """Bytes that forgetting a cached entry would free: files that other revisions share stay."""
    return forget(entry, act=False)


def forget(entry: ModelEntry, act: bool = True) -> int:
    """Deletes a cached model's revision; returns the bytes that this frees, or would if it is not to `act`. Raises
    InvalidInput for models that are not in the cache."""
    if entry.place is not Place.CACHE:
        raise InvalidInput(f"{entry.name} is not in the Hugging Face cache: delete its folder yourself")
    repository = cache.repository_of(entry.source)
    if not repository.is_dir():
        raise InvalidInput(f"{entry.name} is not in the Hugging Face cache any more")
    info = _scan()
    kept = {
        file.blob_path.name: revision.commit_hash
        for repo in (info.repos if info else ())
        if repo.repo_path == repository
        for revision in repo.revisions
        for file in revision.files
    }
    freed = 0
    if info is not None and entry.revision is not None and entry.revision in kept.values():
        strategy = info.delete_revisions(entry.revision)
        freed = strategy.expected_freed_size
        if act:
            strategy.execute()
    plan_path = cache.plan_file(repository, entry.revision or "")
    if (plan := cache.read_plan(plan_path)) is not None:
        blobs = [repository / "blobs" / blob for blob in plan.blobs if blob not in kept]
        freed += sum(cache.here_of(blob) for blob in blobs)
        if act:
            for blob in blobs:
                blob.unlink(missing_ok=True)
                cache.part_of(blob).unlink(missing_ok=True)
            plan_path.unlink()
    elif not kept:
        freed += sum(path.stat().st_size for path in repository.glob("blobs/*") if path.is_file())
    left = [*repository.glob("snapshots/*"), *repository.glob(f"{cache.PLANS}/*.json")]
    if act and repository.is_dir() and not left:
        shutil.rmtree(repository)
    return freed
