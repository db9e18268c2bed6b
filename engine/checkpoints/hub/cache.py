"""The Hugging Face cache on disk: where it is, and what a download that is under way will bring to it. No torch."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

PLANS = "partial"  # folder of a cached repository that holds the plans of downloads that are not whole yet


def cache_folder() -> Path:
    """Where downloaded models are kept: as huggingface_hub has it, from HF_HUB_CACHE, HF_HOME or XDG_CACHE_HOME."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if given := os.environ.get(name):
            return Path(os.path.expandvars(given)).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or str(Path(cache) / "huggingface")
    return Path(os.path.expandvars(home)).expanduser() / "hub"


def repository_of(id: str) -> Path:
    """The folder of a hub model in the cache, which has `blobs`, `snapshots` and `refs`."""
    return cache_folder().resolve() / "--".join(["models", *id.split("/")])


def id_of(repository: Path) -> str:
    return repository.name.removeprefix("models--").replace("--", "/")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a download brings: `files` maps names to (bytes, name of the blob). `revision` is what was asked for."""

    commit: str
    revision: str
    files: dict[str, tuple[int, str]]

    @property
    def blobs(self) -> dict[str, int]:
        """Bytes of each blob: files that are alike share one."""
        return {blob: size for size, blob in self.files.values()}

    @property
    def size(self) -> int:
        return sum(self.blobs.values())

    def here(self, repository: Path) -> int:
        """Bytes of it that are on disk."""
        return sum(here_of(repository / "blobs" / blob) for blob in self.blobs)


def here_of(blob: Path) -> int:
    """Bytes of a blob, or of what has come of it."""
    for path in (blob, part_of(blob)):
        if path.is_file():
            return path.stat().st_size
    return 0


def part_of(blob: Path) -> Path:
    """Where a blob grows until it is whole."""
    return blob.with_name(blob.name + ".incomplete")


def plan_file(repository: Path, commit: str) -> Path:
    """It lies there from a download's first byte until its snapshot is whole."""
    return repository / PLANS / f"{commit}.json"


def read_plan(path: Path) -> Plan | None:
    try:
        plan = json.loads(path.read_text(encoding="utf-8"))
        files = {str(name): (int(size), str(blob)) for name, (size, blob) in plan["files"].items()}
        return Plan(str(plan["commit"]), str(plan["revision"]), files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write_plan(repository: Path, plan: Plan) -> None:
    path = plan_file(repository, plan.commit)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(plan)), encoding="utf-8")


def in_units(size: float) -> str:
    """Bytes for people, three figures in steps of 1,024: "4.62 GB"."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:,.3g} TB" if size < 1000 else f"{size:,.0f} TB"
