"""Downloads with real connections: progress, resuming, revisions, and what never counts as whole."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import snapshot_download

import resources
from engine.checkpoints.catalog import cached_models
from engine.checkpoints.hub import DOWNLOAD, download, hub_model
from engine.checkpoints.hub.cache import part_of, repository_of
from engine.checkpoints.inspect import fault
from engine.config.specs import InvalidInput, ModelSpec
from engine.jobs.job import run_job
from engine.jobs.progress import LoadCancelled, LoadProgress
from engine.models.loading import load
from tests.children import children
from tests.engine.checkpoints.hub.conftest import FIRST, SECOND, demo_files
from tests.engine.checkpoints.hub.small_hub import TOKEN, Repository, SmallHub, etag_of

WEIGHTS = "model.safetensors"


SIZE = (resources.path("models/stories-draft") / WEIGHTS).stat().st_size


def impatient(id: str = "batch/stories", work: str = f"{DOWNLOAD}:work", **arguments: Any) -> str:
    """A download that soon gives up."""
    wanted = {"id": id, "revision": None, "pickles": False, "code": False, "waits": [0.05], **arguments}
    return str(run_job(work, wanted))


def part_of_weights(id: str = "batch/stories", model: str = "models/stories-draft") -> Path:
    return part_of(repository_of(id) / "blobs" / etag_of(WEIGHTS, demo_files(model)[WEIGHTS]))


def unplug(patch: pytest.MonkeyPatch) -> None:
    patch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


@pytest.fixture
def half(hub: SmallHub) -> SmallHub:
    """The hub, after a download of batch/stories that broke off in the middle of its weights."""
    hub.cuts[WEIGHTS] = [700_000, 0, 0]
    with pytest.raises(InvalidInput, match=r"broke off: the connection|broke off: the hub cannot be reached"):
        impatient()
    hub.reset()
    return hub


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_hub_that_names_a_commit_by_a_path_writes_nowhere(hub: SmallHub, tmp_path: Path) -> None:
    path = "../../../evil"
    hub.repositories["batch/evil"] = Repository("batch/evil", {path: demo_files()}, {"main": path})
    with pytest.raises(InvalidInput, match=r"batch/evil: the hub calls its commit '../../../evil'"):
        impatient("batch/evil")
    del hub.repositories["batch/evil"]
    assert not list(tmp_path.rglob("*.json"))


def test_a_download_lands_in_the_cache_as_other_programs_keep_it(hub: SmallHub, tmp_path: Path) -> None:
    heard: list[LoadProgress] = []
    folder = download("batch/stories", report=heard.append)
    assert folder == tmp_path / "hub" / "models--batch--stories" / "snapshots" / SECOND
    assert contents(folder) == {**demo_files(), "README.md": contents(folder)["README.md"]}  # the hub's own card
    assert (folder / WEIGHTS).is_symlink()
    assert (folder.parents[1] / "refs" / "main").read_text() == SECOND
    assert heard[-1].done == heard[-1].total == hub_model("batch/stories").size
    assert fault(folder) == ""
    asked = len(hub.requests)
    assert download("batch/stories", SECOND) == folder
    assert len(hub.requests) == asked, "a commit that is whole needs no hub"
    assert download("batch/stories") == folder
    assert hub.files_asked().count(WEIGHTS) == 1


def test_a_dropped_connection_is_taken_up_where_it_broke(hub: SmallHub) -> None:
    hub.cuts[WEIGHTS] = [300_000, 0, 500_000]
    folder = Path(impatient())
    assert (folder / WEIGHTS).read_bytes() == demo_files()[WEIGHTS]
    assert hub.sent(WEIGHTS) == SIZE, "no byte twice"
    assert [r.range for r in hub.requests if r.path.endswith(WEIGHTS)] == [
        "", "bytes=300000-", "bytes=300000-", "bytes=800000-",
    ]  # fmt: skip


def test_a_download_that_broke_off_goes_on_with_the_next_call(half: SmallHub) -> None:
    assert part_of_weights().stat().st_size == 700_000
    heard: list[LoadProgress] = []
    folder = download("batch/stories", report=heard.append)
    assert (folder / WEIGHTS).read_bytes() == demo_files()[WEIGHTS]
    assert half.sent(WEIGHTS) == SIZE - 700_000
    assert half.files_asked() == [WEIGHTS], "the small files were whole"
    told = [p for p in heard if p.total]
    assert told[0].done >= 700_000, "what was there counts"
    assert not part_of_weights().exists()
    assert [entry.problem for entry in cached_models()] == [""]


def test_what_broke_off_is_never_taken_for_whole(half: SmallHub, monkeypatch: pytest.MonkeyPatch) -> None:
    (entry,) = cached_models()
    assert entry.problem == (
        "downloaded only in part, 874 KB of 1.75 MB: download it again, and it goes on where it stopped"
    )
    assert (entry.source, entry.revision, entry.folder) == ("batch/stories", SECOND, None)
    assert not (repository_of("batch/stories") / "snapshots").exists()
    unplug(monkeypatch)
    for spec in (ModelSpec("batch/stories"), ModelSpec("batch/stories", revision=SECOND)):
        with pytest.raises(InvalidInput, match=r"downloaded only in part, .* of .*; the hub cannot be reached"):
            load(spec)
    monkeypatch.setenv("HF_ENDPOINT", half.address)
    assert load(ModelSpec("batch/stories")).card.layers > 0


def test_a_cancelled_download_keeps_what_has_come_for_the_next_time(hub: SmallHub) -> None:
    hub.pace = 0.02
    cancelled = threading.Event()

    def on_progress(progress: LoadProgress) -> None:
        if progress.done > 1_000_000:
            cancelled.set()

    with pytest.raises(LoadCancelled):
        download("batch/stories-5m", report=on_progress, cancelled=cancelled)
    part = part_of_weights("batch/stories-5m", "models/stories-5m")
    assert part.stat().st_size > 500_000

    with pytest.raises(LoadCancelled):
        download("batch/stories-5m", cancelled=cancelled)
    hub.reset()
    here = part.stat().st_size
    folder = download("batch/stories-5m")
    assert fault(folder) == ""
    assert hub.sent(WEIGHTS) == (folder / WEIGHTS).stat().st_size - here


def test_a_hub_that_keeps_silent_can_be_given_up(hub: SmallHub) -> None:
    hub.silence = 1.5
    begun = time.monotonic()

    cancelled = threading.Event()

    def stop(progress: LoadProgress) -> None:
        if time.monotonic() > begun + 0.8:
            cancelled.set()

    with pytest.raises(LoadCancelled):
        download("batch/stories", report=stop, cancelled=cancelled)
    assert hub.files_asked() == []


def test_a_download_whose_process_is_killed_goes_on_with_the_next_call(hub: SmallHub) -> None:
    hub.pace = 0.02

    def kill(progress: LoadProgress) -> None:
        if progress.done > 1_000_000:
            for pid in children():
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(InvalidInput, match="ended by signal 9"):
        download("batch/stories-5m", report=kill)
    here = part_of_weights("batch/stories-5m", "models/stories-5m").stat().st_size
    hub.reset()
    folder = download("batch/stories-5m")
    assert hub.sent(WEIGHTS) == (folder / WEIGHTS).stat().st_size - here


def test_a_revision_is_fetched_at_its_commit_and_stays_beside_others(
    hub: SmallHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = download("batch/stories", "v1"), download("batch/stories")
    assert (older.name, newer.name) == (FIRST, SECOND)
    assert hub.files_asked().count(WEIGHTS) == 1, "what both share is fetched once"
    assert all(f"/resolve/{'1' * 40}/" in r.path or f"/resolve/{'2' * 40}/" in r.path
               for r in hub.requests if "/resolve/" in r.path)  # fmt: skip
    unplug(monkeypatch)
    assert download("batch/stories", "v1") == older
    assert download("batch/stories") == newer
    with pytest.raises(InvalidInput, match="cannot fetch 'batch/stories': it is not in the local cache; the hub cann"):
        download("batch/stories", "v2")


def test_offline_a_whole_model_is_loaded_from_the_cache(hub: SmallHub, monkeypatch: pytest.MonkeyPatch) -> None:
    download("batch/shards")
    asked = len(hub.requests)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    card = load(ModelSpec("batch/shards")).card
    assert (card.name, card.layers > 0) == ("batch/shards", True)
    with pytest.raises(InvalidInput, match="not in the local cache; HF_HUB_OFFLINE is set"):
        download("batch/stories")
    assert len(hub.requests) == asked


def test_a_hub_that_knows_no_ranges_sends_the_whole_again(half: SmallHub) -> None:
    half.ranges = False
    assert (download("batch/stories") / WEIGHTS).read_bytes() == demo_files()[WEIGHTS]
    assert half.sent(WEIGHTS) == SIZE


def test_a_part_that_holds_something_else_is_begun_anew(half: SmallHub) -> None:
    part_of_weights().write_bytes(b"another program's bytes")
    assert (download("batch/stories") / WEIGHTS).read_bytes() == demo_files()[WEIGHTS]


def test_a_file_that_arrives_damaged_is_refused(hub: SmallHub) -> None:
    hub.damaged = {WEIGHTS}
    with pytest.raises(InvalidInput, match=r"model.safetensors arrived damaged .* download it again"):
        impatient()
    (entry,) = cached_models()
    assert "only in part" in entry.problem
    hub.reset()
    assert fault(download("batch/stories")) == ""


def test_a_hub_that_is_busy_for_a_moment_is_asked_again(hub: SmallHub) -> None:
    hub.errors[WEIGHTS] = [(503, {})]
    hub.errors["tokenizer.json"] = [(429, {"Retry-After": "0"})]
    assert fault(Path(impatient())) == ""


def test_two_downloads_of_one_model_share_the_work(hub: SmallHub) -> None:
    hub.pace = 0.01
    with ThreadPoolExecutor(2) as pool:
        first, second = (pool.submit(download, "batch/stories") for _ in range(2))
        assert first.result() == second.result()
    assert hub.sent(WEIGHTS) == SIZE


def test_a_gated_model_is_fetched_by_those_let_in(hub: SmallHub, monkeypatch: pytest.MonkeyPatch) -> None:
    page = f"accept its licence on {hub.address}/batch/gated-stories"
    with pytest.raises(InvalidInput, match=f"gated: {page}, then log in with `hf auth login`, or set HF_TOKEN"):
        download("batch/gated-stories")
    assert cached_models() == []
    monkeypatch.setenv("HF_TOKEN", "hf_stranger")
    with pytest.raises(InvalidInput, match=f"your token has no access to it yet: {page}"):
        download("batch/gated-stories")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert fault(download("batch/gated-stories")) == ""
    assert fault(download("batch/secret-stories")) == ""


def test_pickles_are_fetched_only_when_asked_for_and_then_a_load_says_to_convert_them(
    hub: SmallHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="only there as pickle"):
        download("batch/pickled-stories")
    folder = download("batch/pickled-stories", pickles=True)
    assert (folder / "pytorch_model.bin").read_bytes() == b"a pickle"
    with pytest.raises(InvalidInput, match="download it with pickles and convert it yourself"):
        load(ModelSpec("batch/pickled-stories"))
    (entry,) = cached_models()
    assert "convert them to safetensors first" in entry.problem
    unplug(monkeypatch)
    with pytest.raises(InvalidInput, match="convert them to safetensors, and load that folder"):
        load(ModelSpec("batch/pickled-stories"))


def test_a_models_own_code_is_fetched_only_for_a_load_that_trusts_it(hub: SmallHub) -> None:
    assert not (download("batch/stories") / "run.py").exists()
    load(ModelSpec("batch/stories", trust_remote_code=True))
    assert (download("batch/stories") / "run.py").read_bytes() == b"1"


def test_a_model_larger_than_what_is_free_is_refused_before_its_first_byte(hub: SmallHub) -> None:
    with pytest.raises(InvalidInput, match=r"9,095 TB are still to be fetched, and [\d.]+ GB are free on disk: del"):
        download("batch/huge")
    assert hub.files_asked() == []
    assert cached_models() == []


def test_a_disk_that_fills_is_told_and_nothing_counts_as_whole(hub: SmallHub) -> None:
    with pytest.raises(
        InvalidInput, match=r"the disk is full \(File too large\): .* will not be fetched again; delete"
    ):
        impatient(work="tests.engine.checkpoints.hub.small_disk:work", limit=500_000)
    (entry,) = cached_models()
    assert "downloaded only in part" in entry.problem
    here = part_of_weights().stat().st_size
    assert 0 < here <= 500_000
    hub.reset()
    folder = download("batch/stories")
    assert (folder / WEIGHTS).read_bytes() == demo_files()[WEIGHTS]
    assert hub.sent(WEIGHTS) == SIZE - here


def test_a_cache_that_cannot_be_written_is_named(
    hub: SmallHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "file"))
    with pytest.raises(InvalidInput, match=r"cannot be written .*: set HF_HOME to a folder that you may write in"):
        download("batch/stories")


def test_what_another_program_fetched_in_part_is_completed(
    hub: SmallHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository = tmp_path / "hub" / "models--batch--shards"
    folder, blobs = repository / "snapshots" / FIRST, repository / "blobs"
    shards = hub.repositories["batch/shards"].commits[FIRST]
    lacking = "model-00002-of-00002.safetensors"
    folder.mkdir(parents=True)
    blobs.mkdir()
    for name, content in shards.items():
        if name != lacking:
            (blobs / etag_of(name, content)).write_bytes(content)
            (folder / name).symlink_to(Path("../../blobs") / etag_of(name, content))
    (entry,) = cached_models()
    assert lacking in entry.problem
    with monkeypatch.context() as patch:
        unplug(patch)
        with pytest.raises(InvalidInput, match="it was downloaded only in part"):
            download("batch/shards", FIRST)
    assert fault(download("batch/shards")) == ""
    assert hub.files_asked() == [lacking]
    assert [entry.problem for entry in cached_models()] == [""]


def test_other_programs_take_what_was_downloaded_here(hub: SmallHub, tmp_path: Path) -> None:
    folder = download("batch/stories")
    cache = tmp_path / "hub"
    assert snapshot_download("batch/stories", cache_dir=cache, local_files_only=True) == str(folder)
