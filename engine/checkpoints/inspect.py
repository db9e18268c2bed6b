"""What can be known of a model without loading it: from its config and the headers of its safetensors. No torch."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import resources
from engine.checkpoints.info import ModelInfo, inspect_parts
from engine.checkpoints.kv_heads import OWN
from engine.checkpoints.safetensors import INDEX, read_headers, read_json, weight_files
from engine.config.checks import shown
from engine.config.files import parse_json, read_file
from engine.config.specs import InvalidInput, ModelSpec

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EMBEDDED = {
    "demo": "models/stories-5m",
    "demo-draft": "models/stories-draft",
    "demo-moe": "models/stories-moe",
    "demo-mla": "models/stories-mla",
    "demo-hybrid": "models/stories-hybrid",
}
EMBEDDED_AWQ = {"demo": "models/stories-5m-awq"}
EMBEDDED_NAMES = {
    "stories-5m": "demo stories 5M",
    "stories-5m-awq": "demo stories 5M, AWQ",
    "stories-draft": "demo draft 0.8M",
    "stories-moe": "demo mixture 7M",
    "stories-mla": "demo latents 5M",
    "stories-hybrid": "demo hybrid 6M",
}
LICENCES = ("LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE")


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
    if spec.revision:
        raise InvalidInput(
            f"revision={spec.revision!r}: {spec.source} is here and has no revisions; leave it out, or give a hub id"
        )
    if not folder.exists():
        raise InvalidInput(f"no folder {folder}: check the path of the model")
    if not folder.is_dir():
        raise InvalidInput(f"{folder} is a file: give the folder that holds the model's config.json")
    check_files(folder, spec.trust_remote_code)
    return folder


def check_files(folder: Path, trust_remote_code: bool) -> None:
    """Raises InvalidInput when a folder lacks what a load needs, saying what."""
    config = read_config(folder)
    endless = [p.name for p in folder.iterdir() if p.exists() and not p.is_file() and not p.is_dir()]
    if endless:
        raise InvalidInput(f"{folder} has a pipe or a device among its files ({endless[0]}): remove it")
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
    config = read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        raise InvalidInput(f"{path} names no model_type: it is not a transformers model")
    stored = config.get("quantization_config")
    if stored is not None and not isinstance(stored, dict):
        raise InvalidInput(f"{path}: quantization_config={shown(stored)} does not say how; fetch the model again")
    return config


def inspect_model(source: str | ModelSpec) -> ModelInfo:
    """A local or embedded model's facts. Raises InvalidInput when it is no model, or only on the hub."""
    spec = source if isinstance(source, ModelSpec) else ModelSpec(source)
    folder = resolve(spec)
    if folder is None:
        raise InvalidInput(f"{spec.source} is on the hub: load it to learn more")
    return inspect_folder(folder, name_of(spec, folder), spec.kv_heads)


def tokenizer_of(folder: Path) -> Tokenizer | None:
    """That of the folder's tokenizer.json, where it has one. Raises InvalidInput for one that cannot be read."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # its errors have no type of their own, and its panics are no Exception
        raise InvalidInput(f"{path} cannot be read: {str(error)[:200]}; fetch the model again") from error


def shipped_awq(info: ModelInfo) -> ModelInfo | None:
    """The AWQ checkpoint that ships beside an embedded model, where there is one."""
    for source, name in EMBEDDED_AWQ.items():
        folder = resources.path(name)
        if info.folder == resources.path(EMBEDDED[source]) and folder.is_dir():
            return inspect_folder(folder, EMBEDDED_NAMES[folder.name])
    return None


def inspect_folder(folder: Path, name: str, kv_heads: int | str = OWN) -> ModelInfo:
    """A model folder's facts, with its `kv_heads` as `ModelSpec` has them. Raises InvalidInput for a broken config, a
    shard missing or cut short."""
    config, headers = read_config(folder), read_headers(weight_files(folder))
    if not headers:
        raise InvalidInput(f"{folder} holds no weights: fetch the model again")
    index = folder / INDEX
    if index.is_file() and not (folder / "model.safetensors").is_file():
        absent = sorted(set(read_json(index)["weight_map"]) - set(headers))
        if absent:
            raise InvalidInput(f"{index} promises {absent[0]}, which no file holds: fetch the model again")
    tokenizer, chat = folder / "tokenizer_config.json", (folder / "chat_template.jinja").exists()
    chat = chat or b"chat_template" in _read_or_nothing(tokenizer)
    place, licence = str(folder / "config.json"), _licence(folder)
    return inspect_parts(
        config, headers, name, kv_heads=kv_heads, folder=folder, chat=chat, licence=licence, place=place
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
    named = licence_of(_read_or_nothing(folder / "README.md").decode(errors="replace"))
    texts = (_read_or_nothing(folder / name).decode(errors="replace") for name in LICENCES)
    words = (line.strip(" #\t") for text in texts for line in text.splitlines())
    return named or next((line[:80] for line in words if line), "")


def _read_or_nothing(path: Path) -> bytes:
    """What a model can do without."""
    with contextlib.suppress(OSError):
        return read_file(path)
    return b""


def fault(folder: Path) -> str:
    """Why a folder cannot be loaded, with the remedy; "" where nothing is missing. Weights are not read."""
    adapter = folder / "adapter_config.json"
    if adapter.is_file() and not (folder / "config.json").is_file():
        return f"an adapter{_base(adapter)}, no model of its own: choose the model that it was made for"
    try:
        check_files(folder, trust_remote_code=True)
    except InvalidInput as error:
        return str(error)
    return ""


def _base(adapter: Path) -> str:
    try:
        base = parse_json(read_file(adapter).decode())["base_model_name_or_path"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f" of {base}"
