"""Downloads with real connections: progress, resuming, revisions, and what never counts as whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.job import run_job
from engine.models.catalog import fault
from engine.models.hub import download, hub_model
from engine.progress import LoadProgress
from tests.engine.hub.conftest import SECOND, demo_files
from tests.engine.hub.small_hub import SmallHub

WEIGHTS = "model.safetensors"


def job(id: str, **arguments: Any) -> str:
    """A download whose patience is the test's."""
    wanted = {"id": id, "revision": None, "pickles": False, "code": False, "waits": [0.05], **arguments}
    return str(run_job("engine.models.hub_download:work", wanted))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_download_lands_in_the_cache_as_other_programs_keep_it(hub: SmallHub, tmp_path: Path) -> None:
    heard: list[LoadProgress] = []
    folder = download("batch/stories", report=heard.append)
    assert folder == tmp_path / "hub" / "models--batch--stories" / "snapshots" / SECOND
    assert {name: c for name, c in contents(folder).items() if name != "README.md"} == demo_files()
    assert (folder / WEIGHTS).is_symlink()
    assert (folder.parents[1] / "refs" / "main").read_text() == SECOND
    assert heard[-1].done == heard[-1].total == hub_model("batch/stories").size
    assert fault(folder) == ""
    asked = len(hub.requests)
    assert download("batch/stories", SECOND) == folder
    assert len(hub.requests) == asked, "a commit that is whole needs no hub"
    assert download("batch/stories") == folder
    assert hub.files_asked().count(WEIGHTS) == 1
