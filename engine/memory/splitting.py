"""Whether a model can be split over ranks, told from its files before anything is loaded. No torch. A load has the last
word: it sees each layer."""

from engine.checkpoints.architectures import has_split_plan
from engine.checkpoints.info import ModelInfo
from engine.config.parallel import dividing
from engine.kernels.products.coding import Coding
from engine.memory.weight_bytes import GROUPS, group_of, held_as, quantizes_experts

NORMS = ("q_norm.weight", "k_norm.weight")


def why_whole(info: ModelInfo, quantization: str = "none") -> str:
    """Why it cannot be split, with what else would; "" where it can, by its heads and columns or with experts whole."""
    if not has_split_plan(info.model_type):
        return f"transformers cannot split model type {info.model_type!r}"
    if info.states.layers:
        return "layers of this model keep a state of a sequence"
    if info.latent:
        return "all heads of this model read one latent"
    together = {heads * info.head_dim for heads in (info.heads, info.kv_heads)} - {info.head_dim}
    if any(name.endswith(NORMS) and values in together for name, (values, _) in info.tensors.items()):
        return "this model norms all its heads together"
    counts = rank_counts(info, quantization), rank_counts(info, quantization, whole_experts=True)
    if max(map(len, counts)) == 1:
        kv = f" and {info.kv_heads:,} of keys and values" if info.kv_heads != info.heads else ""
        groups = " in groups that share a scale" if len(dividing([info.heads, info.kv_heads])) > 1 else ""
        return f"no number of ranks divides its {info.heads:,} heads{kv}{groups}"
    return ""


def why_unstaged(info: ModelInfo) -> str:
    """Why its layers cannot be on several devices, one stage after another; "" where they can."""
    if info.states.layers:
        return "layers of this model keep a state of a sequence"
    return "this model has one layer, and a stage needs one" if info.layers < 2 else ""


def rank_counts(info: ModelInfo, quantization: str = "none", whole_experts: bool = False) -> list[int]:
    """Over how many ranks its heads and the columns of its MLPs can be shared out, 1 first; with `whole_experts` a
    mixture's experts by their number. Of what is quantized whole groups of columns that share a scale."""
    held, heads = held_as(info, quantization), info.heads * info.head_dim
    counts = [info.heads, info.kv_heads]
    wide = [] if info.experts else [info.mlp] if info.mlp else []  # of a mixture it is what several have together
    if info.stored_as == "awq":
        counts += [_groups(inputs, group_of(info)) for inputs in (heads, *wide)]
    if whole_experts and info.layer_experts:
        return dividing([*counts, *wide, info.layer_experts])
    return dividing([*counts, *wide, *expert_groups(info, held)])


def expert_groups(info: ModelInfo, held: str) -> list[int]:
    """How many groups of columns that share a scale a mixture's experts have, where they are held so."""
    if not quantizes_experts(info, held):
        return []
    each = group_of(info) if held == "awq" else GROUPS.get(held, Coding.BYTES.word)
    return [_groups(inputs, each) for inputs, outputs, _ in info.expert_matrices if outputs == info.hidden]


def _groups(inputs: int, each: int) -> int:
    return 1 if each == -1 else inputs // each
