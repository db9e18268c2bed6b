"""Whether a model can be split over ranks, told from its files before anything is loaded. No torch. A load has the last
word: it sees each layer."""

from engine.checkpoints.architectures import has_split_plan
from engine.checkpoints.info import ModelInfo
from engine.config.parallel import dividing

QUANTIZED = "what is quantized cannot be split yet: choose quantization none"
NORMS = ("q_norm.weight", "k_norm.weight")


def why_whole(info: ModelInfo, quantization: str = "none") -> str:
    """Why it cannot be split, with what else would; "" where it can."""
    if quantization != "none" or info.quantized is not None:
        return QUANTIZED
    if not has_split_plan(info.model_type):
        return f"transformers cannot split model type {info.model_type!r}"
    together = {heads * info.head_dim for heads in (info.heads, info.kv_heads)} - {info.head_dim}
    if any(name.endswith(NORMS) and values in together for name, (values, _) in info.tensors.items()):
        return "this model norms all its heads together"
    if len(rank_counts(info)) == 1:
        kv = f" and {info.kv_heads:,} of keys and values" if info.kv_heads != info.heads else ""
        return f"no number of ranks divides its {info.heads:,} heads{kv}"
    return ""


def why_unstaged(info: ModelInfo, quantization: str = "none") -> str:
    """Why its layers cannot be on several devices, one stage after another; "" where they can."""
    if quantization != "none" or info.quantized is not None:
        return QUANTIZED
    return "this model has one layer, and a stage needs one" if info.layers < 2 else ""


def rank_counts(info: ModelInfo) -> list[int]:
    """Over how many ranks its heads and the columns of its MLPs can be shared out, 1 first."""
    wide = [info.mlp] if info.mlp and not info.experts else []  # of a mixture it is what several experts have together
    return dividing([info.heads, info.kv_heads, *wide])
