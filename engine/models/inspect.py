"""What can be known of a model without loading it: from its config and the headers of its safetensors. No torch."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import resources
from engine.config import InvalidInput, ModelSpec
from engine.memory_rules import MLP_WIDTHS
from engine.models.weight_names import sort_weights

DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
TORCH_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
TORCH_NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
EMBEDDED = {"demo": "models/stories-5m", "demo-draft": "models/stories-draft"}
EMBEDDED_AWQ = {"demo": "models/stories-5m-awq"}
EMBEDDED_NAMES = {
    "stories-5m": "demo stories 5M", "stories-5m-awq": "demo stories 5M, AWQ", "stories-draft": "demo draft 0.8M",
}  # fmt: skip
CONV1D = ("gpt2", "openai-gpt", "imagegpt")  # model types that store linear weights as [inputs, outputs]
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k")
INDEX = "model.safetensors.index.json"
LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE")

Headers = Mapping[str, tuple[tuple[int, ...], str]]


@dataclass(frozen=True, slots=True)
class StoredQuantization:
    """How a checkpoint was quantized beforehand: `method` as its config says ("awq", "gptq" ...), `bits` of a weight,
    `group` inputs that share a scale (-1: all of a column), `kept` names of modules that were left as they were."""

    method: str
    bits: int
    group: int
    kept: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model as its files describe it; `folder` is None where they are on the hub.

    `parameters` are true weights: a packed int32 of an AWQ checkpoint counts as the eight it holds. `linears` are the
    (inputs, outputs) of the linear layers that a quantization at load converts, or that an AWQ checkpoint holds packed;
    `others` the elements of all other weights, `experts` those of `others` in a mixture's experts. `dtype` is that of
    most weights as stored (of an AWQ checkpoint, of those that are not packed). `mlp` is the width of the MLPs a token
    goes through in a layer. `window`: tokens that its sliding-window layers see, 0 where there are none. `tensors` maps
    names to (elements, bytes) as stored.
    """

    name: str
    folder: Path | None
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
    linears: tuple[tuple[int, int], ...] = ()
    others: int = 0
    experts: int = 0
    mlp: int = 0
    window: int = 0
    tied: bool = False
    conv1d: bool = False
    quantized: StoredQuantization | None = None
    licence: str = ""

    def kv_token_bytes(self, dtype: str) -> int:
        """Bytes of one token's K and V: 2 x layers x kv_heads x head_dim x bytes of the dtype."""
        return 2 * self.layers * self.kv_heads * self.head_dim * TORCH_BYTES[dtype]

    def bytes_as(self, dtype: str) -> int:
        """Bytes of the weights when held in another dtype, none of them quantized."""
        return self.parameters * TORCH_BYTES[dtype]


# Which folder a model is.


def embedded_folder(source: str, quantization: str = "none") -> Path | None:
    """The folder of a model that ships with Batchscope, or None when `source` names none. "awq" of the demo model is a
    checkpoint of its own. Raises InvalidInput where that is asked of a model that has none."""
    if source not in EMBEDDED:
        return None
    if quantization != "awq":
        return resources.path(EMBEDDED[source])
    folder = resources.path(EMBEDDED_AWQ[source]) if source in EMBEDDED_AWQ else None
    if folder is None or not folder.is_dir():
        raise InvalidInput(
            f"no AWQ checkpoint of {source} ships here: make one with `batchscope quantize {source}`, "
            "or choose another quantization"
        )
    return folder


def name_of(spec: ModelSpec, folder: Path) -> str:
    """What to call a model: the title of an embedded one, the name of a folder, or the hub's id."""
    if spec.source in EMBEDDED:
        return EMBEDDED_NAMES[folder.name]
    return folder.name if Path(spec.source).expanduser().exists() else spec.source


def looks_like_path(source: str) -> bool:
    """True when a source can only be meant as a folder, not as a hub id such as "org/name"."""
    return source.startswith((".", "/", "~")) or source.count("/") > 1 or "\\" in source or Path(source).exists()


def resolve(spec: ModelSpec) -> Path | None:
    """The local folder of a model, or None when it is a hub id. Raises InvalidInput for a folder that is no model."""
    folder = embedded_folder(spec.source, spec.quantization)
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


# What its files say.


def read_config(folder: Path) -> dict[str, Any]:
    """config.json of a model folder. Raises InvalidInput when it is missing or broken."""
    path = folder / "config.json"
    if not path.is_file():
        raise InvalidInput(f"{folder} is no model: it has no config.json; choose the folder that holds one")
    config = _json(path)
    if not isinstance(config, dict) or "model_type" not in config:
        raise InvalidInput(f"{path} names no model_type: it is not a transformers model")
    return config


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read: {error}; fetch the model again") from error


def weight_files(folder: Path) -> list[Path]:
    """The safetensors that a load reads: model.safetensors, or the shards that the index names. Raises InvalidInput for
    a shard that is missing, and for shards without their index."""
    whole, index = folder / "model.safetensors", folder / INDEX
    if whole.is_file():
        return [whole]
    if index.is_file():
        return [folder / name for name in index_files(_json(index), index, {p.name for p in folder.iterdir()})]
    others = sorted(folder.glob("*.safetensors"))
    if others:
        raise InvalidInput(
            f"{folder} has {others[0].name} but neither model.safetensors nor {INDEX}, which says what the shards "
            "hold: fetch the model again"
        )
    return []


def index_files(index: Any, path: object, there: set[str] | None = None) -> list[str]:
    """The shards that an index (its JSON) names, in order; `there` are the files that exist. Raises InvalidInput for a
    broken index and for a shard that is missing; `path` is what the message calls the index."""
    placed = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(placed, dict) or not placed or not all(isinstance(name, str) for name in placed.values()):
        raise InvalidInput(f"{path} does not say which file holds which tensor (weight_map): fetch the model again")
    names = sorted(set(placed.values()))
    gone = [name for name in names if there is not None and name not in there]
    if gone:
        raise InvalidInput(
            f"{path} names {len(names)} files and {len(gone)} of them {'is' if len(gone) == 1 else 'are'} missing "
            f"({gone[0]}): the download is incomplete, fetch the model again"
        )
    return names


def parse_header(text: bytes) -> dict[str, Any]:
    """A safetensors header without its metadata. Raises ValueError and the like for what is none."""
    header = json.loads(text)
    return {name: entry for name, entry in header.items() if name != "__metadata__"}


def read_headers(files: list[Path]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every tensor, from the headers alone. Raises InvalidInput for a file that is cut short."""
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for path in files:
        try:
            with path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                if length > 100_000_000:
                    raise ValueError(f"a header of {length} bytes")
                header = parse_header(file.read(length))
            end = 8 + length
            for name, entry in header.items():
                shape = tuple(entry["shape"])
                prod(shape)
                found[name] = (shape, entry["dtype"])
                end = max(end, 8 + length + entry["data_offsets"][1])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, struct.error) as error:
            raise InvalidInput(f"{path} is not a safetensors file: {error}; fetch the model again") from error
        if path.stat().st_size < end:
            raise InvalidInput(f"{path} is cut short: {path.stat().st_size:,} of {end:,} bytes; fetch the model again")
    return found


def inspect_model(source: str | ModelSpec) -> ModelInfo:
    """A local or embedded model's facts. Raises InvalidInput when it is no model, or only on the hub."""
    spec = source if isinstance(source, ModelSpec) else ModelSpec(source)
    folder = resolve(spec)
    if folder is None:
        raise InvalidInput(f"{spec.source} is on the hub: load it to learn more")
    return inspect_folder(folder, name_of(spec, folder))


def shipped_awq(info: ModelInfo) -> ModelInfo | None:
    """The AWQ checkpoint that ships beside an embedded model, where there is one."""
    for source, name in EMBEDDED_AWQ.items():
        folder = resources.path(name)
        if info.folder == resources.path(EMBEDDED[source]) and folder.is_dir():
            return inspect_folder(folder, EMBEDDED_NAMES[folder.name])
    return None


def inspect_folder(folder: Path, name: str) -> ModelInfo:
    """A model folder's facts. Raises InvalidInput for a broken config, a shard missing or cut short."""
    headers = read_headers(weight_files(folder))
    index = folder / INDEX
    if index.is_file() and not (folder / "model.safetensors").is_file():
        absent = sorted(set(_json(index)["weight_map"]) - set(headers))
        if absent:
            raise InvalidInput(f"{index} promises {absent[0]}, which no file holds: fetch the model again")
    tokenizer = folder / "tokenizer_config.json"
    return inspect_parts(
        read_config(folder),
        headers,
        name,
        folder=folder,
        chat=(folder / "chat_template.jinja").exists()
        or (tokenizer.exists() and "chat_template" in tokenizer.read_text(encoding="utf-8")),
        licence=_licence(folder),
        place=str(folder / "config.json"),
    )


def inspect_parts(
    config: Mapping[str, Any],
    headers: Headers,
    name: str,
    *,
    folder: Path | None = None,
    chat: bool = False,
    licence: str = "",
    place: str = "config.json",
) -> ModelInfo:
    """What a config and the headers (shape and dtype of each tensor, as safetensors names them) say, wherever they come
    from. `place` is what a message calls the config. Raises InvalidInput for values that cannot be."""
    nested = config.get("text_config")
    text: dict[str, Any] = {**config, **(nested if isinstance(nested, Mapping) else {})}

    def number(*names: str) -> int:
        """The first of these values that the config has, 0 when it has none."""
        for name in names:
            value = text.get(name)
            if value is not None:
                if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                    raise InvalidInput(
                        f"{place}: {name}={value!r} is not a whole number of at least 1; fetch the model again"
                    )
                return value
        return 0

    quantized = _stored_quantization(config)
    conv1d = config["model_type"] in CONV1D
    tied = bool(text.get("tie_word_embeddings", False))
    bits = quantized.bits if quantized is not None and quantized.method in ("awq", "gptq") else 0
    weights = sort_weights({key: shape for key, (shape, _) in headers.items()}, tied=tied, conv1d=conv1d, bits=bits)
    tensors = {key: (prod(shape), prod(shape) * DTYPE_BYTES.get(dtype, 1)) for key, (shape, dtype) in headers.items()}
    stored = [dtype for key, (_, dtype) in headers.items() if dtype in TORCH_NAMES and not (bits and ".scales" in key)]
    heads = number("num_attention_heads", "n_head") or 1
    hidden = number("hidden_size", "n_embd")
    wide = number(*MLP_WIDTHS)
    if number(*EXPERTS):
        wide = (number(*ACTIVE) or number(*EXPERTS)) * (number("moe_intermediate_size") or wide)
    window = text.get("sliding_window") if text.get("use_sliding_window", True) else 0
    return ModelInfo(
        name=name,
        folder=folder,
        architecture=(config.get("architectures") or [config["model_type"]])[0],
        model_type=config["model_type"],
        parameters=weights.parameters,
        weight_bytes=sum(size for _, size in tensors.values()),
        layers=number("num_hidden_layers", "n_layer"),
        heads=heads,
        kv_heads=number("num_key_value_heads") or (1 if text.get("multi_query") else heads),
        head_dim=number("head_dim", "kv_channels") or hidden // heads,
        hidden=hidden,
        vocabulary=number("vocab_size"),
        context=number("max_position_embeddings", "n_positions"),
        dtype=TORCH_NAMES[max(sorted(set(stored)), key=stored.count)] if stored else "float32",
        chat=chat,
        tensors=tensors,
        linears=weights.linears,
        others=weights.others,
        experts=weights.experts,
        mlp=wide,
        window=window if isinstance(window, int) else 0,
        tied=tied,
        conv1d=conv1d,
        quantized=quantized,
        licence=licence,
    )


def _stored_quantization(config: Mapping[str, Any]) -> StoredQuantization | None:
    values = config.get("quantization_config")
    if not isinstance(values, Mapping):
        return None
    bits = values.get("bits", values.get("w_bit", 0))
    group = values.get("group_size", values.get("q_group_size", 0))
    return StoredQuantization(
        str(values.get("quant_method", "unknown")).lower(),
        bits if isinstance(bits, int) else 0,
        group if isinstance(group, int) else 0,
        tuple(map(str, values.get("modules_to_not_convert") or ())),
    )


def licence_of(readme: str) -> str:
    """The licence that a model card's front matter names; "" where it names none."""
    parts = readme.split("---", 2)
    if len(parts) < 3 or parts[0].strip():
        return ""
    found = dict(line.split(":", 1) for line in parts[1].splitlines() if line.startswith("license") and ":" in line)
    name = found.get("license", "").strip().strip("'\"")
    return (found.get("license_name", "").strip().strip("'\"") or name) if name in ("", "other") else name


def _licence(folder: Path) -> str:
    """Of the model card; else the first words of a licence file."""
    try:
        named = licence_of((folder / "README.md").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        named = ""
    if named:
        return named
    for path in (folder / name for name in LICENCES):
        if path.is_file():
            lines = (line.strip(" #\t") for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
            return next((line[:80] for line in lines if line), "")
    return ""
