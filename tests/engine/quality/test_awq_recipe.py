"""AWQ checkpoints made here by autoawq: what comes out, what is refused beforehand, and that nothing is left behind."""

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file

import engine.quality.awq_recipe
import resources
from engine import InvalidInput, ModelSpec, quantize_to_awq
from engine.checkpoints import inspect_model, why_unsupported
from engine.jobs import JobDied, LoadCancelled, LoadProgress
from engine.models.loading import load
from engine.quality import AwqRecipe, check_recipe, origin_of, suited_calibration
from engine.quality.awq_recipe import REFUSED, autoawq_types, calibration_ids, copied_files
from tests.engine.tiny_models import TinyModel, _llama_like, change_config, save_tiny_model

QWEN: TinyModel = _llama_like("Qwen2", hidden_size=128, std=0.12)

AWQ = str(resources.path("models/stories-5m-awq"))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen2 with biases, whose widths groups of 64 divide."""
    folder = tmp_path_factory.mktemp("original")
    save_tiny_model(QWEN, folder)
    (folder / "LICENSE").write_text("ours")
    return folder


@pytest.fixture
def recipe(original: Path, tmp_path: Path) -> AwqRecipe:
    return AwqRecipe(str(original), "calibration-stories", tmp_path / "out", group=64, samples=8, length=128)


@dataclass
class Made:
    folder: Path
    heard: list[LoadProgress]


@pytest.fixture(scope="module")
def made(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A checkpoint made once; its folder is inside one that does not exist before."""
    heard: list[LoadProgress] = []
    out = tmp_path_factory.mktemp("made") / "deeper" / "checkpoint"
    recipe = AwqRecipe(str(original), "calibration-stories", out, group=64, samples=8, length=128)
    return Made(quantize_to_awq(recipe, heard.append), heard)


def test_a_checkpoint_is_a_folder_that_other_engines_read_too(made: Made, original: Path) -> None:
    config = json.loads((made.folder / "config.json").read_text())
    assert config["quantization_config"] == {
        "quant_method": "awq", "version": "gemm", "bits": 4, "group_size": 64, "zero_point": True,
        "modules_to_not_convert": None,
    }  # fmt: skip
    assert config["use_cache"]
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json", "LICENSE"):
        assert (made.folder / name).read_bytes() == (original / name).read_bytes()
    tensors = load_file(made.folder / "model.safetensors")
    down = "model.layers.0.mlp.down_proj"
    assert tensors[f"{down}.qweight"].shape == (128, 128 // 8)
    assert tensors[f"{down}.scales"].shape == (128 // 64, 128)
    assert f"{down}.weight" not in tensors
    assert (made.folder / "model.safetensors").stat().st_mode & 0o044, "others may read it, as any file of theirs"


def test_a_checkpoint_says_what_it_was_made_of(made: Made, original: Path) -> None:
    told = json.loads((made.folder / "quantized_from.json").read_text())
    assert told["source"] == str(original)
    assert (told["calibration"], told["samples"], told["group"]) == ("calibration-stories", 8, 64)
    assert told["versions"]["autoawq"].startswith("0.2")
    assert origin_of(made.folder) == ModelSpec(str(original))
    assert origin_of(original) is None


def test_progress_counts_the_layers(made: Made) -> None:
    layers = [(p.done, p.total) for p in made.heard if p.stage.startswith("quantizing layer")]
    assert layers == [(0, 2), (1, 2)]
    assert made.heard[0].stage == "reading the calibration text"
    assert made.heard[-1].stage == "writing the checkpoint"


def test_nothing_but_the_checkpoint_is_left(made: Made) -> None:
    assert [path.name for path in made.folder.parent.iterdir()] == [made.folder.name]


def test_a_checkpoint_loads_here_and_is_near_its_original(made: Made, original: Path) -> None:
    ids = torch.arange(1, 100)[None]

    def logits(folder: Path) -> torch.Tensor:
        model = load(ModelSpec(str(folder), dtype="float32"))
        assert model.card.quantization == ("awq" if folder == made.folder else "none")
        model.module.set_attn_implementation("eager")
        with torch.inference_mode():
            return model.module(input_ids=ids, use_cache=False).logits[0].double()

    before, after = logits(original), logits(made.folder)
    assert torch.corrcoef(torch.stack([before.flatten(), after.flatten()]))[0, 1] > 0.9


def test_cancelling_leaves_nothing(recipe: AwqRecipe) -> None:
    cancelled = threading.Event()

    def stop_at_the_first_layer(progress: LoadProgress) -> None:
        if progress.total:
            cancelled.set()

    with pytest.raises(LoadCancelled):
        quantize_to_awq(replace(recipe, out=recipe.out / "in" / "new folders"), stop_at_the_first_layer, cancelled)
    assert list(recipe.out.parent.iterdir()) == []


def test_a_process_that_is_ended_while_libraries_are_imported_leaves_nothing(recipe: AwqRecipe) -> None:
    command = [sys.executable, "-m", "app", "quantize", recipe.source, "--out", str(recipe.out), "--group", "64"]
    parent = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        deadline, children = time.monotonic() + 30, list[psutil.Process]()
        while not children and time.monotonic() < deadline:
            children = psutil.Process(parent.pid).children()
            time.sleep(0.02)
        (child,) = children
    finally:
        parent.terminate()
        parent.wait()
    child.wait(20)
    assert list(recipe.out.parent.iterdir()) == []


def test_a_failure_leaves_nothing_and_says_who_stopped(recipe: AwqRecipe, original: Path, tmp_path: Path) -> None:
    broken, folder = tmp_path / "broken", tmp_path / "results"
    shutil.copytree(original, broken)
    tensors = load_file(broken / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"].fill_(float("nan"))
    save_file(tensors, broken / "model.safetensors", {"format": "pt"})
    folder.mkdir()
    with pytest.raises(JobDied, match="autoawq stopped"):
        quantize_to_awq(replace(recipe, source=str(broken), out=folder / "out"))
    assert list(folder.iterdir()) == []


def test_weights_that_are_not_the_configs_are_refused_and_not_made_up(recipe: AwqRecipe, original: Path) -> None:
    broken = recipe.out.parent / "broken"
    shutil.copytree(original, broken)
    tensors = load_file(broken / "model.safetensors")
    del tensors["model.layers.1.self_attn.q_proj.bias"]
    save_file(tensors, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(InvalidInput, match=r"missing model\.layers\.1\.self_attn\.q_proj\.bias"):
        quantize_to_awq(replace(recipe, source=str(broken)))
    assert not recipe.out.exists()


def test_a_broken_tokenizer_is_refused_beforehand(recipe: AwqRecipe, original: Path) -> None:
    broken = recipe.out.parent / "broken"
    shutil.copytree(original, broken)
    (broken / "tokenizer.json").write_text("")
    with pytest.raises(InvalidInput, match=r"tokenizer\.json cannot be read: .*; fetch"):
        check_recipe(replace(recipe, source=str(broken)))


def test_an_out_in_the_home_folder_is_looked_at_there(recipe: AwqRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(recipe.out.parent))
    recipe.out.mkdir()
    (recipe.out / "something").touch()
    with pytest.raises(InvalidInput, match="the folder is not empty"):
        check_recipe(replace(recipe, out=Path("~/out")))


def test_every_architecture_that_is_offered_was_tried() -> None:
    """Each made a checkpoint that loads here and is as near to its original as nf4 is."""
    offered = {kind for kind in autoawq_types() - set(REFUSED) if not why_unsupported(kind)}
    assert offered == {"cohere", "gemma", "gemma2", "llama", "mistral", "phi3", "qwen2", "qwen3"}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("mixtral", ["'mixtral'", "experts", "nf4"]),
        ("starcoder2", ["'starcoder2'", "activation"]),
        ("opt", ["'opt'", "rotary"]),
        ("olmo2", ["'olmo2'", "autoawq cannot", "llama", "nf4"]),
        ("stablelm", ["'stablelm'", "attention interface"]),
    ],
)
def test_an_architecture_that_cannot_be_done_is_refused_with_the_reason(
    recipe: AwqRecipe, original: Path, tmp_path: Path, kind: str, words: list[str]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(original, folder)
    change_config(folder, model_type=kind)
    with pytest.raises(InvalidInput) as refusal:
        check_recipe(replace(recipe, source=str(folder)))
    assert all(word in str(refusal.value) for word in words)


def test_a_link_to_elsewhere_is_not_copied_and_one_of_the_hubs_cache_is(
    recipe: AwqRecipe, original: Path, tmp_path: Path
) -> None:
    private = tmp_path / "private.txt"
    private.write_text("a secret")
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "1234", tmp_path / "models--a--b" / "blobs"
    shutil.copytree(original, snapshot)
    blobs.mkdir()
    (snapshot / "LICENSE").replace(blobs / "5678")
    (snapshot / "LICENSE").symlink_to("../../blobs/5678")
    cached = replace(recipe, source=str(snapshot))
    check_recipe(cached)
    assert [p.read_text() for p in copied_files(snapshot) if p.name == "LICENSE"] == ["ours"]
    (snapshot / "NOTICE.txt").symlink_to(private)
    with pytest.raises(InvalidInput, match=r"NOTICE.txt is a link to .*private.txt: remove it, or put a copy"):
        check_recipe(cached)
    (snapshot / "NOTICE.txt").unlink()
    (snapshot / "LICENSE").unlink()
    (snapshot / "LICENSE").symlink_to("../../../private.txt")
    with pytest.raises(InvalidInput, match=r"LICENSE is a link to"):
        copied_files(snapshot)


def test_a_recipe_that_is_right_is_taken(recipe: AwqRecipe) -> None:
    check_recipe(recipe)
    recipe.out.mkdir()
    check_recipe(recipe)  # an empty folder will do


Change = Callable[[AwqRecipe], AwqRecipe]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: replace(r, group=100), ["group=100", "32, 64, 128"]),
        (lambda r: replace(r, samples=0), ["samples=0"]),
        (lambda r: replace(r, length=2), ["length=2"]),
        (lambda r: replace(r, source="demo", samples=3, length=512), ["3 samples", "tokens", "length=512"]),
        (lambda r: replace(r, calibration="no-such"), ["'no-such'", "stories"]),
        (
            lambda r: replace(r, source=str(resources.path("models/stories-5m-awq"))),
            ["quantized already (awq)", "original"],
        ),
        (lambda r: replace(r, source="nobody/nothing-at-all"), ["not on this machine", "download"]),
        (lambda r: replace(r, out=Path(__file__)), ["is a file"]),
        (lambda r: replace(r, out=Path(__file__).parent), ["not empty"]),
    ],
)
def test_what_can_be_known_beforehand_is_refused(recipe: AwqRecipe, change: Change, words: list[str]) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_recipe(change(recipe))
    assert all(word in str(refusal.value) for word in words)
    assert not recipe.out.exists()


def test_widths_that_no_group_divides_are_named_with_their_layer(recipe: AwqRecipe, tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    save_tiny_model(_llama_like("Llama", hidden_size=128, intermediate_size=192), folder)
    with pytest.raises(InvalidInput, match=r"group=128: does not divide the 192 inputs of .*down_proj.*; choose group"):
        check_recipe(replace(recipe, source=str(folder), group=128))
    check_recipe(replace(recipe, source=str(folder), group=64))


def test_layers_too_narrow_for_autoawq_are_named(recipe: AwqRecipe, tmp_path: Path) -> None:
    folder = tmp_path / "narrow"
    save_tiny_model(_llama_like("Llama", hidden_size=128, num_key_value_heads=1), folder)
    with pytest.raises(InvalidInput, match=r"v_proj.* has 32 outputs"):
        check_recipe(replace(recipe, source=str(folder)))


def test_a_disk_without_room_is_told_before(recipe: AwqRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(recipe.out.parent)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(InvalidInput, match="free there"):
        check_recipe(recipe)


def test_without_autoawq_the_extra_is_named(recipe: AwqRecipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.quality.awq_recipe, "find_spec", lambda name: None)
    with pytest.raises(InvalidInput, match=r"pip install 'batchscope\[awq\]'"):
        check_recipe(recipe)


def test_long_samples_are_cut_and_not_dropped(recipe: AwqRecipe) -> None:
    def words(text: str) -> list[int]:
        return [1, *range(2, len(text.split()) + 2)]

    ids = calibration_ids(words, "a b c\n\n" + "w " * 300, replace(recipe, length=128))
    assert [len(part) for part in ids] == [4, 128, 128, 45]
    assert sum(map(len, calibration_ids(words, "w " * 300, replace(recipe, samples=2, length=128)))) == 256


def test_the_shipped_checkpoint_was_made_from_the_demo_with_a_text_of_its_kind() -> None:
    shipped = inspect_model(ModelSpec("demo", quantization="awq"))
    assert shipped.folder is not None
    assert origin_of(shipped.folder) == ModelSpec("demo")
    told = json.loads((shipped.folder / "quantized_from.json").read_text())
    assert told["calibration"] == suited_calibration("demo") == "calibration-stories"
