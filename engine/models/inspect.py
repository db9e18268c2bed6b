"""What can be known of a model without loading it: from its config and the headers of its safetensors. No torch."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import resources
from engine.config import InvalidInput, ModelSpec

DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
TORCH_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
EMBEDDED = {"demo": "models/stories-5m", "demo-draft": "models/stories-draft"}


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model folder as its files describe it. `tensors` maps names to (elements, bytes) as stored."""

    name: str
    folder: Path
    architecture: str
    model_type: str
    parameters: int
    weight_bytes: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocabulary: int
    context: int
    dtype: str
    chat: bool
    tensors: dict[str, tuple[int, int]]

    def kv_token_bytes(self, dtype: str) -> int:
        """Bytes of one token's K and V: 2 x layers x kv_heads x head_dim x bytes of the dtype."""
        return 2 * self.layers * self.kv_heads * self.head_dim * TORCH_BYTES[dtype]

    def bytes_as(self, dtype: str) -> int:
        """Bytes of the weights when held in another dtype."""
        return self.parameters * TORCH_BYTES[dtype]


def embedded_folder(source: str) -> Path | None:
    """The folder of a model that ships with Batchscope, or None when `source` names none."""
    return resources.path(EMBEDDED[source]) if source in EMBEDDED else None


def looks_like_path(source: str) -> bool:
    """True when a source can only be meant as a folder, not as a hub id such as "org/name"."""
    return source.startswith((".", "/", "~")) or source.count("/") > 1 or "\\" in source or Path(source).exists()


def resolve(spec: ModelSpec) -> Path | None:
    """The local folder of a model, or None when it is a hub id. Raises InvalidInput for a folder that is no model."""
    folder = embedded_folder(spec.source)
    if folder is None:
        if not looks_like_path(spec.source):
            if spec.source.count("/") != 1 or not all(spec.source.split("/")):
                raise InvalidInput(
                    f"no model {spec.source!r}: give demo, the path of a folder, or a hub id such as owner/name"
                )
            return None
        folder = Path(spec.source).expanduser()
    if not folder.exists():
        raise InvalidInput(f"no folder {folder}: check the path of the model")
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is a file: give the folder that holds the model's config.json")
    check_files(folder, spec.trust_remote_code)
    return folder


def check_files(folder: Path, trust_remote_code: bool) -> None:
    """Raises InvalidInput when a folder lacks what a load needs, saying what."""
    config = read_config(folder)
    if "auto_map" in config and not trust_remote_code:
        raise InvalidInput(
            f"{folder} brings Python code of its own (auto_map in config.json); "
            "it is only run with trust_remote_code on: turn it on if you trust the model's author"
        )
    if not weight_files(folder):
        pickled = [p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth", ".ckpt")]
        if pickled:
            raise InvalidInput(
                f"{folder} has its weights only as pickle ({pickled[0]}), which can run any code when opened; "
                "convert them to safetensors first"
            )
        raise InvalidInput(f"{folder} has no *.safetensors: it is no model, or its download is incomplete")
    if not any((folder / name).exists() for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")):
        raise InvalidInput(f"{folder} has no tokenizer (tokenizer.json): copy the model's tokenizer files into it")


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model folder. Raises InvalidInput when it is missing or broken."""
    path = folder / "config.json"
    if not path.is_file():
        raise InvalidInput(f"{folder} is no model: it has no config.json; choose the folder that holds one")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}; fetch the model again") from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise InvalidInput(f"{path} names no model_type: it is not a transformers model")
    return config


def weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def tensor_sizes(files: list[Path]) -> dict[str, tuple[int, int, str]]:
    """Elements, bytes and dtype of every tensor, from the headers alone."""
    sizes = {}
    for path in files:
        try:
            with path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                if length > 100_000_000:
                    raise ValueError(f"a header of {length} bytes")
                header = json.loads(file.read(length))
            end = 8 + length
            for name, entry in header.items():
                if name != "__metadata__":
                    elements = prod(entry["shape"])
                    sizes[name] = (elements, elements * DTYPE_BYTES.get(entry["dtype"], 1), entry["dtype"])
                    end = max(end, 8 + length + entry["data_offsets"][1])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error) as error:
            raise InvalidInput(f"{path} is not a safetensors file: {error}; fetch the model again") from error
        if path.stat().st_size < end:
            raise InvalidInput(f"{path} is cut short: {path.stat().st_size:,} of {end:,} bytes; fetch the model again")
    return sizes


def inspect_model(source: str | ModelSpec) -> ModelInfo:
    """A local or embedded model's facts. Raises InvalidInput when it is no model, or only on the hub."""
    spec = source if isinstance(source, ModelSpec) else ModelSpec(source)
    folder = resolve(spec)
    if folder is None:
        raise InvalidInput(f"{spec.source} is on the hub: load it to learn more")
    return inspect_folder(folder, {v: k for k, v in EMBEDDED.items()}.get(f"models/{folder.name}", folder.name))


def inspect_folder(folder: Path, name: str) -> ModelInfo:
    config = read_config(folder)
    text: dict[str, Any] = {**config, **config.get("text_config", {})}
    sizes = tensor_sizes(weight_files(folder))

    def number(*names: str) -> int:
        """The first of these values that the config has, 0 when it has none."""
        for name in names:
            value = text.get(name)
            if value is not None:
                if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                    raise InvalidInput(
                        f"{folder / 'config.json'}: {name}={value!r} is not a whole number of at least 1; "
                        "fetch the model again"
                    )
                return value
        return 0

    heads = number("num_attention_heads", "n_head") or 1
    hidden = number("hidden_size", "n_embd")
    stored = [dtype for _, _, dtype in sizes.values()]
    widest = max(set(stored), key=stored.count) if stored else "F32"
    tokenizer_config = folder / "tokenizer_config.json"
    chat = (folder / "chat_template.jinja").exists() or (
        tokenizer_config.exists() and "chat_template" in tokenizer_config.read_text(encoding="utf-8")
    )
    return ModelInfo(
        name=name,
        folder=folder,
        architecture=(config.get("architectures") or [config["model_type"]])[0],
        model_type=config["model_type"],
        parameters=sum(elements for elements, _, _ in sizes.values()),
        weight_bytes=sum(size for _, size, _ in sizes.values()),
        layers=number("num_hidden_layers", "n_layer"),
        heads=heads,
        kv_heads=number("num_key_value_heads") or heads,
        head_dim=number("head_dim") or hidden // heads,
        hidden=hidden,
        vocabulary=number("vocab_size"),
        context=number("max_position_embeddings", "n_positions"),
        dtype={"F32": "float32", "BF16": "bfloat16", "F16": "float16"}.get(widest, "float32"),
        chat=chat,
        tensors={key: (elements, size) for key, (elements, size, _) in sizes.items()},
    )
