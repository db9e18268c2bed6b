"""Which model types the engine serves, told without importing transformers: a table that a test compares with it.

`packaging/architectures.py` writes the table.
"""

import importlib.metadata
import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_suffix(".json")
PLANNED = ("gpt_oss",)  # `INTERLEAVED` of engine.parallel.split
INSTEAD = "choose another architecture (Llama, Qwen, Mistral, Gemma ...)"
PROBED = ("sparse", "mixed")
REASONS = {
    "masked": "fills gaps and does not generate text; choose a causal model",
    "no interface": "does not use transformers' attention interface, so a paged KV cache cannot serve it; " + INSTEAD,
    "sparse": "attends to tokens that an indexer of its own chooses, which a paged KV cache does not know; " + INSTEAD,
    "mixed": "has layers that keep neither ordinary keys and values nor a state as transformers' cache has it, so it "
    "cannot be served; " + INSTEAD,
    "no decoder": "is not a decoder that generates text; choose a causal model",
}


def why_unsupported(model_type: str) -> str:
    """ "" for a model type that our attention serves; else the reason, with what to choose instead. A load has the last
    word: it sees what each layer really does."""
    reason = next((reason for reason, types in _table()["refused"].items() if model_type in types), "")
    if not reason and not known_here(model_type):
        return (
            f"transformers {importlib.metadata.version('transformers')} does not know model type {model_type!r}: "
            "install a version that does, or choose another model"
        )
    if not reason and model_type not in _table()["served"]:
        reason = "no decoder"
    return f"model type {model_type!r} {REASONS[reason]}" if reason else ""


def why_probed(model_type: str) -> str:
    """The same of a model type that only its layers, tried with all their weights, would be refused for; else ""."""
    refused = _table()["refused"]
    reason = next((reason for reason in PROBED if model_type in refused.get(reason, ())), "")
    return f"model type {model_type!r} {REASONS[reason]}" if reason else ""


def known_here(model_type: str) -> bool:
    """Whether the transformers that is installed has this model type; True where that cannot be told."""
    types = _installed_types()
    return model_type in types or not types


@cache
def _table() -> dict[str, Any]:
    return json.loads(TABLE.read_text(encoding="utf-8"))


@cache
def has_split_plan(model_type: str) -> bool:
    """Whether a model of this type can be split over ranks: transformers has a plan of tensor parallelism for it, read
    from the text of its config, or `engine.parallel.split` has; True where that cannot be told."""
    if model_type in PLANNED:
        return True
    spec = find_spec("transformers")
    if spec is None or spec.origin is None or not re.fullmatch(r"[a-z0-9_]+", model_type):
        return True
    path = Path(spec.origin).parent / "models" / model_type / f"configuration_{model_type}.py"
    try:
        return "base_model_tp_plan" in path.read_text(encoding="utf-8")
    except OSError:
        return True


@cache
def _installed_types() -> frozenset[str]:
    """Every name that transformers' tables of model types have, read from their text: importing it takes seconds."""
    spec = find_spec("transformers")
    folder = Path(spec.origin).parent / "models/auto" if spec is not None and spec.origin else Path()
    texts = [
        p.read_text(encoding="utf-8") for p in folder.glob("*.py") if p.stem in ("auto_mappings", "configuration_auto")
    ]
    return frozenset(name for text in texts for name in re.findall(r'"([A-Za-z0-9_.-]+)"', text))
