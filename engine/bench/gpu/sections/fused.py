"""Layers of real models' shapes with their small operations fused and not; the fused parts beside torch.compile's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine.bench.gpu.report import Bench
from engine.bench.gpu.stopwatch import Stopwatch
from engine.bench.subject import Shape
from engine.kernels.rms_norm import Rounding, rms_norm
from engine.kernels.rotary import rotate
from engine.kernels.silu_mul import Activation, act_mul
from engine.models.card import serve_with_paged_attention
from engine.models.fusion.fuse import Causal, fuse

LAYERS = 4
TOKENS = (1, 64, 256)
COMPILING = 10.0  # seconds that torch.compile may take for a part: a guess
SHAPES = {
    "Llama-3.1-8B": ("Llama", Shape(4096, LAYERS, 32, 8, 14_336, head_dim=128)),
    "Qwen3-0.6B": ("Qwen3", Shape(1024, LAYERS, 16, 8, 3072, head_dim=128)),
    "Gemma3-1B": ("Gemma3Text", Shape(1152, LAYERS, 4, 1, 6912, head_dim=256)),
}
TINY = Shape(64, 1, 4, 2, 128, head_dim=32)


def fused(bench: Bench) -> None:
    """A layer's time in a graph, as transformers computes it and fused. Attention is torch's own in both."""
    watch = bench.watch
    table = bench.table(
        "One layer, its small operations fused, in a CUDA graph",
        (("", "14"), ("tokens", "6d"), ("eager µs", "9.1f"), ("fused µs", "9.1f"), ("of eager", "8.0%"), ("", "40")),
    )
    layers = 1 if bench.rehearsal else LAYERS
    for name in SHAPES:
        if not bench.fits(4, table, name):
            return
        module = _model(name, layers, watch, bench.rehearsal)
        seconds: dict[int, list[float]] = {}
        for tokens in (3,) if bench.rehearsal else TOKENS:
            seconds[tokens] = [_forward_seconds(module, tokens, watch) / layers]
        fusion = fuse(module)
        for tokens, (eager,) in seconds.items():
            ours = _forward_seconds(module, tokens, watch) / layers
            table.add(name, tokens, 1e6 * eager, 1e6 * ours, ours / eager, fusion.text)


def compiled(bench: Bench) -> None:
    """Parts of Llama-3.1-8B's shape: transformers' code, torch.compile's of it, and our kernel."""
    watch = bench.watch
    table = bench.table(
        "Parts in a CUDA graph, at the sizes of Llama-3.1-8B's shape",
        (("", "10"), ("tokens", "6d"), ("eager µs", "9.2f"), ("compiled µs", "11.2f"), ("ours µs", "9.2f")),
    )
    module = _model("Llama-3.1-8B", 1, watch, bench.rehearsal)
    for name, make, eager, ours in _parts(module, watch):
        by_torch = None
        if not bench.rehearsal and bench.fits(COMPILING, table, f"torch.compile of the {name}"):
            by_torch = torch.compile(eager, dynamic=True)
        for tokens in (3,) if bench.rehearsal else TOKENS[1:]:  # one token alone would be compiled once more
            operands = make(tokens)
            table.add(name, tokens, *(_microseconds(do, operands, watch) for do in (eager, by_torch, ours)))


@torch.inference_mode()
def _microseconds(do: Callable[..., Any] | None, operands: list[Tensor], watch: Stopwatch) -> float | None:
    return None if do is None else 1e6 * watch.seconds(watch.captured(lambda: do(*operands)))


def _model(name: str, layers: int, watch: Stopwatch, tiny: bool) -> PreTrainedModel:
    """A random model of the shape with a small vocabulary, our attention set."""
    kind, shape = SHAPES[name]
    shape = replace(TINY if tiny else shape, layers=layers, vocabulary=512)
    config = getattr(transformers, f"{kind}Config")(**shape.settings, pad_token_id=0)
    torch.manual_seed(0)
    with watch.device:
        module = AutoModelForCausalLM.from_config(config, dtype=watch.dtype).eval().requires_grad_(False)
    module = module.to(watch.device)
    serve_with_paged_attention(module, watch.device)
    return module


def _forward_seconds(module: PreTrainedModel, tokens: int, watch: Stopwatch) -> float:
    ids = torch.arange(tokens, device=watch.device)[None]

    def forward() -> Any:
        return module(input_ids=ids, position_ids=ids, use_cache=False, logits_to_keep=1, batch=Causal())

    with torch.inference_mode():
        return watch.seconds(watch.captured(forward))


def _parts(
    module: PreTrainedModel, watch: Stopwatch
) -> list[tuple[str, Callable[[int], list[Tensor]], Callable[..., Any], Callable[..., Any]]]:
    """Each part's name, its operands for so many tokens, transformers' code, ours."""
    layer, config = module.model.layers[0], module.config
    norm, act = layer.input_layernorm, layer.mlp.act_fn
    rotation = type(layer.self_attn).forward.__globals__["apply_rotary_pos_emb"]

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, device=watch.device, dtype=watch.dtype)

    def heads(tokens: int) -> list[Tensor]:
        counts, dim = (config.num_attention_heads, config.num_key_value_heads), config.head_dim
        turned = [draw(1, tokens, count, dim).transpose(1, 2) for count in counts]
        return [*turned, draw(1, tokens, dim), draw(1, tokens, dim)]

    def gates(tokens: int) -> list[Tensor]:
        return [draw(1, tokens, config.intermediate_size) for _ in range(2)]

    return [
        (
            "norm",
            lambda tokens: [draw(1, tokens, config.hidden_size)],
            norm,
            lambda x: rms_norm(x, norm.weight, norm.variance_epsilon, Rounding.TWICE),
        ),
        ("gate", gates, lambda gate, up: act(gate) * up, lambda gate, up: act_mul(gate, up, Activation.SILU)),
        ("rotation", heads, rotation, rotate),
    ]
