"""A hub on loopback with a handful of models, and an empty cache for each test."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import resources
from tests import own_hub
from tests.engine.checkpoints.hub.small_hub import Files, Repository, SmallHub

FIRST, SECOND = "1" * 40, "2" * 40
FILES = ("chat_template.jinja", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json")


def demo_files(model: str = "models/stories-draft") -> Files:
    return {path.name: path.read_bytes() for path in sorted(resources.path(model).iterdir()) if path.is_file()}


def in_shards(files: Files) -> Files:
    """The same model with its tensors in two files and an index."""
    whole = files["model.safetensors"]
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    names = sorted(name for name in header if name != "__metadata__")
    shards: Files = {}
    placed = {}
    for number, part in enumerate((names[: len(names) // 2], names[len(names) // 2 :]), 1):
        shard, body, told = f"model-0000{number}-of-00002.safetensors", b"", {}
        for name in part:
            begin, end = header[name]["data_offsets"]
            told[name] = {**header[name], "data_offsets": [len(body), len(body) + end - begin]}
            body += whole[8 + length + begin : 8 + length + end]
            placed[name] = shard
        told["__metadata__"] = {"format": "pt"}
        text = json.dumps(told).encode()
        text += b" " * (-len(text) % 8)
        shards[shard] = len(text).to_bytes(8, "little") + text + body
    index = json.dumps({"metadata": {"total_size": len(whole)}, "weight_map": placed}).encode()
    rest = {name: content for name, content in files.items() if name != "model.safetensors"}
    return {**rest, **shards, "model.safetensors.index.json": index, "consolidated.safetensors": b"the same again"}


@pytest.fixture(scope="module")
def serving() -> Iterator[SmallHub]:
    files = demo_files()
    large = demo_files("models/stories-5m")
    texts = {name: files[name] for name in FILES}
    other = {**files, "README.md": b"---\nlicense: mit\n---\n", "onnx/model.onnx": b"another format", "run.py": b"1"}
    with SmallHub(
        Repository("batch/stories", {FIRST: files, SECOND: other}, {"main": SECOND, "v1": FIRST}, downloads=900),
        Repository("batch/stories-5m", {FIRST: large}, {"main": FIRST}, downloads=80_000),
        Repository("batch/shards", {FIRST: in_shards(files)}, {"main": FIRST}, downloads=70),
        Repository("batch/gated-stories", {FIRST: files}, {"main": FIRST}, gated="manual", downloads=600),
        Repository("batch/secret-stories", {FIRST: files}, {"main": FIRST}, private=True),
        Repository("batch/pickled-stories", {FIRST: {**texts, "pytorch_model.bin": b"a pickle"}}, {"main": FIRST}),
        Repository("batch/adapter", {FIRST: {"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"}},
                   {"main": FIRST}),
        Repository("batch/huge", {FIRST: files}, {"main": FIRST}, claims={"model.safetensors": 10**16}),
        Repository("batch/other", {FIRST: {"stories.gguf": b"GGUF"}}, {"main": FIRST}, tags=("gguf",)),
        port=own_hub.PORT,
    ) as hub:  # fmt: skip
        yield hub


@pytest.fixture
def hub(serving: SmallHub, tmp_path: Path) -> SmallHub:
    """The hub in its right mind; the cache is in `tmp_path / "hub"`, and nobody is logged in."""
    serving.reset()
    own_hub.keep_in(tmp_path)
    return serving
