"""A large model on a GPU, dense, as AWQ and in nf4: random weights, as speed does not depend on them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from engine.bench.gpu.report import Bench, columns
from engine.bench.gpu.sections.decode import (
    DECODE,
    begun,
    free_device_memory,
    measure,
    pool_bytes,
    reckoned,
    switched,
    tell_how,
    wrapped,
)
from engine.bench.gpu.sections.yardstick import tell_pieces, watched
from engine.bench.rounding import round_to_nearest
from engine.bench.subject import Case, Lengths, Shape, make_case
from engine.config.schemes import missing
from engine.config.specs import EngineConfig
from engine.models.quantization.awq_linear import AwqLinear, ready
from engine.models.quantization.bitsandbytes import settle

GROUP = 128
BATCHES = (1, 8)
DENSE, AWQ, NF4 = 0.85, 2.2, 1.3  # goals
LINEARS = ((4096, 6144), (4096, 4096), (4096, 28_672), (14_336, 4096))  # inputs and outputs of its layers, joined
LLAMA = Shape(4096, 32, 32, 8, 14_336, 128_256, 8192)  # Llama-3.1-8B's
TINY = Shape(128, 1, 4, 1, 128, 128, 256)
LAYERS_WATCHED = 8
ROOM = 24 << 30  # bytes of GPU memory that the dense model, its cache and the making of it take


def random_llama_8b(bench: Bench, layers: int = LLAMA.layers) -> PreTrainedModel:
    """Of Llama-3.1-8B's shape, bfloat16, on the GPU; at a rehearsal a tiny one."""
    shape = TINY if bench.rehearsal else replace(LLAMA, layers=layers)
    config = LlamaConfig(**shape.settings, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None)
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(bench.watch.dtype)  # in float32 first, it would take twice the memory
    try:
        with torch.device(bench.watch.device):
            return LlamaForCausalLM(config).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(before)


def as_awq(module: PreTrainedModel) -> PreTrainedModel:
    """Its linear layers but the head rounded to 4 bits, in the form in which they run."""

    def convert(linear: nn.Linear) -> nn.Module:
        with torch.device("meta"):
            layer = AwqLinear(linear.in_features, linear.out_features, GROUP)
        layer.qweight, layer.qzeros, layer.scales = round_to_nearest(linear.weight, GROUP)
        layer.bias = linear.bias
        return ready(layer, linear.weight.dtype)

    return _converted(module, convert)


def as_nf4(module: PreTrainedModel) -> PreTrainedModel:
    """Its linear layers but the head quantized by bitsandbytes. Raises ImportError where that is not installed."""
    from bitsandbytes.nn import Linear4bit, Params4bit

    def convert(linear: nn.Linear) -> nn.Module:
        with torch.device("meta"):
            layer: Any = Linear4bit(
                linear.in_features, linear.out_features, bias=False, compute_dtype=linear.weight.dtype, quant_type="nf4"
            )
        weight: Any = Params4bit(linear.weight.data, requires_grad=False, compress_statistics=False, quant_type="nf4")
        layer.weight = weight.to(linear.weight.device)
        layer.bias = linear.bias
        return layer.eval()

    _converted(module, convert)
    settle(module, module.dtype, lambda: None)
    return module


def _converted(module: PreTrainedModel, convert: Callable[[nn.Linear], nn.Module]) -> PreTrainedModel:
    head = module.get_output_embeddings()
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child is not head:
                setattr(parent, name, convert(child))
    return module


WAYS: dict[str, Callable[[PreTrainedModel], PreTrainedModel]]
WAYS = {"none": lambda module: module, "awq": as_awq, "nf4": as_nf4}


def why_not(bench: Bench, name: str, room: int) -> str:
    """Why there is no large model that is held in this way, with so many bytes free; "" where there can be."""
    if room < ROOM and not bench.rehearsal:
        return f"{room / 2**30:.0f} GiB of GPU memory are free and {ROOM >> 30} are needed"
    return missing(name)


def large_models(bench: Bench) -> Generator[tuple[str, PreTrainedModel | str]]:
    """Each way to hold the large model with its module, or with why there is none; one is on the GPU at a time."""
    room = bench.watch.free()
    for name, convert in WAYS.items():
        if lacking := why_not(bench, name, room):
            yield name, lacking
        else:
            module = convert(random_llama_8b(bench))
            yield name, module
            del module
            free_device_memory()


def large(bench: Bench) -> None:
    """The large model's decode steps at a context of about 1 k, dense and quantized."""
    prompt, new = (6, 4) if bench.rehearsal else (960, 128)
    table = bench.table(
        "A decode step of Llama-3.1-8B's shape, computing in bfloat16",
        (("", "5"), ("GB", "7.2f"), *DECODE, ("× dense", "8.2f")),
    )
    batches = (1,) if bench.rehearsal else BATCHES
    dense: dict[int, float] = {}
    modules, slowest = large_models(bench), 0.0
    before = bench.left
    for name, module in modules:
        if isinstance(module, str):
            table.say(f"{name}: not measured: {module}")
            continue
        model = wrapped(module, f"random Llama 8B, {name}", name)
        del module
        pool = pool_bytes(bench) or 2 << 30
        with begun(model, EngineConfig(max_running=max(batches), kv_memory=pool)) as engine:
            tell_how(table, engine)
            for batch in batches:
                found = measure(bench, engine, batch, prompt, new)
                times = dense.setdefault(batch, found.seconds) / found.seconds
                table.add(name, model.card.weight_bytes / 1e9, *found.cells, times)
                if batch == 1 and name == "none":
                    what = "of the copy bandwidth over weights and KV: Llama-3.1-8B's shape, bf16, batch 1, context 1 k"
                    what += reckoned(bench, model.card, found.bound)
                    bench.goal(what, DENSE, found.reached)
                elif batch == 1:
                    bench.goal(f"of bf16's speed at batch 1: {name}", AWQ if name == "awq" else NF4, times, "×")
        del model, engine
        free_device_memory()
        slowest, before = max(slowest, before - bench.left), bench.left
        if not bench.rehearsal and bench.left < slowest:
            table.say("what comes after: not measured, the section's time is over")
            modules.close()
            break


def kernels(bench: Bench, name: str) -> None:
    """Where the GPU's time goes in steps of one row of some of its layers, held in one way."""
    what = f"steps of one row of {LAYERS_WATCHED} layers of Llama-3.1-8B's shape, {name}"
    if lacking := why_not(bench, name, bench.watch.free()):
        bench.table(what, columns("40")).say(f"not measured: {lacking}")
        return
    model = wrapped(WAYS[name](random_llama_8b(bench, LAYERS_WATCHED)), "random Llama 8B", name)
    prompt, new = (6, 4) if bench.rehearsal else (960, 2000)
    case = Case(make_case(1, Shape(vocabulary=model.card.vocabulary), Lengths(prompt, prompt)).prompts, (new,))
    config = EngineConfig(max_running=1, kv_memory=pool_bytes(bench) or 1 << 30)
    with switched(False), begun(model, config) as engine:  # or each kernel's time had what it waits for the one before
        tell_pieces(bench, watched(bench, engine, case), what)
    del model, engine
    free_device_memory()


kernels_dense, kernels_awq = (partial(kernels, name=name) for name in ("none", "awq"))
