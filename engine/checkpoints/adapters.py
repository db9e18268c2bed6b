"""What an adapter's folder holds (LoRA, as PEFT writes it), from its config and its safetensors' header. No torch.

An adapter adds to what a linear layer gives for x: B A x * scale, with A `[rank, inputs]` and B `[outputs, rank]`. The
scale is alpha / rank (Hu et al. 2021, section 4.1), or alpha / sqrt(rank) where it is rank-stabilized (Kalajdzievski
2023).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import resources
from engine.checkpoints.safetensors import read_headers, read_json
from engine.config.adapters import adapter_name, adapter_source
from engine.config.checks import shown
from engine.config.specs import InvalidInput, ModelSpec

EMBEDDED_ADAPTERS = ("pirate", "german", "verse")  # of the demo model
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
TENSOR = re.compile(r"base_model\.model\.(.+)\.lora_(A|B)(?:\.default)?\.weight")
PLAIN = {  # what of PEFT's settings must be so, and what else it would mean
    "bias": ("none", "trains biases"),
    "use_dora": (False, "scales the weights' columns (DoRA)"),
    "modules_to_save": (None, "replaces whole layers (modules_to_save)"),
    "fan_in_fan_out": (False, "is of layers whose weights lie the other way (fan_in_fan_out)"),
    "trainable_token_indices": (None, "trains tokens of the embedding"),
    "alora_invocation_tokens": (None, "acts after some tokens alone (aLoRA)"),
    "layer_replication": (None, "repeats layers of the model"),
    "arrow_config": (None, "chooses among others by itself (Arrow)"),
    "use_qalora": (False, "pools the inputs (QALoRA)"),
}
BEGUN = (True, False, None, "gaussian", "eva", "orthogonal")  # ways to begin that leave the model's own weights alone
MOST_ALPHA = 1e6
USUAL_ALPHA = 8  # PEFT's, where a config does not say


@dataclass(frozen=True, slots=True)
class Pair:
    """A and B of one linear layer: its `rank`, inputs and outputs, the `scale` of their product, and what the file
    calls them."""

    rank: int
    inputs: int
    outputs: int
    scale: float
    a: str
    b: str

    @property
    def parameters(self) -> int:
        return self.rank * (self.inputs + self.outputs)


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """`pairs` by the path of their layer in the model; `base`: the model it was made for, as it says."""

    name: str
    folder: Path
    base: str
    pairs: dict[str, Pair]

    @property
    def rank(self) -> int:
        """The highest of its layers'."""
        return max(pair.rank for pair in self.pairs.values())

    @property
    def parameters(self) -> int:
        return sum(pair.parameters for pair in self.pairs.values())

    @property
    def layers(self) -> tuple[str, ...]:
        """What the linear layers are called that it has pairs of, each once: "q_proj", "v_proj"."""
        return tuple(dict.fromkeys(path.rpartition(".")[2] for path in self.pairs))


def adapter_folder(source: str) -> Path:
    """Where an adapter lies. Raises InvalidInput where that is no adapter's folder."""
    try:
        folder = Path(source).expanduser()
    except RuntimeError as error:  # of a home that there is not
        raise InvalidInput(f"adapter={source!r}: {error}") from None
    if source in EMBEDDED_ADAPTERS:  # a folder of that name is ./name
        return resources.path(f"adapters/{source}")
    ships = f"give the folder of one, or a name of those that ship: {', '.join(EMBEDDED_ADAPTERS)}"
    if not folder.is_dir():
        raise InvalidInput(f"adapter={source!r}: there is no such folder; {ships}")
    if not (folder / CONFIG).is_file():
        raise InvalidInput(
            f"adapter={source!r}: {folder} has no {CONFIG}, as PEFT's save_pretrained writes it; {ships}"
        )
    if not (folder / WEIGHTS).is_file():
        pickled = " (adapter_model.bin can run any code when opened)" if (folder / "adapter_model.bin").exists() else ""
        raise InvalidInput(f"adapter={source!r}: {folder} has no {WEIGHTS}{pickled}; save it as safetensors")
    return folder


def adapter_bytes(infos: Sequence[AdapterInfo], item: int) -> int:
    """What adapters of one model are held in, of `item` bytes a value: each has a place in every layer that any of them
    changes, of the highest rank of all; lanes that are filled up are not counted."""
    ranks: dict[str, Pair] = {}
    for info in infos:
        for path, pair in info.pairs.items():
            if path not in ranks or ranks[path].rank < pair.rank:
                ranks[path] = pair
    return len(infos) * item * sum(pair.parameters for pair in ranks.values())


def with_shipped(spec: ModelSpec, names: Iterable[str]) -> ModelSpec:
    """The demo model with those that ship of the adapters that requests name, beside its own."""
    lacking = [name for name in names if name in EMBEDDED_ADAPTERS and name not in spec.adapter_names]
    return replace(spec, adapters=(*spec.adapters, *lacking)) if spec.source == "demo" and lacking else spec


def inspect_adapter(given: str) -> AdapterInfo:
    """The facts of an adapter, given as in `ModelSpec.adapters`. Raises InvalidInput for what is none, or more than
    pairs of A and B."""
    name, folder = adapter_name(given), adapter_folder(adapter_source(given))
    try:
        config = read_json(folder / CONFIG)
    except InvalidInput as error:
        raise InvalidInput(f"adapter {name}: {str(error).rpartition('; ')[0]}; save it again") from None
    if not isinstance(config, dict) or str(config.get("peft_type")).upper() != "LORA":
        kind = shown(config.get("peft_type")) if isinstance(config, dict) else "no table"
        raise InvalidInput(f"adapter {name}: {folder / CONFIG} is of the kind {kind}; LoRA alone is computed")
    for key, (plain, otherwise) in PLAIN.items():
        if config.get(key) not in (plain, None, [], {}):
            raise InvalidInput(f"adapter {name}: it {otherwise}, which is not computed here; merge it into the model")
    if (begun := config.get("init_lora_weights")) not in BEGUN:
        raise InvalidInput(
            f"adapter {name}: init_lora_weights={shown(begun)} changes the weights that it is added to; convert it as "
            "PEFT does (path_initial_model_for_weight_conversion), or merge it into the model"
        )
    shapes: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {}
    for tensor, (shape, _) in read_headers([folder / WEIGHTS]).items():
        found = TENSOR.fullmatch(tensor)
        if found is None or len(shape) != 2:
            raise InvalidInput(
                f"adapter {name}: {tensor[:100]} is no A or B of a linear layer; merge it into the model"
            )
        shapes.setdefault(found[1], {})[found[2]] = tensor, shape
    if not shapes:
        raise InvalidInput(f"adapter {name}: {folder / WEIGHTS} holds nothing")
    return AdapterInfo(
        name,
        folder,
        str(config.get("base_model_name_or_path") or ""),
        {path: _pair(name, path, both, config) for path, both in sorted(shapes.items())},
    )


def _pair(name: str, path: str, both: dict[str, tuple[str, tuple[int, ...]]], config: dict[str, Any]) -> Pair:
    (a_name, a), (b_name, b) = (both.get(letter, ("", (0, 0))) for letter in "AB")
    if not a[0] or a[0] != b[1]:
        raise InvalidInput(f"adapter {name}: of {path} A is {list(a)} and B {list(b)}; save it again")
    alpha = _own_alpha(name, path, config.get("alpha_pattern"))
    alpha = config.get("lora_alpha", USUAL_ALPHA) if alpha is None else alpha
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not abs(alpha) <= MOST_ALPHA:
        raise InvalidInput(f"adapter {name}: lora_alpha={shown(alpha)} is no number of up to {MOST_ALPHA:,.0f}")
    scale = float(alpha) / (a[0] ** 0.5 if config.get("use_rslora") else a[0])
    return Pair(a[0], a[1], b[0], scale, a_name, b_name)


def _own_alpha(name: str, path: str, patterns: Any) -> Any:
    """The alpha that a layer has of its own, by the end of its path; None where it has that of all."""
    for end, alpha in patterns.items() if isinstance(patterns, dict) else ():
        if not re.fullmatch(r"[\w.]+", end):
            rule = "only ends of layers' paths are read there; save it with those"
            raise InvalidInput(f"adapter {name}: alpha_pattern has the regular expression {shown(end)}; {rule}")
        if f".{path}".endswith(f".{end}"):
            return alpha
    return None
