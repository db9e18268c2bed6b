"""What the tensors of a checkpoint are, told from their names and shapes: the linear layers that a quantization holds
in fewer bits, and all that stays as it is. No torch.

It follows what transformers' bitsandbytes and torchao loaders convert: every `nn.Linear` (bitsandbytes GPT-2's Conv1D
too) but the output layer and, as it is told, what makes keys and values of latents. Experts of a mixture are one
three-dimensional parameter once loaded, which a quantization of ours converts where it holds a matrix of each expert,
and perhaps biases; most routers are bare parameters, and stay.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from engine.checkpoints.mxfp4_settings import packed_matrix
from engine.config.checks import check

Shapes = Mapping[str, tuple[int, ...]]

HEADS = ("lm_head", "embed_out")
OF_LATENTS = "kv_b_proj"  # makes keys and values of latents: queries are multiplied with it instead, as it is
_EMBEDDING = re.compile(r"(^|[._])(embed|embeds|embedding|embeddings|wte|wpe|embed_tokens|embed_positions)([._]|$)")
TOGETHER = (".input_linear.weight", ".experts.gate_up_proj"), (".output_linear.weight", ".experts.down_proj")
_EXPERT = re.compile(r"\.experts\.")
_ROUTER = re.compile(r"((?<!router)\.gate|\.router(\.layer)?)$")
_NOT_LINEAR = re.compile(r"(norm|^ln|\.ln)[^.]*$")
# Buffers that older checkpoints carry; the model makes its own.
_BUFFER = re.compile(r"(rotary_emb\.inv_freq|\.masked_bias|\.attn\.bias|\.attention\.bias)$")
_BALANCE = ".e_score_correction_bias"  # of a router: a buffer, or, of more than one dimension, a parameter
_MX_SCALES = ("gate_up_proj_scales", "down_proj_scales")
_PACKED = ("qweight", "qzeros", "scales", "g_idx")


@dataclass(frozen=True, slots=True)
class Weights:
    """`linears`: (inputs, outputs) of each linear layer that can be quantized, or that is in an AWQ checkpoint.
    `others`: elements of all other parameters; `experts`: those of them that belong to a mixture's experts, and
    `expert_matrices` what these are where they can be quantized: (inputs, outputs, how many)."""

    linears: tuple[tuple[int, int], ...]
    others: int
    experts: int
    expert_matrices: tuple[tuple[int, int, int], ...] = ()

    @property
    def parameters(self) -> int:
        return sum(inputs * outputs for inputs, outputs in self.linears) + self.others


def sort_weights(shapes: Shapes, *, tied: bool = False, conv1d: bool = False, bits: int = 0) -> Weights:
    """`tied`: the output layer is the embedding's, and is not counted if it is stored all the same. `conv1d`: linear
    layers are stored [inputs, outputs]. `bits` of each weight of an AWQ or GPTQ checkpoint, whose linear layers are
    those that are packed; 0 for a plain one. Raises InvalidInput where a packed one is no matrix."""
    linears: list[tuple[int, int]] = []
    others = experts = 0
    of_experts: dict[str, tuple[int, ...]] = {}
    packed_experts = Counter[tuple[int, int]]()
    for told, shape in shapes.items():
        name = next((told.removesuffix(own) + new for own, new in TOGETHER if told.endswith(own)), told)
        module, _, leaf = name.rpartition(".")
        if _is_buffer(name, shape) or (tied and leaf == "weight" and _is_head(module)):
            continue
        if (packed := packed_matrix(name, shape)) is not None:
            packed_experts[packed[:2]] += packed[2]
            continue
        if leaf in _MX_SCALES:  # beside those
            continue
        if bits and leaf in _PACKED:
            if leaf == "qweight":
                check(len(shape) == 2, name[:80], list(shape), "packed weights have two sizes; fetch the model again")
                inputs, outputs = shape[0], shape[1] * 32 // bits
                if _EXPERT.search(name):
                    packed_experts[inputs, outputs] += 1
                else:
                    linears.append((inputs, outputs))
            continue
        if not bits and is_linear(name, shape):
            inputs, outputs = shape if conv1d else (shape[1], shape[0])
            linears.append((inputs, outputs))
        else:
            others += prod(shape)
            if _EXPERT.search(name):
                experts += prod(shape)
                of_experts[name] = shape
    found = tuple((inputs, outputs, count) for (inputs, outputs), count in packed_experts.items())
    elements = sum(map(prod, found))
    matrices = () if bits else _matrices(of_experts)
    return Weights(tuple(linears), others + elements, experts + elements, found or matrices)


def is_linear(name: str, shape: tuple[int, ...]) -> bool:
    """Whether this tensor is the weight of a linear layer that a quantization at load converts."""
    module, _, leaf = name.rpartition(".")
    if leaf != "weight" or len(shape) != 2 or _is_head(module) or module.rpartition(".")[2] == OF_LATENTS:
        return False
    return not any(pattern.search(module) for pattern in (_EXPERT, _ROUTER, _EMBEDDING, _NOT_LINEAR))


def _matrices(shapes: Shapes) -> tuple[tuple[int, int, int], ...]:
    """(inputs, outputs, how many) of experts that are matrices, or all of a layer in one tensor, gates above what they
    gate, or as gpt-oss has them, turned and with biases; of other layouts none."""
    if all(len(shape) == 2 and name.endswith(".weight") for name, shape in shapes.items()):
        return tuple((inputs, outputs, count) for (outputs, inputs), count in Counter(shapes.values()).items())
    kinds = {(name.rpartition(".")[2], shape) for name, shape in shapes.items()}
    leaves, shape_of = sorted(leaf for leaf, _ in kinds), dict(kinds)
    turned = leaves == ["down_proj", "down_proj_bias", "gate_up_proj", "gate_up_proj_bias"]
    if not turned and leaves != ["down_proj", "gate_up_proj"]:
        return ()
    gate_up, down = shape_of["gate_up_proj"], shape_of["down_proj"]
    if len(down) != 3 or len(gate_up) != 3:
        return ()
    experts, hidden, columns = (down[0], down[2], down[1]) if turned else down
    count = len(shapes) // len(leaves) * experts
    ours = gate_up[1:] == ((hidden, 2 * columns) if turned else (2 * columns, hidden))
    return ((columns, hidden, count), (hidden, 2 * columns, count)) if ours else ()


def _is_head(module: str) -> bool:
    return module.rpartition(".")[2] in HEADS


def _is_buffer(name: str, shape: tuple[int, ...]) -> bool:
    if name.endswith(_BALANCE):
        return len(shape) == 1
    return bool(_BUFFER.search(name)) and (len(shape) != 1 or not name.endswith(".bias"))
