"""Making AWQ checkpoints, by autoawq in a child process (`engine.quality.awq_maker`). No torch here."""

import ast
import os
import re
import shutil
import threading
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

from engine.checkpoints.architectures import why_unsupported
from engine.checkpoints.hub.cache import in_units
from engine.checkpoints.inspect import read_config, resolve, tokenizer_of
from engine.checkpoints.safetensors import read_headers, weight_files
from engine.config.checks import InvalidInput, one_of, whole
from engine.config.files import parse_json, read_file
from engine.config.specs import ModelSpec
from engine.jobs.job import Report, run_job
from engine.quality.texts import Encode, read_text, samples, token_ids

GROUPS = (32, 64, 128)
REMEDY = "pip install 'batchscope[awq]'"
ORIGIN = "quantized_from.json"  # beside a checkpoint that was made here: what it was made of
COPIED = (  # what travels with the weights as it is; config.json is written anew
    "tokenizer* *vocab* merges.txt special_tokens_map.json added_tokens.json chat_template* generation_config.json "
    "LICENSE* NOTICE*"
).split()
PACKED, TOGETHER = 8, 64  # outputs that share an int32; outputs clipped together, but for queries' and keys'


@dataclass(frozen=True, slots=True)
class AwqRecipe:
    """`source` and `revision` as in ModelSpec; `calibration` is a text file, one sample a paragraph or line (or the
    name of a shipped text); `out` a folder that must not exist or be empty. `group` inputs share a scale; at most
    `samples` calibration samples of at most `length` tokens are used."""

    source: str
    calibration: str
    out: Path
    revision: str | None = None
    group: int = 128
    samples: int = 128
    length: int = 512


def check_recipe(recipe: AwqRecipe) -> None:
    """Raises InvalidInput for what can be known beforehand: autoawq missing, an architecture it cannot do (with the
    reason), widths that the group does not divide, an `out` that holds something, no calibration text, a full disk."""
    whole("samples", recipe.samples)
    whole("length", recipe.length, 16)
    one_of("group", recipe.group, GROUPS)
    if any(find_spec(name) is None for name in ("awq", "datasets")):
        raise InvalidInput(f"AWQ checkpoints are made by autoawq, which is not installed: {REMEDY}")
    folder = model_folder(recipe)
    _check_architecture(folder)
    copied_files(folder)
    _check_widths(folder, recipe.group)
    content = read_text(recipe.calibration)
    if (tokenizer := tokenizer_of(folder)) is not None:
        calibration_ids(lambda text: tokenizer.encode(text).ids, content, recipe)
    _check_out(recipe.out.expanduser(), folder)


def model_folder(recipe: AwqRecipe) -> Path:
    """Where the original lies; a hub id must be in the Hugging Face cache. Raises InvalidInput."""
    folder = resolve(ModelSpec(recipe.source, revision=recipe.revision))
    if folder is not None:
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(recipe.source, revision=recipe.revision, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise InvalidInput(
            f"{recipe.source} is not on this machine: download it first on the Models page, or load it once"
        ) from error
    return resolve(ModelSpec(str(folder))) or folder


def _check_architecture(folder: Path) -> None:
    config = read_config(folder)
    kind = config["model_type"]
    if (stored := config.get("quantization_config")) is not None:
        method = stored.get("quant_method", "some way")
        raise InvalidInput(f"{folder} is quantized already ({method}): give the original that it was made of")
    if why := why_unsupported(kind):
        raise InvalidInput(f"{why} (what is quantized here is to run here)")
    known = autoawq_types()
    if kind not in known:
        able = sorted(each for each in known - set(REFUSED) if not why_unsupported(each))
        raise InvalidInput(
            f"model type {kind!r}: autoawq cannot quantize it, only {', '.join(able)}; "
            "int8 and nf4 quantize it while it loads"
        )
    if kind in REFUSED:
        raise InvalidInput(f"model type {kind!r}: {REFUSED[kind]}; int8 and nf4 quantize it while it loads")


_EXPERTS = "it has experts, which autoawq does not find in today's transformers"
_SCALED = "autoawq would scale its activation function, a kind of layer that no ordinary model has a place for"
_LATENTS = "nobody tried autoawq with its latent attention"
REFUSED = {
    "opt": "autoawq asks it for rotary embeddings, which it does not have",
    "minicpm3": _LATENTS,
    **dict.fromkeys(("mixtral", "qwen3_moe", "deepseek_v2", "deepseek_v3"), _EXPERTS),
    **dict.fromkeys(("bloom", "falcon", "gpt_bigcode", "gpt_neox", "gptj", "internlm2", "mpt", "starcoder2"), _SCALED),
}


def autoawq_types() -> set[str]:
    """The model types of autoawq's own table, read from its source: importing it takes seconds, and torch."""
    found = find_spec("awq")
    table = Path(found.origin).parent / "models" / "auto.py" if found and found.origin else None
    if table is None or not table.exists():
        raise InvalidInput(f"autoawq is not installed as it should be; install it again: {REMEDY}")
    for node in ast.parse(table.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            return {str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)}
    raise InvalidInput("this autoawq has no table of models; 0.2.9 is the version that was tried")


def _check_widths(folder: Path, group: int) -> None:
    headers = read_headers(weight_files(folder)).items()
    of_layers = re.compile(r"\.\d+\..+\.weight$")
    linears = {name: shape for name, (shape, _) in headers if len(shape) == 2 and of_layers.search(name)}
    if not linears:
        raise InvalidInput(f"{folder} has no linear layers that autoawq would quantize")
    for name, (outputs, inputs) in linears.items():
        if inputs % group:
            rest = [g for g in GROUPS if not any(width % g for _, width in linears.values())]
            remedy = f"choose group {' or '.join(map(str, rest))}" if rest else "no group that autoawq has does"
            raise InvalidInput(f"group={group}: does not divide the {inputs} inputs of {name}; {remedy}")
        multiple = PACKED if re.search(r"\b[qk]_proj\b", name) else TOGETHER
        if outputs % multiple:
            raise InvalidInput(f"{name} has {outputs} outputs, and autoawq does multiples of {multiple} only")


def copied_files(folder: Path) -> list[Path]:
    """What a checkpoint takes over from its original as it is. Raises InvalidInput for a link to elsewhere: whoever
    gets the checkpoint would get what it points to. A snapshot's own blobs, in the hub's cache, are not elsewhere."""
    files = [path for pattern in COPIED for path in sorted(folder.glob(pattern)) if path.is_file()]
    home = folder.resolve()
    homes = (home, home.parents[1] / "blobs") if home.parent.name == "snapshots" else (home,)
    for path in files:
        if not any(map(path.resolve().is_relative_to, homes)):
            raise InvalidInput(f"{path} is a link to {path.resolve()}: remove it, or put a copy in its place")
    return files


def _check_out(out: Path, folder: Path) -> None:
    if out.exists() and not out.is_dir():
        raise InvalidInput(f"out={out}: is a file; name a folder that does not exist")
    if out.exists() and any(out.iterdir()):
        raise InvalidInput(f"out={out}: the folder is not empty; name one that does not exist")
    parent = next(p for p in out.resolve().parents if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InvalidInput(f"out={out}: nothing can be written in {parent}; choose another folder")
    need = sum(path.stat().st_size for path in weight_files(folder))  # an upper bound: what is not quantized stays
    free = shutil.disk_usage(parent).free
    if free < need:
        raise InvalidInput(
            f"out={out}: up to {in_units(need)} are written and {in_units(free)} are free there; choose another disk"
        )


def origin_of(folder: Path) -> ModelSpec | None:
    """What a checkpoint that was made here was made of, where its folder tells."""
    try:
        told = parse_json(read_file(folder / ORIGIN).decode())
        return ModelSpec(str(told["source"]), revision=told.get("revision"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def calibration_ids(encode: Encode, content: str, recipe: AwqRecipe) -> list[list[int]]:
    """The calibration text as token ids: at most `samples` parts of at most `length` tokens. autoawq strings them
    together and uses whole blocks of `length`. Raises InvalidInput where there is not one."""
    ids: list[list[int]] = []
    for part in token_ids(encode, samples(content)):
        ids += [part[i : i + recipe.length] for i in range(0, len(part), recipe.length)]
    ids = ids[: recipe.samples]
    total = sum(map(len, ids))
    if total < recipe.length:
        raise InvalidInput(
            f"calibration: the first {len(ids)} samples of {recipe.calibration!r} have {total:,} tokens, less than one "
            f"block of length={recipe.length}: give more text, more samples or a smaller length"
        )
    return ids


def quantize_to_awq(recipe: AwqRecipe, report: Report | None = None, cancelled: threading.Event | None = None) -> Path:
    """Makes the checkpoint and returns its folder; blocks for minutes. `report` hears layers done of all. Nothing is
    left in `out` when it fails or is cancelled. Raises InvalidInput, LoadCancelled, JobDied."""
    check_recipe(recipe)
    out = recipe.out.expanduser().resolve()
    made = [folder for folder in out.parents if not folder.exists()]
    part = out.parent / f".{out.name}-{uuid4().hex[:8]}.part"  # the child makes it, and removes it if we are gone
    arguments = asdict(recipe) | {"out": str(part), "folder": str(model_folder(recipe))}
    try:
        run_job("engine.quality.awq_maker:work", arguments, report, cancelled)
        for path in part.iterdir():
            path.chmod(0o644)  # a file of weights is written for its owner alone
        try:
            part.replace(out)
        except OSError as error:
            raise InvalidInput(f"out={recipe.out}: something else was put there meanwhile; choose another") from error
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):  # somebody else uses them by now
            for folder in made:
                folder.rmdir()
        raise
    return out
