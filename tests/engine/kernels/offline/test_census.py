"""A census of what Triton compiles: every specialization that a run can launch was met at its load, so that no step
waits for a compiler. Told by the launches themselves, over meta tensors as the models' layers leave them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from engine.config.specs import EngineConfig
from engine.core.setup.rehearsal import Rehearsal
from engine.kernels.attention.options import Options
from engine.kernels.attention.packed_rows import SHORT, PackedRows
from engine.kernels.attention.paged_attention import paged_attention
from engine.kernels.jit import Launch, launched
from engine.kernels.offline.meta_weights import awq_weights, empty, expert_codes, four_bit_weights
from engine.kernels.offline.shipped import norm
from engine.kernels.offline.specialization import specialization
from engine.kernels.place_kv import HeadNorms, place_kv
from engine.kernels.products.awq_matmul import FUSED_ROWS, awq_matmul, can_gate
from engine.kernels.products.coding import Coding
from engine.kernels.products.experts import experts
from engine.kernels.products.four_bits import BLOCK_K, FEW_ROWS, four_bit_matmul
from engine.kernels.products.gemv import gemv
from engine.kernels.rms_norm import Rounding, add_norm
from engine.kernels.rotary import rotate
from engine.kernels.routing import route
from engine.kernels.sampling import WORDS, sample
from engine.kernels.silu_mul import Activation, act_mul
from engine.kernels.store_kv import store_kv
from engine.memory.rules import bucket_sizes, mixed_sizes
from engine.runner.packed_words import PackedShape
from engine.scheduler.plan import StepPlan
from tests.engine.scheduler.simulated_device import Letters

BLOCK = 16
MOST = 2048  # tokens of a step


@dataclass(frozen=True)
class Model:
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    windows: tuple[int | None, ...] = (None,)
    head_norms: bool = False
    rounding: Rounding = Rounding.TWICE
    activation: Activation = Activation.SILU
    bias: bool = False
    softcap: float | None = None
    sinks: bool = False
    group: int = 128  # of its AWQ weights
    experts: int = 0  # of a model with sinks they are as gpt-oss has them
    each: int = 0  # experts of a token


MODELS = {
    "Llama 3.1 8B": Model(4096, 14_336, 32, 8, 128, 128_256),
    "Llama 3.2 1B": Model(2048, 8192, 32, 8, 64, 128_256),
    "Qwen2.5 7B": Model(3584, 18_944, 28, 4, 128, 152_064, bias=True),
    "Qwen3 0.6B": Model(1024, 3072, 16, 8, 128, 151_936, head_norms=True),
    "Gemma 2 9B": Model(3584, 14_336, 16, 8, 256, 256_000, (None, 4096), False, Rounding.ONE_PLUS,
                        Activation.GELU_TANH, softcap=50.0),
    "Gemma 3 1B": Model(1152, 6912, 4, 1, 256, 262_144, (None, 512), True, Rounding.ONE_PLUS, Activation.GELU_TANH),
    "GPT-OSS 20B": Model(2880, 2880, 64, 8, 64, 201_088, (None, 128), False, Rounding.ONCE, bias=True, sinks=True,
                         group=32, experts=32, each=4),
    "Phi-3 mini": Model(3072, 8192, 32, 32, 96, 32_064, (2047,)),
    "Qwen3 30B-A3B": Model(2048, 768, 32, 4, 128, 151_936, head_norms=True, experts=128, each=8),
    "Mixtral 8x7B": Model(4096, 14_336, 32, 8, 128, 32_000, experts=8, each=2),
}  # fmt: skip


@dataclass(frozen=True)
class Gpu:
    sm: int
    processors: int
    dtype: torch.dtype = torch.bfloat16


GPUS = Gpu(90, 132), Gpu(89, 24)


def small_kernels(model: Model, gpu: Gpu, tokens: int) -> Iterator[Launch]:
    """Of a step of so many tokens: norms, rotations, gates, what is stored, whether products are joined or not."""
    new = partial(empty, dtype=gpu.dtype)
    heads, kv_heads, dim = model.heads, model.kv_heads, model.head_dim
    x = new(1, tokens, model.hidden)
    yield norm(x, model.rounding)
    yield from launched(add_norm, x, x, None, new(model.hidden), 1e-6, model.rounding)
    tables = empty(2, 1, tokens, dim, dtype=gpu.dtype)
    joined = new(1, tokens, heads + 2 * kv_heads, dim).split((heads, kv_heads, kv_heads), dim=2)
    apart = tuple(new(1, tokens, count * dim).view(1, tokens, count, dim) for count in (heads, kv_heads, kv_heads))
    for q, k, v in (joined, apart):
        cache, slots = new(1000, BLOCK, kv_heads, dim), empty(3, tokens, dtype=torch.int64)[2]
        norms = HeadNorms(new(dim), new(dim), 1e-6, model.rounding) if model.head_norms else None
        given = *(x[0] for x in (q, k, v)), (tables[0, 0], tables[1, 0]), norms, (cache, cache), slots
        yield from launched(place_kv, *given)
        if model.head_norms:
            yield norm(q, model.rounding)
            yield norm(k, model.rounding)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        yield from launched(rotate, q, k, *tables)
        # Keys that torch has rotated lie as it lays what it computes of these.
        for keys in (new(1, tokens, kv_heads, dim).transpose(1, 2), torch.empty_like(k)):
            yield from launched(store_kv, keys[0].transpose(0, 1), v[0].transpose(0, 1), cache, cache, slots)
    for gate, up in (new(1, tokens, 2 * model.intermediate).chunk(2, -1), new(2, 1, tokens, model.intermediate)):
        yield from launched(act_mul, gate, up, model.activation)


def products(model: Model, gpu: Gpu, tokens: int) -> Iterator[Launch]:
    """Of a step of an AWQ checkpoint, one in nf4, or a dense one."""
    q, kv = model.heads * model.head_dim, model.kv_heads * model.head_dim
    joined = {(model.hidden, q + 2 * kv), (model.hidden, 2 * model.intermediate)}
    layers = {(model.hidden, q), (model.hidden, kv), (q, model.hidden), (model.hidden, model.intermediate)}
    for inputs, outputs in layers | joined | {(model.intermediate, model.hidden)}:
        x, weights = empty(1, tokens, inputs, dtype=gpu.dtype), awq_weights(inputs, outputs, model.group)
        bias = empty(outputs, dtype=gpu.dtype) if model.bias else None
        # Of more rows torch adds it, which of meta tensors takes it as long as all else here.
        yield from launched(awq_matmul, x, *weights, bias if tokens <= FUSED_ROWS else None)
        if tokens <= FEW_ROWS and inputs % BLOCK_K == 0:
            given = x, *four_bit_weights(inputs, outputs, gpu.dtype), bias
            yield from launched(four_bit_matmul, *given)
        if tokens == 1:
            yield from launched(gemv, x, empty(outputs, inputs, dtype=gpu.dtype), bias, gpu.processors)
    x, outputs, gate = empty(1, tokens, model.hidden, dtype=gpu.dtype), 2 * model.intermediate, model.activation
    bias = empty(outputs, dtype=gpu.dtype) if model.bias else None
    if can_gate(tokens, outputs):
        yield from launched(awq_matmul, x, *awq_weights(model.hidden, outputs, model.group), bias, gate=gate)
    if tokens <= FEW_ROWS and model.hidden % BLOCK_K == 0:
        yield from launched(four_bit_matmul, x, *four_bit_weights(model.hidden, outputs, gpu.dtype), bias, gate=gate)
    if tokens == 1:
        weight = empty(outputs, model.hidden, dtype=gpu.dtype)
        yield from launched(gemv, x, weight, bias, gpu.processors, gate)
    if model.experts:
        yield from mixture(model, gpu, tokens)


def mixture(model: Model, gpu: Gpu, tokens: int) -> Iterator[Launch]:
    """Of a mixture's layer: what routes tokens, and the experts, that count in a step with filling and in others."""
    new = partial(empty, dtype=gpu.dtype)
    columns, hidden = model.intermediate, model.hidden
    if model.sinks:
        yield from published(model, gpu, tokens)
        return
    weights = new(model.experts, 2 * columns, hidden), new(model.experts, hidden, columns)
    yield from launched(route, new(tokens, model.experts), model.each, True, gpu.dtype)
    if tokens == 1:
        yield from launched(gemv, new(1, hidden), new(model.experts, hidden), None, gpu.processors)
    sent = empty(tokens, model.each, dtype=torch.int64), new(tokens, model.each)
    for real in (None, empty(MOST, 1)[:tokens]):
        telling = empty(4, model.experts)[1], real
        yield from launched(experts, new(tokens, hidden), *sent, *weights, model.activation, *telling)
    for coding in Coding:
        codes = (
            expert_codes(coding, model.experts, *size, gpu.dtype) for size in ((2 * columns, hidden), (hidden, columns))
        )
        yield from launched(experts, new(tokens, hidden), *sent, *codes, model.activation)


def published(model: Model, gpu: Gpu, tokens: int) -> Iterator[Launch]:
    """The same of gpt-oss, whose experts are MXFP4 with biases."""
    new, hidden = partial(empty, dtype=gpu.dtype), model.hidden
    yield from launched(route, new(tokens, model.experts), model.each, True, gpu.dtype)
    if tokens == 1:
        yield from launched(gemv, new(1, hidden), new(model.experts, hidden), new(model.experts), gpu.processors)
    sizes = (2 * model.intermediate, hidden), (hidden, model.intermediate)
    codes = [expert_codes(Coding.POWERS, model.experts, *size, gpu.dtype) for size in sizes]
    biases = new(model.experts, sizes[0][0]), new(model.experts, hidden)
    sent = empty(tokens, model.each, dtype=torch.int64), new(tokens, model.each)
    for real in (None, empty(MOST, 1)[:tokens]):
        telling = empty(4, model.experts)[1], real
        given = new(tokens, hidden), *sent, *codes, Activation.CLAMPED, *telling
        yield from launched(experts, *given, biases=biases)


def attention(model: Model, gpu: Gpu, counts: list[int], shape: PackedShape | None = None) -> Iterator[Launch]:
    """Of a step whose rows have so many tokens, or that has another shape."""
    tokens, rows = (sum(counts), len(counts)) if shape is None else (shape.tokens, shape.rows)
    short = next((i for i, count in enumerate(counts) if count > SHORT), rows) if shape is None else shape.short
    packed = PackedRows(empty(rows + 1), empty(rows), empty(65, 4096), empty(rows), short)
    q = empty(tokens, model.heads, model.head_dim, dtype=gpu.dtype)
    cache = empty(1000, BLOCK, model.kv_heads, model.head_dim, dtype=gpu.dtype)
    sinks = empty(model.heads, dtype=gpu.dtype) if model.sinks else None
    for window in model.windows:
        options = Options(0.1, window, model.softcap, sinks)
        yield from launched(paged_attention, q, cache, cache, packed, options, sm=gpu.sm, processors=gpu.processors)


def drawing(model: Model, gpu: Gpu, rows: int, limited: bool) -> list[Launch]:
    logits, slots = empty(256, model.vocabulary, dtype=gpu.dtype)[:rows], empty(rows)
    state = empty(257, WORDS), empty(257, model.vocabulary, dtype=torch.uint8), empty(257, dtype=torch.int64)
    return launched(sample, logits, slots, slots, *state, limited=limited)


def step(model: Model, gpu: Gpu, counts: list[int], limited: bool = False) -> Iterator[Launch]:
    tokens = sum(counts)
    yield from small_kernels(model, gpu, tokens)
    yield from products(model, gpu, tokens)
    yield from attention(model, gpu, counts)
    yield from drawing(model, gpu, len(counts), limited)


def mixed(model: Model, gpu: Gpu, config: EngineConfig, tokens: int) -> Iterator[Launch]:
    """Of a captured step with prompts: all its rows may be short, and as many of them long as its tokens are for."""
    shape = PackedShape.captured(tokens, config.max_running, 1)
    yield from small_kernels(model, gpu, tokens)
    yield from products(model, gpu, tokens)
    yield from attention(model, gpu, [], shape)
    yield from drawing(model, gpu, shape.kept, limited=True)


class Noted:
    """Notes the rows of what is rehearsed."""

    def __init__(self) -> None:
        self.steps: list[tuple[list[int], bool]] = []

    def launch(self, plan: StepPlan) -> Any:
        limited = any(row.branch.request.params.top_k for row in plan.rows)
        self.steps.append(([row.count for row in plan.rows], limited))
        drawn = SimpleNamespace(tokens=[0] * sum(row.samples for row in plan.rows))
        return SimpleNamespace(read=lambda: drawn)


def met_at_load(model: Model, gpu: Gpu, config: EngineConfig, graphs: bool) -> Iterator[Launch]:
    """What a load launches: `engine.core.setup.runner_factory` plays these."""
    noted = Noted()
    rehearsal = Rehearsal(noted, config, 10_000, 8192, Letters)  # type: ignore[arg-type]
    rehearsal.meet_all_kernels(lambda: None)
    rehearsal.prefill(*rehearsal.fill(config.token_budget))
    for counts, limited in noted.steps:
        yield from step(model, gpu, counts, limited)
    for size in bucket_sizes(config.max_running) if graphs else ():
        yield from step(model, gpu, [1] * size, limited=True)
    for size in mixed_sizes(config.token_budget, 28, 440_000_000) if graphs else ():
        yield from mixed(model, gpu, config, size)


Told = Iterator[tuple[str, Launch]]


def told(name: str, launches: Iterable[Launch]) -> Told:
    return ((name, each) for each in launches)


def of_tokens(model: Model, gpu: Gpu, most: int) -> Told:
    """Every kind of launch of steps of 1 to `most` tokens: all of them up to 140 (small kernels: 40), then those beside
    multiples of 64, and of 16 in attention, whose bounds lie at multiples of a tile's tokens. Of another GPU than the
    first what knows of it: attention, and products of a token."""
    for tokens in range(1, most + 1):
        beside, first = tokens % 64 in (63, 0, 1), gpu == GPUS[0]
        if first and (tokens <= 40 or beside):
            yield from told(f"{tokens} tokens", small_kernels(model, gpu, tokens))
        if tokens == 1 or (first and (tokens <= 140 or beside)):
            yield from told(f"{tokens} tokens", products(model, gpu, tokens))
        if SHORT < tokens <= 140 or tokens % 16 < 2 < tokens:
            yield from told(f"a prompt of {tokens}", attention(model, gpu, [tokens]))


def of_rows(model: Model, gpu: Gpu, most: int, most_rows: int) -> Told:
    """Every kind of launch of 1 to `most_rows` rows."""
    for rows in range(1, min(most, most_rows) + 1):
        yield from told(f"{rows} drawn", drawing(model, gpu, rows, rows % 2 == 0))
    for rows in {1, 2, 3, min(16, most_rows), most_rows}:
        for count in range(1, min(SHORT, most // rows) + 1):
            yield from told(f"{rows} rows of {count}", attention(model, gpu, [count] * rows))
            if rows * count + 9 <= most:
                yield from told(f"a prompt beside {rows} of {count}", attention(model, gpu, [count] * rows + [9]))


@cache
def launched_by(which: Callable[..., Told], *given: Any) -> dict[Any, str]:
    """What is compiled for these, and where it was first launched."""
    found: dict[Any, str] = {}
    for where, launch in which(*given):
        found.setdefault(specialization(launch), f"{named(launch)}: {where}")
    return found


def named(launch: Launch) -> str:
    return launch.kernel.fn.__name__


CONFIGS = {
    "as it comes": (EngineConfig(), True),
    "one at a time": (EngineConfig(max_running=1, token_budget=700), True),
    "without graphs": (EngineConfig(max_running=256), False),
    "in small steps": (EngineConfig(max_running=8, token_budget=100), True),
}


@pytest.mark.parametrize("gpu", GPUS, ids=["H100", "RTX 4060"])
@pytest.mark.parametrize("name", MODELS)
def test_a_run_launches_nothing_that_its_load_has_not_met(name: str, gpu: Gpu) -> None:
    model = MODELS[name]
    for kind, (config, graphs) in list(CONFIGS.items())[: None if gpu.sm == 90 else 1]:
        met = {specialization(launch) for launch in met_at_load(model, gpu, config, graphs)}
        most = config.token_budget
        run = launched_by(of_tokens, model, gpu, most) | launched_by(of_rows, model, gpu, most, config.max_running)
        assert not [where for key, where in run.items() if key not in met], kind


@pytest.mark.parametrize(("name", "tokens", "most"), [("Qwen3 0.6B", 256, 420), ("Llama 3.1 8B", 192, 420)])
def test_prompts_in_a_captured_step_launch_few_programs_that_find_nothing_to_do(
    name: str, tokens: int, most: int
) -> None:
    """One needs a multiprocessor to itself: room for a long row a token would be 2,168 and 1,656 of them."""
    model, gpu = MODELS[name], Gpu(90, 132)
    launches = list(attention(model, gpu, [], PackedShape.captured(tokens, 256, 1)))
    *_, (grid,) = (each.grid for each in launches if named(each) == "paged_attention_kernel")
    assert grid <= most
