"""What is on this machine: the demo models, folders, and a Hugging Face cache laid out by hand."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import resources
from engine.checkpoints.catalog import Place, cached_models, folder_model, forget, freed_by, local_info, shipped_models
from engine.checkpoints.hub.cache import Plan, cache_folder, in_units, part_of, read_plan, repository_of, write_plan
from engine.checkpoints.inspect import inspect_model
from engine.config.specs import InvalidInput, ModelSpec

FIRST, SECOND = "a" * 40, "b" * 40
DRAFT = resources.path("models/stories-draft")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    return tmp_path / "hub"


def keep(id: str, files: dict[str, bytes], commit: str = FIRST, ref: str = "main", used: float = 1e9) -> Path:
    """Lays a snapshot into the cache as huggingface_hub does: blobs, and links to them."""
    repository = repository_of(id)
    snapshot, blobs = repository / "snapshots" / commit, repository / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir(exist_ok=True)
    for name, content in files.items():
        blob = blobs / f"{abs(hash(content)):040x}"
        blob.write_bytes(content)
        os.utime(blob, (used, used))
        (snapshot / name).symlink_to(os.path.relpath(blob, snapshot))
    if ref:
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / ref).write_text(commit)
    return snapshot


def model_files(**others: bytes) -> dict[str, bytes]:
    return {**{path.name: path.read_bytes() for path in DRAFT.iterdir()}, **others}


def test_the_demo_models_ship_whole() -> None:
    shipped = shipped_models()
    assert [entry.source for entry in shipped if "/" not in entry.source] == [
        "demo",
        "demo-draft",
        "demo-moe",
        "demo-mla",
        "demo-hybrid",
    ]
    for entry in shipped:
        assert (entry.place, entry.problem) == (Place.SHIPPED, "")
        assert inspect_model(entry.source).folder == entry.folder
        assert entry.size > 1_000_000


def test_without_a_cache_there_is_nothing_and_no_error(cache: Path) -> None:
    assert cached_models() == []
    cache.write_text("a file where the folder should be")
    assert cached_models() == []


def test_the_cache_is_where_huggingface_hub_has_it(tmp_path: Path) -> None:
    """In a process of its own: huggingface_hub reads the environment when it is imported."""
    settings = [{}, {"HF_HOME": "~/other"}, {"XDG_CACHE_HOME": str(tmp_path)}, {"HF_HUB_CACHE": "$HOME/models"}]
    program = f"""
import importlib, os
from huggingface_hub import constants
from engine.checkpoints.hub.cache import cache_folder
for given in {settings}:
    os.environ.update(given)
    importlib.reload(constants)
    assert str(cache_folder()) == constants.HF_HUB_CACHE, (given, cache_folder(), constants.HF_HUB_CACHE)
    for name in given:
        del os.environ[name]
"""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGINGFACE", "XDG_CACHE"))}
    subprocess.run([sys.executable, "-c", program], env=plain, check=True)


def test_a_cached_revision_is_an_entry_the_latest_used_first(cache: Path) -> None:
    keep("someone/newer", model_files(), used=1.1e9)
    keep("someone/older", model_files(), used=1e9)
    keep("someone/newest", model_files(), SECOND, "v2", used=1.2e9)
    for _ in range(2):  # listing them uses none
        entries = cached_models()
        assert [(e.source, e.revision) for e in entries] == [
            ("someone/newest", SECOND), ("someone/newer", FIRST), ("someone/older", FIRST),
        ]  # fmt: skip
    assert (entries[2].size, entries[2].changed) == (sum(path.stat().st_size for path in DRAFT.iterdir()), 1e9)
    for entry in entries:
        assert (entry.place, entry.problem) == (Place.CACHE, "")
        assert entry.folder is not None
        assert inspect_model(str(entry.folder)).layers == inspect_model("demo-draft").layers


def test_the_facts_of_a_hub_id_are_those_of_its_files_in_the_cache(cache: Path) -> None:
    keep("someone/something", model_files(), used=1e9)
    keep("someone/something", {"config.json": b'{"model_type": "llama"}'}, SECOND, "v2", used=1.1e9)
    found = local_info(ModelSpec("someone/something", revision=FIRST))
    assert (found.name, found.tensors) == ("someone/something", inspect_model("demo-draft").tensors)
    for spec in (ModelSpec("someone/something", revision=SECOND), ModelSpec("someone/else")):
        with pytest.raises(InvalidInput, match="on the hub"):
            local_info(spec)
    assert local_info(ModelSpec("demo")) == inspect_model("demo")


def test_what_is_no_language_model_is_left_out(cache: Path) -> None:
    keep("someone/tokenizer", {"tokenizer.json": b"{}"})
    (cache / "datasets--someone--stories" / "snapshots" / FIRST).mkdir(parents=True)
    assert cached_models() == []


INDEX = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"config.json": b'{"model_type": "llama"}'}, "only its config is here, no weights: download it"),
        ({"config.json": b'{"model_type": "llama"}', "pytorch_model.bin": b"1"}, "weights only as pickle (pytorch_mo"),
        ({"config.json": b"{", "model.safetensors": b"1"}, "cannot be read"),
        ({"adapter_config.json": b'{"base_model_name_or_path": "org/base"}'}, "an adapter of org/base, no model of it"),
        ({"stories.gguf": b"GGUF"}, "GGUF, another program's format"),
        (
            {"config.json": b'{"model_type": "llama"}', "model-00001-of-00002.safetensors": b"1",
             "model.safetensors.index.json": INDEX.encode()},
            "model-00002-of-00002.safetensors",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_as_it_lies_there_says_why(cache: Path, files: dict[str, bytes], words: str) -> None:
    keep("someone/something", files)
    (entry,) = cached_models()
    assert words in entry.problem
    assert "\n" not in entry.problem


def test_a_download_cut_short_is_told_with_how_much_is_here(cache: Path) -> None:
    plan = Plan(FIRST, "main", {"config.json": (10, "1" * 40), "model.safetensors": (4 << 20, "2" * 64)})
    repository = repository_of("someone/half")
    write_plan(repository, plan)
    assert read_plan(repository / "partial" / f"{FIRST}.json") == plan
    blobs = repository / "blobs"
    blobs.mkdir()
    (blobs / ("1" * 40)).write_bytes(b"0123456789")
    part_of(blobs / ("2" * 64)).write_bytes(bytes(1 << 20))
    (entry,) = cached_models()
    assert entry.problem == "downloaded only in part, 1 MB of 4 MB: download it again, and it goes on where it stopped"
    assert (entry.source, entry.revision, entry.size) == ("someone/half", FIRST, (1 << 20) + 10)
    assert freed_by(entry) == forget(entry) == (1 << 20) + 10
    assert not repository.exists()


def test_a_download_cut_short_beside_a_whole_revision_leaves_that_alone(cache: Path) -> None:
    snapshot = keep("someone/newer", model_files())
    repository = repository_of("someone/newer")
    shared = (snapshot / "config.json").resolve()
    write_plan(repository, Plan(SECOND, "v2", {"config.json": (717, shared.name), "model.safetensors": (99, "2" * 64)}))
    part_of(repository / "blobs" / ("2" * 64)).write_bytes(b"12345")
    half = next(entry for entry in cached_models() if entry.revision == SECOND)
    assert forget(half) == 5
    (entry,) = cached_models()
    assert (entry.revision, entry.problem) == (FIRST, "")


def test_a_repository_that_cannot_be_read_is_told_and_can_be_deleted(cache: Path) -> None:
    (cache / "models--someone--broken" / "blobs").mkdir(parents=True)
    (cache / "models--someone--broken" / "blobs" / "1234.incomplete").write_bytes(b"123")
    (entry,) = cached_models()
    assert entry.problem == "its folder in the cache is not whole: download it again, or delete it"
    assert forget(entry) == 3
    assert cached_models() == []


def test_forgetting_a_revision_frees_what_no_other_shares(cache: Path) -> None:
    extra = b"---\nlicense: mit\n---"
    keep("someone/newer", model_files())
    keep("someone/newer", model_files(**{"README.md": extra}), SECOND, "v2")
    newer = next(entry for entry in cached_models() if entry.revision == SECOND)
    assert freed_by(newer) == len(extra)
    assert len(cached_models()) == 2, "asking deletes nothing"
    assert forget(newer) == len(extra)
    (older,) = cached_models()
    assert forget(older) == older.size
    assert cached_models() == []
    assert not repository_of("someone/newer").exists()
    with pytest.raises(InvalidInput, match="not in the Hugging Face cache any more"):
        forget(older)
    with pytest.raises(InvalidInput, match="delete its folder yourself"):
        forget(shipped_models()[0])


def test_a_folder_says_what_is_wrong_with_it_and_never_raises(tmp_path: Path, demo_copy: Path) -> None:
    whole = folder_model(demo_copy)
    assert (whole.name, whole.place, whole.problem) == ("model", Place.FOLDER, "")
    assert whole.size == sum(path.stat().st_size for path in demo_copy.iterdir())
    (demo_copy / "model.safetensors").unlink()
    assert "no *.safetensors" in folder_model(demo_copy).problem
    shutil.rmtree(demo_copy)
    assert folder_model(demo_copy).problem == f"no folder {demo_copy}"
    (tmp_path / "file").write_text("")
    assert "is a file" in folder_model(tmp_path / "file").problem
    assert "cannot be read" in folder_model(tmp_path / ("a" * 300)).problem
    assert folder_model(Path("~nobody-of-that-name/x")).problem
    assert cache_folder() != demo_copy


@pytest.mark.parametrize(("size", "words"), [(717, "717 B"), (1 << 20, "1 MB"), (4.62e9, "4.3 GB"), (1e16, "9,095 TB")])
def test_bytes_are_told_in_three_figures(size: float, words: str) -> None:
    assert in_units(size) == words
