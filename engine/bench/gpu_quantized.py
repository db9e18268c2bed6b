"""A large model on a GPU, dense, as AWQ and in nf4: random weights, as speed does not depend on them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from engine.models.quantization.awq_layout import round_to_nearest
from engine.models.quantization.awq_linear import AwqLinear, ready
from engine.models.quantization.bits import settle
from engine.quantization import missing

GROUP = 128
ROOM = 24 << 30  # bytes of GPU memory that the dense model, its cache and the making of it take


def random_llama_8b() -> PreTrainedModel:
    """Of Llama-3.1-8B's shape, bfloat16, on the GPU."""
    config = LlamaConfig(
        hidden_size=4096,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        intermediate_size=14_336,
        vocab_size=128_256,
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # in float32 first, it would take twice the memory
    try:
        with torch.device("cuda"):
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
    settle(module, lambda: None)
    return module


def _converted(module: PreTrainedModel, convert: Callable[[nn.Linear], nn.Module]) -> PreTrainedModel:
    head = module.get_output_embeddings()
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child is not head:
                setattr(parent, name, convert(child))
    return module


def large_models() -> Iterator[tuple[str, PreTrainedModel | str]]:
    """Each way to hold the large model with its module, or with why there is none; one is on the GPU at a time."""
    room = torch.cuda.mem_get_info()[0]
    ways: tuple[tuple[str, Callable[[PreTrainedModel], PreTrainedModel]], ...]
    ways = (("none", lambda module: module), ("awq", as_awq), ("nf4", as_nf4))
    for name, convert in ways:
        if room < ROOM:
            yield name, f"{room / 2**30:.0f} GiB of GPU memory are free and {ROOM >> 30} are needed"
        elif lacking := missing(name):
            yield name, lacking
        else:
            module = convert(random_llama_8b())
            yield name, module
            del module
            gc.collect()
            torch.cuda.empty_cache()
