"""A token a row from its logits, its noise and its limits, by the rule of `engine.runner.sampling.sampler`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.config.sampling_params import SamplingParams
from engine.decoding.constraints.masks import Masks
from engine.kernels.cpu.calls import computes
from engine.kernels.cpu.sampling import draw as draw_compiled

CANDIDATES = 128  # enough for most top-p nuclei; where they are not, more are looked at
LOWEST_TEMPERATURE = 1e-8  # below it float32 overflows, and the choice is greedy long before


def is_limited(params: SamplingParams, vocabulary: int) -> bool:
    """Whether top-k or top-p leave tokens out."""
    return params.top_p < 1 or 0 < params.top_k < vocabulary


def draw(logits: Tensor, params: Sequence[SamplingParams], noises: NDArray[np.float64]) -> Tensor:
    """The tokens `[rows]`, int64, drawn from logits `[rows, vocabulary]`, float32."""
    vocabulary = logits.shape[-1]
    limited = [i for i, p in enumerate(params) if is_limited(p, vocabulary)]
    if not limited:
        return draw_among_all(logits, params, noises)
    if len(limited) == len(params):
        return _draw_among_highest(logits, params, noises)
    others = sorted(set(range(len(params))).difference(limited))
    tokens = torch.empty(len(params), dtype=torch.long, device=logits.device)
    for rows, way in ((limited, _draw_among_highest), (others, draw_among_all)):
        index = torch.tensor(rows, device=logits.device)
        tokens[index] = way(logits[index], [params[i] for i in rows], noises[rows])
    return tokens


def draw_among_all(
    logits: Tensor, params: Sequence[SamplingParams], noises: NDArray[np.float64], masks: Masks | None = None
) -> Tensor:
    """For rows without top-k and top-p. `masks`, where there are compiled kernels, rule out what no grammar allows."""
    if logits.device.type == "cpu" and computes(logits.dtype):
        held = () if masks is None else (masks.rows, masks.bits)
        temperatures = [max(p.temperature, LOWEST_TEMPERATURE) for p in params]
        return draw_compiled(logits, temperatures, [p.min_p for p in params], noises, *held)
    assert masks is None
    weights = _weights(logits, _temperatures(params, logits))
    return _pick(_drop_below_min_p(weights, params), noises)


def _draw_among_highest(logits: Tensor, params: Sequence[SamplingParams], noises: NDArray[np.float64]) -> Tensor:
    """For rows with top-k or top-p: looks at the highest logits alone, where they are enough."""
    vocabulary, temperatures = logits.shape[-1], _temperatures(params, logits)
    top_k = [min(p.top_k or vocabulary, vocabulary) for p in params]
    most = max((k for k in top_k if k < vocabulary), default=0)
    limits = _Limits(
        torch.tensor(top_k, device=logits.device)[:, None],
        _column([p.top_p if p.top_p < 1 else math.inf for p in params], logits),
        temperatures,
        _weights(logits, temperatures).sum(-1, keepdim=True) if max(top_k) == vocabulary else None,
        vocabulary,
    )
    # As many equal values beyond the border as there usually are; top-p alone may need any number.
    count = most + max(most // 2, 16) if max(top_k) < vocabulary else max(2 * most, CANDIDATES)
    if 4 * count < vocabulary:
        values, ids = logits.topk(count, -1)
        lowest, border = limits.lowest_kept(values)
        # What is beyond a value of minus infinity weighs nothing: a grammar may allow less than there are candidates.
        if bool(((values[:, -1:] < border) | values[:, -1:].isneginf()).all()):
            kept = values >= lowest
            widest = int(kept.sum(-1).max())
            weights = _weights(values, temperatures).masked_fill_(~kept, 0.0)[:, :widest]
            ids, order = ids[:, :widest].sort(-1)
            weights = _drop_below_min_p(weights, params).gather(-1, order)
            return ids.gather(-1, _pick(weights, noises)[:, None])[:, 0]
    lowest, _ = limits.lowest_kept(_descending(logits))
    weights = _weights(logits, temperatures).masked_fill_(logits < lowest, 0.0)
    return _pick(_drop_below_min_p(weights, params), noises)


@dataclass(frozen=True, slots=True)
class _Limits:
    """Rows' top-k and top-p, `[rows, 1]`. `whole` is the weight of all tokens, of use for rows without top-k."""

    top_k: Tensor
    top_p: Tensor
    temperatures: Tensor
    whole: Tensor | None
    vocabulary: int

    def lowest_kept(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Of a row's highest values, in descending order, the lowest that is kept; and what the last must be below for
        the first to be right. Both `[rows, 1]`."""
        by_number = self.top_k < self.vocabulary
        kth = values.gather(-1, (self.top_k - 1).clamp_max(values.shape[-1] - 1))
        weights = _weights(values, self.temperatures).masked_fill_(values < kth, 0.0)
        running = weights.cumsum(-1)
        total = running[:, -1:]  # the same bits however many values there are
        if self.whole is not None:
            total = torch.where(by_number, total, self.whole)
        # Of equal values the first says whether all are kept: what is before it is what is above them.
        nucleus = (running - weights < self.top_p * total).sum(-1, keepdim=True).clamp_min(1)
        lowest = torch.maximum(kth, values.gather(-1, nucleus - 1))
        return lowest, torch.where(by_number, kth, lowest)


def _descending(logits: Tensor) -> Tensor:
    if logits.device.type == "cpu":
        return torch.from_numpy(np.sort(logits.numpy())).flip(-1)  # a tenth of the time of torch's
    return logits.sort(-1, descending=True).values


def _weights(logits: Tensor, temperatures: Tensor) -> Tensor:
    """Weights relative to a row's highest, `[rows, tokens]`."""
    return (logits - logits.amax(-1, keepdim=True)).div_(temperatures).exp_()


def _temperatures(params: Sequence[SamplingParams], like: Tensor) -> Tensor:
    return _column([max(p.temperature, LOWEST_TEMPERATURE) for p in params], like)


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]


def _drop_below_min_p(weights: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    if not any(p.min_p for p in params):
        return weights
    floor = _column([p.min_p for p in params], weights) * weights.amax(-1, keepdim=True)
    return weights.masked_fill(weights < floor, 0.0)


def _pick(weights: Tensor, noises: NDArray[np.float64]) -> Tensor:
    """The index at which the running sum of a row's weights passes the noise's share of the total, `[rows]`. A weight
    of zero is never picked: the sum passes the mark only where it grows."""
    running = weights.double().cumsum(-1)
    mark = torch.from_numpy(noises).to(weights.device)[:, None] * running[:, -1:]
    return torch.searchsorted(running, mark, right=True)[:, 0].clamp_max(weights.shape[-1] - 1)
