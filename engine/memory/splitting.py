"""Whether a model can be split over ranks, told from its files before anything is loaded. No torch. A load has the last
word: it sees each layer."""

from engine.checkpoints.architectures import has_split_plan
from engine.checkpoints.info import ModelInfo
from engine.config.parallel import dividing

NORMS = ("q_norm.weight", "k_norm.weight")


def why_whole(info: ModelInfo) -> str:
    """Why it cannot be split, with what else would; "" where it can."""
    if not has_split_plan(info.model_type):
        return f"transformers cannot split model type {info.model_type!r}"
    together = {heads * info.head_dim for heads in (info.heads, info.kv_heads)} - {info.head_dim}
    if any(name.endswith(NORMS) and values in together for name, (values, _) in info.tensors.items()):
        return "this model norms all its heads together"
    if len(rank_counts(info)) == 1:
        kv = f" and {info.kv_heads:,} of keys and values" if info.kv_heads != info.heads else ""
        groups = " in AWQ's groups" if len(dividing([info.heads, info.kv_heads])) > 1 and _groups(info) else ""
        return f"no number of ranks divides its {info.heads:,} heads{kv}{groups}"
    return ""


def why_unstaged(info: ModelInfo) -> str:
    """Why its layers cannot be on several devices, one stage after another; "" where they can."""
    return "this model has one layer, and a stage needs one" if info.layers < 2 else ""


def rank_counts(info: ModelInfo) -> list[int]:
    """Over how many ranks its heads and the columns of its MLPs can be shared out, 1 first."""
    return dividing([info.heads, info.kv_heads, *_wide(info), *_groups(info)])


def _wide(info: ModelInfo) -> list[int]:
    """The columns of an MLP; of a mixture `mlp` is what several experts have together."""
    return [info.mlp] if info.mlp and not info.experts else []


def _groups(info: ModelInfo) -> list[int]:
    """How many groups of inputs have a scale each, of the layers of which ranks have some inputs."""
    if info.stored_as != "awq" or info.quantized is None:
        return []
    each = info.quantized.group
    return [1 if each == -1 else inputs // each for inputs in (info.heads * info.head_dim, *_wide(info))]
