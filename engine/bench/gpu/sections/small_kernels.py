"""The small kernels of a step: norms, rotary, activation, storing K and V, and sampling, by the bytes they move."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import silu

from engine.bench.gpu.report import Bench, Table
from engine.bench.gpu.stopwatch import one_after_another, sets_beyond_cache
from engine.config.sampling_params import SamplingParams
from engine.decoding.output import Output
from engine.kernels.rms_norm import Rounding, rms_norm
from engine.kernels.rotary import rotate
from engine.kernels.silu_mul import Activation, act_mul
from engine.kernels.store_kv import store_kv
from engine.runner.sampling.gpu_sampler import DeviceSampler, parameter_words
from engine.scheduler.request import Branch, Request

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, WIDE = 32, 8, 128, 4096, 14_336  # Llama-3.1-8B's
BLOCK = 16
VOCABULARY = 151_936
REPLAYED = "each of 1,000, replayed as one graph"
LAUNCHES = 20  # of one graph, where the operands are so small that all fit the cache anyway

SAMPLING = {
    "greedy": SamplingParams(temperature=0),
    "temperature 0.6": SamplingParams(temperature=0.6),
    "top-k 50": SamplingParams(temperature=0.6, top_k=50),
    "top-p 0.9": SamplingParams(temperature=0.6, top_p=0.9),
    "top-p 0.95, long tail": SamplingParams(temperature=1.0, top_p=0.95),
    "top-p, min-p, penalty": SamplingParams(temperature=0.6, top_p=0.9, min_p=0.02, repetition_penalty=1.1),
}


def launches(bench: Bench) -> None:
    """What a launch costs, with nothing to compute: alone, and as one of a graph."""
    watch = bench.watch
    table = bench.table("A launch of next to nothing", (("", "36"), ("µs", "8.2f")))
    x = torch.zeros(1, device=watch.device)

    def many(count: int) -> None:
        for _ in range(count):
            x.add_(1)

    table.add("one, between two events", 1e6 * watch.seconds(lambda: many(1)))
    table.add("each of 1,000, launched by the host", 1e3 * watch.seconds(lambda: many(1000)))
    replay = watch.captured(lambda: many(1000))
    table.add(REPLAYED, 1e3 * watch.seconds(replay))
    table.add("a graph of one, between two events", 1e6 * watch.seconds(watch.captured(lambda: many(1))))


def small(bench: Bench) -> None:
    """Norm, rotary, activation and storing at a decode step's and a prompt's size, beside torch's own operations."""
    watch = bench.watch
    table = bench.table(
        "Small kernels, at the sizes of Llama-3.1-8B's shape",
        (("", "22"), ("tokens", "6d"), ("µs", "8.2f"), ("bound µs", "8.2f"), ("of copy", "8.0%"), ("torch µs", "8.2f")),
    )
    for tokens in (1, 3) if bench.rehearsal else (1, 64, 256, 4096):
        for name, make, run, plain in _small_kernels():
            scale = 32 if bench.rehearsal else 1
            if not bench.fits(0 if bench.rehearsal else 1, table, f"{name}, {tokens} tokens"):
                continue
            with watch.device:
                operands = [_typed(bench, make(tokens, scale))]
                moved = _moved(name, operands[0])
                sets = max(2, sets_beyond_cache(watch, moved * watch.dtype.itemsize, LAUNCHES))
                operands += [_typed(bench, make(tokens, scale)) for _ in range(0 if bench.rehearsal else sets - 1)]
            seconds = one_after_another(watch, operands, lambda o, run=run: run(*o))  # type: ignore[misc]
            torchs = one_after_another(watch, operands, lambda o, plain=plain: plain(*o))  # type: ignore[misc]
            bound = moved * watch.dtype.itemsize / watch.bandwidth
            table.add(name, tokens, 1e6 * seconds, 1e6 * bound, bound / seconds, 1e6 * torchs)


def _small_kernels() -> list[tuple[str, Callable[..., tuple[Any, ...]], Callable[..., Any], Callable[..., Any]]]:
    """Each kernel's name, how to make its operands for so many tokens (sizes divided by a scale), it, and torch's."""

    def norm(tokens: int, scale: int) -> tuple[Any, ...]:
        return torch.randn(tokens, HIDDEN // scale), torch.randn(HIDDEN // scale)

    def gates(tokens: int, scale: int) -> tuple[Any, ...]:
        return torch.randn(tokens, WIDE // scale), torch.randn(tokens, WIDE // scale)

    def heads(tokens: int, scale: int) -> tuple[Any, ...]:
        heads, kv_heads, dim = (2, 1, 32) if scale > 1 else (HEADS, KV_HEADS, HEAD_DIM)
        q, k = torch.randn(1, heads, tokens, dim), torch.randn(1, kv_heads, tokens, dim)
        return q, k, torch.randn(1, tokens, dim), torch.randn(1, tokens, dim)

    def stored(tokens: int, scale: int) -> tuple[Any, ...]:
        kv_heads, dim = (1, 32) if scale > 1 else (KV_HEADS, HEAD_DIM)
        blocks = -(-tokens // BLOCK) + 4
        cache = torch.randn(2, blocks, BLOCK, kv_heads, dim)
        return *torch.randn(2, tokens, kv_heads, dim), *cache, torch.randperm(blocks * BLOCK)[:tokens]

    def plain_store(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
        k_cache.view(-1, *k.shape[1:]).index_copy_(0, slots, k)
        v_cache.view(-1, *v.shape[1:]).index_copy_(0, slots, v)

    def plain_norm(x: Tensor, weight: Tensor) -> Tensor:
        wide = x.float()
        return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def plain_rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        def turned(x: Tensor) -> Tensor:
            half = x.shape[-1] // 2
            return x * cos[:, None] + torch.cat((-x[..., half:], x[..., :half]), -1) * sin[:, None]

        return turned(q), turned(k)

    return [
        ("rms_norm", norm, lambda x, w: rms_norm(x, w, 1e-6, Rounding.TWICE), plain_norm),
        ("silu · mul", gates, lambda g, u: act_mul(g, u, Activation.SILU), lambda g, u: silu(g) * u),
        ("rotary", heads, rotate, plain_rotate),
        ("store_kv", stored, store_kv, plain_store),
    ]


def _moved(name: str, operands: tuple[Tensor, ...]) -> int:
    """Elements that a kernel reads and writes at the least."""
    match name:
        case "rms_norm":
            return 2 * operands[0].numel() + operands[1].numel()
        case "silu · mul":
            return 3 * operands[0].numel()
        case "rotary":
            return 2 * (operands[0].numel() + operands[1].numel()) + operands[2].numel() + operands[3].numel()
        case _:
            return 4 * operands[0].numel()


def _typed(bench: Bench, operands: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(t.to(bench.watch.dtype) if t.is_floating_point() else t for t in operands)


def sampling(bench: Bench) -> None:
    """A step's sampling, by the bytes of logits that it must read once, beside torch's own way to draw."""
    watch = bench.watch
    vocabulary = 70 if bench.rehearsal else VOCABULARY
    table = bench.table(
        f"Sampling a step's tokens out of {vocabulary:,}",
        (("", "22"), ("rows", "5d"), ("µs", "8.1f"), ("bound µs", "8.1f"), ("of copy", "8.0%"), ("torch µs", "8.1f")),
    )
    for rows in (1,) if bench.rehearsal else (1, 64, 256):
        size = rows * vocabulary * watch.dtype.itemsize
        count = 1 if bench.rehearsal else sets_beyond_cache(watch, size, 8)
        peaked = [4 * torch.randn(rows, vocabulary, device=watch.device, dtype=watch.dtype) for _ in range(count)]
        flat = [_zipf(row_logits) for row_logits in peaked]
        places = torch.arange(rows, dtype=torch.int32, device=watch.device)
        bound = size / watch.bandwidth
        for name in list(SAMPLING)[:: 2 if bench.rehearsal else 1]:
            if not bench.fits(0 if bench.rehearsal else 1, table, f"{name}, {rows} rows"):
                continue
            draw = _sampler(rows, vocabulary, SAMPLING[name], places)
            logits = flat if "tail" in name else peaked
            seconds = one_after_another(watch, logits, draw)
            torchs = one_after_another(watch, logits, _torch_draw) if name == "temperature 0.6" else None
            _add_sampling(table, name, rows, seconds, bound, torchs)


def _add_sampling(table: Table, name: str, rows: int, seconds: float, bound: float, torchs: float | None) -> None:
    table.add(name, rows, 1e6 * seconds, 1e6 * bound, bound / seconds, None if torchs is None else 1e6 * torchs)


def _zipf(logits: Tensor) -> Tensor:
    """Of the same shape and in the same order, but each token half as likely as one of half its rank: then top-p keeps
    thousands, as of a text that may go on in many ways."""
    ranks = logits.argsort(-1, descending=True).argsort(-1)
    return -(1.0 + ranks).log().to(logits.dtype)


def _torch_draw(logits: Tensor) -> Tensor:
    """As nano-vllm draws: the exponential race over probabilities."""
    probabilities = (logits.float() / TEMPERATURE).softmax(-1)
    return (probabilities / torch.empty_like(probabilities).exponential_(1)).argmax(-1)


TEMPERATURE = 0.6


def _sampler(rows: int, vocabulary: int, params: SamplingParams, places: Tensor) -> Callable[[Tensor], Any]:
    """Draws a token for each of so many branches that all ask for the same."""
    sampler = DeviceSampler(rows, vocabulary, places.device)
    branches = []
    for row in range(rows):
        request = Request(row, 4, params, 64, row)
        request.branches.append(Branch(request, [1, 2, 3, 4], cast(Output, None)))
        branches.append(request.branches[0])
        branches[-1].slot = row
        sampler.parameters[row] = torch.tensor(parameter_words(branches[-1]), dtype=torch.int32)
        sampler.begin(branches[-1])
    return partial(_draw, sampler, places, branches)


def _draw(sampler: DeviceSampler, places: Tensor, branches: list[Branch], logits: Tensor) -> Any:
    return sampler(logits, places, places, branches)
