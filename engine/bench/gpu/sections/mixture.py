"""A mixture of experts in decode steps: how near to a copy its experts are read, and what it costs to count them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.bench.asked_share import asked_share
from engine.bench.gpu.report import Bench, Table, columns
from engine.bench.gpu.sections.decode import (
    begun,
    free_device_memory,
    pool_bytes,
    replayed,
    tell_how,
    weights_read,
    wrapped,
)
from engine.bench.gpu.stopwatch import one_after_another
from engine.bench.rounding import rounded_codes
from engine.bench.subject import Case, Experts, Lengths, Shape, make_case
from engine.bench.subject import random_mixture as drawn
from engine.config.schemes import missing
from engine.config.specs import EngineConfig
from engine.kernels.dependent_launch import step_of
from engine.kernels.products import expert_codes
from engine.kernels.products.codes import Codes
from engine.kernels.products.expert_codes import ExpertCodes, table_for
from engine.kernels.products.experts import Tiling, reads_numbers, tiling
from engine.kernels.products.experts import experts as mixed_by
from engine.kernels.silu_mul import Activation
from engine.models.expert_weights import WEIGHTS
from engine.models.loading import LoadedModel
from engine.models.quantization.bitsandbytes import eight_bit_codes, four_bit_codes
from engine.models.quantization.coded_experts import CODES, coded, settle
from engine.models.routing import holds_experts
from engine.trace.measures.decode_steps import decode_steps
from engine.trace.records import ModelCard

SHAPE = Shape(2048, 16, 16, 4, 6144, 50_304, 4096, head_dim=128)
TINY = Shape(64, 1, 2, 1, 64, 128, 256, head_dim=32)
EXPERTS = Experts(64, 8, 1024)
MIXTURE = columns(
    "batch 6d | context 8d | step ms 9.3f | tok/s 10,.0f | experts 8.0% | bound ms 9.3f | of copy 8.0% | replayed 8.0%"
)
ALONE = columns(
    "tokens 6d | asked 6.0% | MB 9,.1f | µs 9.1f | bound µs 9.1f | of bound 9.0% | torch µs 9.1f | × torch 8.2f | "
    "best µs 9.1f | tiling 66"
)
CODED = columns(
    "tokens 6d | asked 6.0% | MB 9,.1f | µs 9.1f | bound µs 9.1f | of bound 9.0% | × dense 8.2f | best µs 9.1f | "
    "tiling 72"
)
SETS = 6  # layers' experts, one after another: more than any cache holds
# Beside the shipped: pairs and outputs of a program, inputs at a time, warps, stages. By the pairs of the shipped.
OTHERS = {
    16: ((16, 32, 64, 4, 4), (16, 64, 128, 4, 3), (16, 64, 64, 4, 4), (16, 32, 256, 4, 3), (16, 64, 128, 8, 3)),
    64: ((64, 128, 64, 4, 3), (32, 64, 128, 4, 3), (64, 128, 64, 8, 3)),
    128: ((64, 128, 64, 4, 3), (128, 128, 64, 8, 4), (128, 256, 64, 8, 3)),
}
# Of 4-bit codes: pairs and outputs, blocks of 64 inputs at once, shares of them, warps, stages.
OTHER_CODES = {
    8: ((8, 16, 2, 4, 4, 4), (8, 32, 1, 4, 4, 4), (8, 64, 1, 4, 4, 3), (8, 32, 2, 8, 8, 3)),
    32: ((16, 32, 1, 4, 4, 3), (32, 64, 1, 4, 4, 3), (32, 64, 1, 1, 4, 4), (32, 128, 1, 1, 4, 3)),
    64: ((64, 128, 1, 1, 8, 3), (128, 64, 1, 1, 8, 3), (128, 128, 1, 1, 8, 3)),
}
ROOM = 20 << 30  # bytes of GPU memory


def random_mixture(bench: Bench, layers: int = SHAPE.layers) -> PreTrainedModel:
    """About 7 billion random parameters, of which a token multiplies with a fifth, on the GPU; at a rehearsal a few."""
    shape, experts = (TINY, Experts(2, 1, 64)) if bench.rehearsal else (replace(SHAPE, layers=layers), EXPERTS)
    before = torch.get_default_dtype()
    torch.set_default_dtype(bench.watch.dtype)
    try:
        with torch.device(bench.watch.device):
            return drawn(shape, experts)
    finally:
        torch.set_default_dtype(before)


def codes_of(quantization: str) -> Callable[[Tensor], Codes]:
    """How a load makes codes of an expert's weight; "awq" by rounding alone."""
    if quantization == "awq":
        return rounded_codes
    if quantization == "int8":
        return eight_bit_codes
    return partial(four_bit_codes, twice=False, tables={})


def in_codes(module: PreTrainedModel, quantization: str) -> PreTrainedModel:
    """The model, whose experts' weights are codes."""
    for path, part in module.named_modules():
        if holds_experts(path, part):
            for name in WEIGHTS:
                setattr(part, name, coded(getattr(part, name), codes_of(quantization)))
    settle(module, module.dtype, lambda: None)
    return module


def uncounted(model: LoadedModel) -> LoadedModel:
    """The model, of whose experts nothing is told any more."""
    assert model.routing is not None
    model.routing.stop()
    return replace(model, routing=None)


def mixture(bench: Bench) -> None:
    """Batches of 1 to 64, counted as shipped and not counted."""
    if bench.watch.free() < ROOM and not bench.rehearsal:
        raise NotImplementedError(f"{ROOM >> 30} GiB of GPU memory are needed")
    prompt, new = (6, 4) if bench.rehearsal else (256, 48)
    batches: Sequence[int] = (2,) if bench.rehearsal else (1, 8, 64)
    table = bench.table(
        f"A decode step of a mixture, {EXPERTS.count} experts a layer, {EXPERTS.each} a token, in bfloat16",
        (("", "12"), *MIXTURE, ("× counted", "10.3f")),
    )
    counted: dict[int, float] = {}
    ways = ("counted", "not counted", *(() if missing("nf4") else ("nf4 experts",)))
    for way in ways:
        module = random_mixture(bench)
        model = wrapped(in_codes(module, "nf4") if way == "nf4 experts" else module, "random mixture")
        del module
        if way == "not counted":
            model = uncounted(model)
        with begun(model, EngineConfig(max_running=max(batches), kv_memory=pool_bytes(bench))) as engine:
            tell_how(table, engine)
            for batch in batches:
                case = Case(
                    make_case(batch, Shape(vocabulary=engine.card.vocabulary), Lengths(prompt, prompt)).prompts,
                    (new,) * batch,
                )
                for _ in range(1 if bench.rehearsal else 2):  # the first warms up
                    trace = engine.run(case.workload()).result()
                seconds = median(timing.period for timing in decode_steps(trace.steps, batch))
                share = asked_share(engine.card, trace, batch)
                context = prompt + new // 2
                bound = _read(engine.card, share) + batch * context * engine.card.kv_token_bytes
                bound /= bench.watch.bandwidth
                first = counted.setdefault(batch, seconds)
                table.add(
                    way, batch, context, 1e3 * seconds, batch / seconds, share, 1e3 * bound, bound / seconds,
                    replayed(trace), seconds / first,
                )  # fmt: skip
        del model, engine
        free_device_memory()


def experts_alone(bench: Bench) -> None:
    """A layer's experts of so many tokens, that many others' were read since: beside those of transformers, which sort
    with torch and multiply with its grouped product; and by other tilings."""
    table = bench.table("A layer's experts by our kernels and by transformers' own", ALONE)
    module = random_mixture(bench, SETS)
    parts: list[Any] = [part for path, part in module.named_modules() if holds_experts(path, part)]
    each, several = module.config.num_experts_per_tok, (3,) if bench.rehearsal else (1, 8, 64, 256, 2048)
    dense: dict[int, float] = {}
    for tokens in several:
        if bench.fits(0 if bench.rehearsal else 1, table, f"{tokens} tokens"):
            dense[tokens] = _time_experts(bench, table, parts, tokens, each)
    for quantization in ("nf4", "int8", *(() if bench.rehearsal else ("awq",))):  # of groups of 128
        if missing(quantization):
            continue
        table = bench.table(f"The same of {quantization} codes", CODED)
        made = [_in_codes(part, codes_of(quantization), bench.watch.dtype) for part in parts]
        for tokens in several:
            if tokens in dense and bench.fits(0 if bench.rehearsal else 0.5, table, f"{tokens} tokens"):
                _time_codes(bench, table, made, tokens, each, dense[tokens])
        del made
    del module, parts
    free_device_memory()


def _sent(bench: Bench, tokens: int, each: int, experts: int, hidden: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, each sent to as many experts, drawn at random, by weights that are all alike."""
    on: dict[str, Any] = {"device": bench.watch.device, "dtype": bench.watch.dtype}
    ids = torch.rand(tokens, experts, device=bench.watch.device).argsort(1)[:, :each].contiguous()
    return torch.randn(tokens, hidden, **on), ids, torch.full((tokens, each), 1 / each, **on)


def _in_codes(part: Any, code: Callable[[Tensor], Codes], dtype: torch.dtype) -> tuple[ExpertCodes, ExpertCodes]:
    gates, downs = (getattr(coded(getattr(part, name), code), CODES) for name in WEIGHTS)
    tables = table_for(gates, dtype), table_for(downs, dtype)
    return ExpertCodes(gates, part.num_experts, tables[0]), ExpertCodes(downs, part.num_experts, tables[1])


def _time_codes(
    bench: Bench, table: Table, layers: Sequence[tuple[ExpertCodes, ExpertCodes]], tokens: int, each: int, dense: float
) -> None:
    """A row of experts that are codes, beside the seconds that dense ones took."""
    watch, (experts, hidden, columns) = bench.watch, layers[0][1].shape
    x, ids, by = _sent(bench, tokens, each, experts, hidden)
    plain = reads_numbers(layers[0][1])
    usual = (tiling if plain else expert_codes.tiling)(tokens * each, experts, watch.dtype)
    others = (OTHERS if plain else OTHER_CODES).get(usual.block_m, ())

    def ours(layer: tuple[ExpertCodes, ExpertCodes], cut: Tiling | expert_codes.Tiling = usual) -> Tensor:
        with step_of(tokens):
            return mixed_by(x, ids, by, *layer, Activation.SILU, cut=cut)

    tried = {usual: one_after_another(watch, layers, ours)}
    for cut in (type(usual)(*sizes) for sizes in others):
        if not bench.rehearsal and bench.left > 1:
            with suppress(Exception):  # too large for this GPU's shared memory
                tried[cut] = one_after_another(watch, layers, partial(ours, cut=cut))
    best, seconds = min(tried, key=tried.__getitem__), tried[usual]
    share, of_one = len(ids.unique()) / experts, 3 * hidden * columns
    read = share * sum(t.nbytes for one in layers[0] for t in one.codes.held.values())
    bound = max(read / watch.bandwidth, 2 * tokens * each * of_one / watch.operations)
    found = 1e6 * seconds, 1e6 * bound, bound / seconds, dense / seconds
    table.add(tokens, share, read / 1e6, *found, 1e6 * tried[best], str(best))
    table.rows[-1]["all"] = {str(cut): 1e6 * taken for cut, taken in tried.items()}


def _time_experts(bench: Bench, table: Table, parts: Sequence[Any], tokens: int, each: int) -> float:
    """A row: `tokens` that are each sent to as many experts of every layer. The seconds that they took."""
    watch, (experts, hidden, _) = bench.watch, parts[0].down_proj.shape
    x, ids, by = _sent(bench, tokens, each, experts, hidden)

    def ours(part: Any, cut: Tiling | None = None) -> Tensor:
        with step_of(tokens):
            return mixed_by(x, ids, by, part.gate_up_proj, part.down_proj, Activation.SILU, cut=cut)

    seconds = one_after_another(watch, parts, ours)
    theirs = one_after_another(watch, parts, lambda part: part(x, ids, by))
    usual = tiling(tokens * each, experts, watch.dtype)
    tried = {usual: seconds}
    for cut in (Tiling(*sizes) for sizes in OTHERS[usual.block_m]):
        if not bench.rehearsal and bench.left > 1:
            with suppress(Exception):  # too large for this GPU's shared memory
                tried[cut] = one_after_another(watch, parts, partial(ours, cut=cut))
    best = min(tried, key=tried.__getitem__)
    share = len(ids.unique()) / experts
    of_one = (parts[0].gate_up_proj.numel() + parts[0].down_proj.numel()) / experts
    read = share * experts * of_one * watch.dtype.itemsize
    bound = max(read / watch.bandwidth, 2 * tokens * each * of_one / watch.operations)
    beside = 1e6 * bound, bound / seconds, 1e6 * theirs, theirs / seconds
    table.add(tokens, share, read / 1e6, 1e6 * seconds, *beside, 1e6 * tried[best], str(best))
    table.rows[-1]["all"] = {str(cut): 1e6 * taken for cut, taken in tried.items()}
    return seconds


def _read(card: ModelCard, share: float) -> float:
    """Bytes of the weights that a step reads which asks for this share of the experts."""
    return weights_read(card) - (1 - share) * card.expert_parameters * card.bytes_per_weight
