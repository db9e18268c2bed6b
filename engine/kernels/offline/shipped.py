"""Every kernel as it is launched: dtypes, widths, kinds of rows, shapes of models. Nothing is compiled here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from torch import Tensor

from engine.kernels.attention.options import Options
from engine.kernels.attention.packed_rows import SHORT, PackedRows
from engine.kernels.attention.paged_attention import paged_attention
from engine.kernels.attention.tilings import Rows
from engine.kernels.jit import Launch, launched
from engine.kernels.offline.meta_weights import awq_weights, empty, expert_codes, four_bit_weights
from engine.kernels.offline.specialization import TYPES, specialization
from engine.kernels.place_kv import HeadNorms, place_kv
from engine.kernels.products.adapters import Tiled, adapt, tile_of
from engine.kernels.products.awq_matmul import awq_matmul, awq_unpack
from engine.kernels.products.coding import Coding
from engine.kernels.products.experts import experts
from engine.kernels.products.four_bits import four_bit_matmul
from engine.kernels.products.gemv import gemv
from engine.kernels.quantized_kv import CODES
from engine.kernels.recurrence import Recurrence, Sequences
from engine.kernels.rms_norm import Rounding, add_norm, rms_norm
from engine.kernels.rotary import rotate
from engine.kernels.routing import route
from engine.kernels.sampling import WORDS, sample
from engine.kernels.silu_mul import Activation, act_mul
from engine.kernels.state_steps import convolution, delta_rule
from engine.kernels.step_inputs import SlotState, StepInputs, apply_changes, decode_inputs, packed_inputs
from engine.kernels.store_kv import store_kv

DEPENDENT = 90  # the architecture for which dependent launches are compiled too


def attention(
    sm: int,
    kind: Rows,
    dtype: torch.dtype,
    head_dim: int,
    *,
    group: int = 4,
    queries: int = 1,
    block_size: int = 16,
    every_option: bool = False,
    codes: torch.dtype | None = None,
    latent: bool = False,
) -> list[Launch]:
    """The kernels of one call: plan, attention. `queries` are the tokens of each short row, or of all long
    ones; `every_option` of attention is asked for, or none; `latent`: one cache is K and V."""
    rows, kv_heads = 64, 1 if latent else 8
    heads = kv_heads * group
    q = empty(rows * queries if kind is Rows.SHORT else queries, heads, head_dim, dtype=dtype)
    k_cache, v_cache = (cache_of(kv_heads, head_dim, codes or dtype, block_size) for _ in range(2))
    short = rows if kind is Rows.SHORT else 0
    packed = PackedRows(empty(rows + 1), empty(rows), empty(rows, 4096), empty(rows), short)
    options = Options(0.1, 1000, 30.0, empty(heads, dtype=dtype)) if every_option else Options(0.1)
    # So many processors that rows of either kind may be split.
    return launched(
        paged_attention, q, k_cache, k_cache if latent else v_cache, packed, options, sm=sm, processors=1000
    )


def cache_of(kv_heads: int, head_dim: int, dtype: torch.dtype, block_size: int = 16) -> Tensor:
    """A K or V cache, of codes where the dtype is theirs."""
    return empty(1000, block_size, kv_heads, head_dim + (dtype in CODES.values()), dtype=dtype)


def coded() -> Iterator[tuple[str, Launch]]:
    """What writes to a cache of codes."""
    k, shape, slots = empty(64, 8, 128, dtype=torch.bfloat16), SHAPES["Qwen3 0.6B"], empty(64, dtype=torch.int64)
    q, tables = empty(64, shape.heads, 128, dtype=torch.bfloat16), empty(2, 64, 128, dtype=torch.bfloat16)
    weight = empty(128, dtype=torch.bfloat16)
    for name, codes in CODES.items():
        cache = cache_of(8, 128, codes)
        yield f"store_kv 128 bf16 to {name}", launched(store_kv, k, k, cache, cache, slots)[0]
        norms = HeadNorms(weight, weight, 1e-6, shape.rounding)
        placing = launched(place_kv, q, k, k, (tables[0], tables[1]), norms, (cache, cache), slots)
        yield f"place_kv Qwen3 0.6B bf16 to {name}", placing[0]


def making_inputs() -> list[Launch]:
    """What makes a step's inputs on the device: changes, the inputs of decode steps, those of packed rows."""
    rows = empty(64)
    ids, positions, cache_slots = empty(3, 64, dtype=torch.int64)
    written = StepInputs(ids, positions, cache_slots, rows)
    state = SlotState(empty(257, dtype=torch.int64), empty(257), empty(257), empty(257, 4096))
    decode = launched(decode_inputs, written, rows, rows, state, 16)
    packed = launched(packed_inputs, written, rows, empty(65), rows, rows, state, 16)
    return launched(apply_changes, rows, empty(128)) + decode + packed


def drawing(vocabulary: int, dtype: torch.dtype) -> list[Launch]:
    """The kernels that draw the tokens of 64 rows with limits."""
    logits, slots, seen = empty(64, vocabulary, dtype=dtype), empty(64), empty(257, vocabulary, dtype=torch.uint8)
    state = empty(257, WORDS), seen, empty(257, dtype=torch.int64)
    return launched(sample, logits, slots, slots, *state, limited=True)


def dependent(launch: Launch) -> Launch:
    """The same as `engine.kernels.dependent_launch` has it launched."""
    return launch._replace(arguments={**launch.arguments, "launch_pdl": True})


def norm(x: Tensor, rounding: Rounding) -> Launch:
    weight = None if rounding is Rounding.NONE else x.new_empty(x.shape[-1])
    return launched(rms_norm, x, weight, 1e-6, rounding)[0]


def awq_product(rows: int, group: int, dtype: torch.dtype) -> Launch:
    """A product of an 8B model's size."""
    return launched(awq_matmul, empty(rows, 4096, dtype=dtype), *awq_weights(4096, 4096, group))[0]


def gated(dtype: torch.dtype) -> Iterator[tuple[str, Launch]]:
    """Products of an 8B model's size that end with their gate."""
    inputs, outputs, gate = 4096, 28_672, Activation.SILU
    row = empty(1, inputs, dtype=dtype)
    yield f"gated gemv {TYPES[dtype]}", launched(gemv, row, empty(outputs, inputs, dtype=dtype), None, 132, gate)[0]
    for rows in (1, 64):
        x = empty(rows, inputs, dtype=dtype)
        weights = awq_weights(inputs, outputs, 128)
        yield f"gated awq_matmul {rows} {TYPES[dtype]}", launched(awq_matmul, x, *weights, gate=gate)[0]
        four = four_bit_weights(inputs, outputs, dtype)
        yield f"gated four_bit_matmul {rows} {TYPES[dtype]}", launched(four_bit_matmul, x, *four, gate=gate)[0]


def mixture(dtype: torch.dtype) -> Iterator[tuple[str, Launch]]:
    """A layer of 64 experts of which 8 have each token: few tokens, a prompt's, and many more."""
    count, each, hidden, columns = 64, 8, 2048, 1024
    yield f"route {TYPES[dtype]}", launched(route, empty(8, count, dtype=dtype), each, True, dtype)[0]
    weights = empty(count, 2 * columns, hidden, dtype=dtype), empty(count, hidden, columns, dtype=dtype)
    for tokens in (8, 256) if dtype is torch.float32 else (8, 256, 2048):
        x, by = empty(tokens, hidden, dtype=dtype), empty(tokens, each, dtype=dtype)
        ids, telling = empty(tokens, each, dtype=torch.int64), (empty(count), empty(tokens, 1))
        found = launched(experts, x, ids, by, *weights, Activation.SILU, *telling)
        for launch, what in zip(found, ("", "gate_up ", "down ", ""), strict=True):
            yield f"{_name(launch)} {what}{tokens} {TYPES[dtype]}", launch
    if dtype is torch.bfloat16:
        several = {Coding.ENTRIES: (8, 256, 2048), Coding.POWERS: (8, 256, 2048), Coding.STEPS: (8, 2048)}
        biases = empty(count, 2 * columns, dtype=dtype), empty(count, hidden, dtype=dtype)
        for coding, tokens in [(kind, some) for kind in Coding for some in several.get(kind, (8,))]:
            x, by = empty(tokens, hidden, dtype=dtype), empty(tokens, each, dtype=dtype)
            ids = empty(tokens, each, dtype=torch.int64)
            codes = [expert_codes(coding, count, *size, dtype) for size in ((2 * columns, hidden), (hidden, columns))]
            as_gpt_oss = coding is Coding.POWERS
            activation = Activation.CLAMPED if as_gpt_oss else Activation.SILU
            _, gated, *_ = launched(experts, x, ids, by, *codes, activation, biases=biases if as_gpt_oss else None)
            yield f"{_name(gated)} of {coding.name.lower()} gate_up {tokens} {TYPES[dtype]}", gated


def adapted(dtype: torch.dtype) -> Iterator[tuple[str, Launch]]:
    """What eight adapters add to an 8B model's joined queries, keys and values: of one tile of ranks, and more."""
    depth, widths = 4096, [4096, 1024, 1024]
    for rank in (16, 256):
        down, up = empty(8, 3 * rank, depth, dtype=dtype), empty(8, sum(widths), rank, dtype=dtype)
        tiled = Tiled(down, up, empty(96, 3), tile_of(rank, dtype))
        x, out = empty(64, depth, dtype=dtype), empty(64, sum(widths), dtype=dtype)
        for launch in launched(adapt, out, x, tiled, empty(64, dtype=torch.int64)):
            yield f"{_name(launch)} rank {rank} {TYPES[dtype]}", launch


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's widths, for the small kernels."""

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    head_norms: bool
    rounding: Rounding
    activation: Activation


SHAPES = {
    "Llama 8B": Shape(4096, 14_336, 32, 8, 128, False, Rounding.TWICE, Activation.SILU),
    "Qwen3 0.6B": Shape(1024, 3072, 16, 8, 128, True, Rounding.TWICE, Activation.SILU),
    "Gemma 3 1B": Shape(1152, 6912, 4, 1, 256, True, Rounding.ONE_PLUS, Activation.GELU_TANH),
}


def small(shape: Shape, dtype: torch.dtype) -> Iterator[tuple[str, Launch]]:
    """Norms, gates and rotations of a model whose products are joined: their parts are read where they lie."""
    heads = empty(1, 64, shape.heads + 2 * shape.kv_heads, shape.head_dim, dtype=dtype).transpose(1, 2)
    q, k = heads[:, : shape.heads], heads[:, shape.heads : shape.heads + shape.kv_heads]
    gates, up = empty(1, 64, 2 * shape.intermediate, dtype=dtype).chunk(2, dim=-1)
    x = empty(1, 64, shape.hidden, dtype=dtype)
    yield "rms_norm", norm(x, shape.rounding)
    before = x[0, 0] if shape.rounding is Rounding.ONE_PLUS else None
    yield "add_norm", launched(add_norm, x, x, before, x[0, 0], 1e-6, shape.rounding)[0]
    if shape.head_norms:
        yield "rms_norm q", norm(q, shape.rounding)
        yield "rms_norm k", norm(k, shape.rounding)
    yield f"act_mul {shape.activation.name.lower()}", launched(act_mul, gates, up, shape.activation)[0]
    cos, sin = empty(2, 1, 64, shape.head_dim, dtype=dtype)
    yield "rotary", launched(rotate, q, k, cos, sin)[0]
    weight = empty(shape.head_dim, dtype=dtype)
    norms = HeadNorms(weight, weight, 1e-6, shape.rounding) if shape.head_norms else None
    cache = empty(1000, 16, shape.kv_heads, shape.head_dim, dtype=dtype)
    given = *(x[0].transpose(0, 1) for x in (q, k, heads[:, -shape.kv_heads :])), (cos[0], sin[0])
    yield "place_kv", launched(place_kv, *given, norms, (cache, cache), empty(64, dtype=torch.int64))[0]


def stepping(dtype: torch.dtype) -> list[Launch]:
    """A token of each of many sequences through a layer of Qwen3.5-9B's that keeps a state."""
    rows, groups, heads, width, taps = 64, 16, 32, 128, 4
    channels, whose = (2 * groups + heads) * width, Sequences(empty(rows), empty(rows))
    x, recent, weight = (
        empty(rows, channels, dtype=dtype),
        empty(65, taps, channels, dtype=dtype),
        empty_floats(taps, channels),
    )
    gate, few = empty(rows, heads * width, dtype=dtype), empty(rows, heads, dtype=dtype)
    fixed = Recurrence(empty_floats(heads), empty_floats(heads), empty_floats(width), groups, 1e-6)
    states = empty_floats(65, heads, width, width)
    return [
        *launched(convolution, x, recent.mT, weight, None, True, whose),
        *launched(delta_rule, x, gate, few, few, states, fixed, whose),
    ]


def empty_floats(*shape: int) -> Tensor:
    return empty(*shape, dtype=torch.float32)


@cache
def shipped(sm: int) -> dict[str, Launch]:
    """Every kernel as it is launched on an architecture, by name: dtypes, head_dims, kinds of rows, shapes of models.
    float16 takes bfloat16's tilings and as many registers or nearly, so little of it is here."""
    bf16, fp16, fp32 = torch.bfloat16, torch.float16, torch.float32
    found: list[tuple[str, Launch]] = []
    singles = [(fp32, head_dim) for head_dim in (64, 128, 256, 512)]
    for dtype, head_dim in [(bf16, 64), (bf16, 128), (bf16, 256), (bf16, 512), (fp16, 128), *singles]:
        sizes = f"{head_dim} {TYPES[dtype]}"
        kinds = [(Rows.SHORT, 1), (Rows.SHORT, SHORT), (Rows.LONG, 512)]
        for kind, queries in kinds[-1:] if dtype is fp16 else kinds:
            name = f"attention {kind.value} {queries} {sizes}"
            _, attend = attention(sm, kind, dtype, head_dim, queries=queries, every_option=True)
            found.append((name, attend))
            if dtype is bf16:  # fewer options may take more registers
                found.append((f"{name} plain", attention(sm, kind, dtype, head_dim, queries=queries)[1]))
        k, cache = empty(64, 8, head_dim, dtype=dtype), empty(1000, 16, 8, head_dim, dtype=dtype)
        storing = launched(store_kv, k, k, cache, cache, empty(64, dtype=torch.int64))
        found.append((f"store_kv {sizes}", storing[0]))
    codes_of = [(bf16, 64), (bf16, 128), (bf16, 256), (bf16, 512), (fp16, 128), *singles]
    for (dtype, head_dim), (kind, queries) in product(codes_of, ((Rows.SHORT, 1), (Rows.LONG, 512))):
        for name, codes in CODES.items():
            if (name == "int8" or head_dim == 128) and (kind is Rows.SHORT or dtype is not fp32):
                size = f"{head_dim} {TYPES[dtype]} of {name}"
                _, attend = attention(sm, kind, dtype, head_dim, queries=queries, every_option=True, codes=codes)
                found.append((f"attention {kind.value} {size}", attend))
    for (kind, queries), kept in product(((Rows.SHORT, 1), (Rows.LONG, 512)), (None, torch.int8)):
        latents = attention(sm, kind, bf16, 576, group=128, queries=queries, codes=kept, latent=True)  # DeepSeek-V3's
        found.append((f"attention {kind.value} latents{'' if kept is None else ' of int8'}", latents[1]))
    for dtype in (bf16, fp16, fp32):
        found += [(f"{_name(launch)} {TYPES[dtype]}", launch) for launch in stepping(dtype)]
    found += coded()
    found.append(("plan", attention(sm, Rows.SHORT, bf16, 128, every_option=True)[0]))
    found += [(_name(launch), launch) for launch in making_inputs()]
    for vocabulary, dtype in ((151_936, bf16), (32_000, fp16), (128_256, fp32)):
        found += [(f"{_name(launch)} {vocabulary} {TYPES[dtype]}", launch) for launch in drawing(vocabulary, dtype)]
    for model, shape in SHAPES.items():
        for dtype in (bf16, fp32):
            found += [(f"{name} {model} {TYPES[dtype]}", launch) for name, launch in small(shape, dtype)]
    for dtype in (bf16, fp16):
        for inputs, outputs in ((4096, 4096), (4096, 6144), (3072, 1024), (2880, 4096)):
            row, weight = empty(1, inputs, dtype=dtype), empty(outputs, inputs, dtype=dtype)
            found.append((f"gemv {inputs} {outputs} {TYPES[dtype]}", launched(gemv, row, weight, None, 132)[0]))
        for rows in (1, 9, 17, 64):
            found.append((f"awq_matmul {rows} {TYPES[dtype]}", awq_product(rows, 128, dtype)))
        found.append((f"awq_matmul 1 {TYPES[dtype]} groups of 32", awq_product(1, 32, dtype)))
        for rows in (1, 17):
            given = empty(rows, 4096, dtype=dtype), *four_bit_weights(4096, 4096, dtype)
            multiplying = launched(four_bit_matmul, *given)
            found.append((f"four_bit_matmul {rows} {TYPES[dtype]}", multiplying[0]))
        unpacking = launched(awq_unpack, *awq_weights(4096, 4096, 128), 4096, dtype)
        found.append((f"awq_unpack {TYPES[dtype]}", unpacking[0]))
    found += gated(bf16)
    for dtype in (bf16, fp32):
        found += mixture(dtype)
        found += adapted(dtype)
    if sm == DEPENDENT:
        first = {launch.kernel: (name, launch) for name, launch in reversed(found)}
        found += [(f"{name} dependent", dependent(launch)) for name, launch in first.values()]
        for head_dim in (64, 128, 256):
            later = dependent(attention(sm, Rows.SHORT, bf16, head_dim)[1])
            early = later._replace(arguments=later.arguments | {"EARLY": True})
            found.append((f"attention {Rows.SHORT.value} 1 {head_dim} bf16 of later layers", early))
    twice = [name for name, count in Counter(name for name, _ in found).items() if count > 1]
    assert not twice, twice
    once = {specialization(launch): name for name, launch in reversed(found)}  # code is shown under its first name
    return {name: launch for name, launch in found if once[specialization(launch)] == name}


GROUPS, BLOCK_SIZES, HEAD_DIMS = (*range(1, 9), 16), (16, 32, 64), (64, 80, 96, 128, 192, 256)


@cache
def matrix(sm: int) -> dict[str, Launch]:
    """Attention of bfloat16 models of every group, block size and head size, decode and prefill, by name."""
    return {
        f"{kind.value} group {group} block {block} head {head_dim}": attention(
            sm, kind, torch.bfloat16, head_dim, group=group, queries=queries, block_size=block, every_option=True
        )[1]
        for head_dim, group, block in product(HEAD_DIMS, GROUPS, BLOCK_SIZES)
        for kind, queries in ((Rows.SHORT, 1), (Rows.LONG, 512))
    }


def _name(launch: Launch) -> str:
    return str(launch.kernel.fn.__name__).removesuffix("_kernel")
