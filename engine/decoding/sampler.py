"""From logits to tokens, for a whole batch at once.

Order of transforms as in transformers: repetition penalty, temperature, top-k, top-p, min-p. The noise of a token is
one uniform number that is a function of (seed, branch, position), so batch mates and preemption change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from engine.config import SamplingParams
from engine.request import Branch

CANDIDATES = 128  # enough for most top-p nuclei; a row that needs more is sorted whole
LOWEST_TEMPERATURE = 1e-8  # below it float32 overflows, and the choice is greedy long before
_MASK = (1 << 64) - 1


def noise(seed: int, branch: int, position: int) -> float:
    """A uniform number in (0, 1): three rounds of the SplitMix64 finalizer over the key."""
    state = seed & _MASK
    for word in (0x9E3779B97F4A7C15, branch + 1, position + 1):
        state = (state + word * 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return ((state >> 11) + 0.5) / (1 << 53)


@dataclass(slots=True)
class Sampled:
    """On the device: `tokens` `[rows]`, `logprobs` `[rows]` of the model's own distribution; alternatives if asked."""

    tokens: Tensor
    logprobs: Tensor
    alternatives: Tensor | None = None
    alternative_logprobs: Tensor | None = None


class Sampler:
    """Samples the rows of a step. Holds which tokens a slot has seen, for rows with a repetition penalty."""

    def __init__(self, slots: int, vocabulary: int, device: torch.device) -> None:
        self._slots, self._vocabulary, self._device = slots, vocabulary, device
        self._seen: Tensor | None = None

    def begin(self, branch: Branch) -> None:
        """Called when a branch's first token is computed, on admission: what it has seen is its known tokens."""
        if branch.request.params.repetition_penalty == 1.0:
            return
        if self._seen is None:
            self._seen = torch.zeros(self._slots, self._vocabulary, dtype=torch.bool, device=self._device)
        self._seen[branch.slot] = False
        self._seen[branch.slot, torch.tensor(sorted(set(branch.tokens)), device=self._device)] = True

    def __call__(self, logits: Tensor, branches: Sequence[Branch]) -> Sampled:
        """logits `[rows, vocabulary]` of the branches' last tokens, in_flight counting the tokens drawn here."""
        logits = logits.float()
        params = [b.request.params for b in branches]
        adjusted = self._penalize(logits, branches, params)
        greedy = [p.temperature == 0 for p in params]
        if all(greedy):
            tokens = adjusted.max(-1).indices  # half the time of argmax on a CPU
        elif not any(greedy):
            tokens = self._draw(adjusted, branches, params)
        else:
            tokens = adjusted.max(-1).indices  # half the time of argmax on a CPU
            drawn = [i for i, is_greedy in enumerate(greedy) if not is_greedy]
            index = torch.tensor(drawn, device=logits.device)
            tokens[index] = self._draw(adjusted[index], [branches[i] for i in drawn], [params[i] for i in drawn])
        self._remember(tokens, branches, params)
        logprobs = -cross_entropy(logits, tokens, reduction="none")  # in one pass, without logits' exponentials
        most = max(p.logprobs for p in params)
        if not most:
            return Sampled(tokens, logprobs)
        values, ids = logits.topk(min(most, logits.shape[-1]), -1)
        normalizer = logits.gather(-1, tokens[:, None]) - logprobs[:, None]
        return Sampled(tokens, logprobs, ids, values - normalizer)

    def _penalize(self, logits: Tensor, branches: Sequence[Branch], params: Sequence[SamplingParams]) -> Tensor:
        rows = [i for i, p in enumerate(params) if p.repetition_penalty != 1.0]
        if not rows:
            return logits
        assert self._seen is not None
        index = torch.tensor(rows, device=logits.device)
        seen = self._seen[torch.tensor([branches[i].slot for i in rows], device=logits.device)]
        penalty = torch.tensor([[params[i].repetition_penalty] for i in rows], device=logits.device)
        chosen = logits[index]
        punished = torch.where(chosen > 0, chosen / penalty, chosen * penalty)
        return logits.index_copy(0, index, torch.where(seen, punished, chosen))

    def _remember(self, tokens: Tensor, branches: Sequence[Branch], params: Sequence[SamplingParams]) -> None:
        rows = [i for i, p in enumerate(params) if p.repetition_penalty != 1.0]
        if rows:
            assert self._seen is not None
            slots = torch.tensor([branches[i].slot for i in rows], device=tokens.device)
            self._seen[slots, tokens[torch.tensor(rows, device=tokens.device)]] = True

    def _draw(self, logits: Tensor, branches: Sequence[Branch], params: Sequence[SamplingParams]) -> Tensor:
        # The position of the token being drawn is the branch's length without it.
        noises = [noise(b.request.seed, b.index, len(b.tokens) + b.in_flight - 1) for b in branches]
        uniform = torch.from_numpy(np.array(noises)).to(logits.device)[:, None]
        temperatures = [max(p.temperature, LOWEST_TEMPERATURE) for p in params]
        scaled = (logits - logits.amax(-1, keepdim=True)) / _column(temperatures, logits)
        # A row's own values choose its way: the two ways lay out the tokens in different orders, so a way that batch
        # mates chose would give another token for the same noise.
        limited = [p.top_p < 1 or 0 < p.top_k < self._vocabulary for p in params]
        if all(limited):
            return self._draw_limited(scaled, uniform, params)
        if not any(limited):
            return _pick(_drop_below_min_p(scaled.exp(), params), uniform)
        tokens = torch.empty(len(params), dtype=torch.long, device=logits.device)
        for way in (True, False):
            rows = [i for i, is_limited in enumerate(limited) if is_limited is way]
            index, chosen = torch.tensor(rows, device=logits.device), [params[i] for i in rows]
            if way:
                tokens[index] = self._draw_limited(scaled[index], uniform[index], chosen)
            else:
                tokens[index] = _pick(_drop_below_min_p(scaled[index].exp(), chosen), uniform[index])
        return tokens

    def _draw_limited(self, scaled: Tensor, uniform: Tensor, params: Sequence[SamplingParams]) -> Tensor:
        """For rows with top-k or top-p: over the most likely tokens, in order. `scaled` is at most 0."""
        vocabulary = scaled.shape[-1]
        top_k = [min(p.top_k or vocabulary, vocabulary) for p in params]
        top_p = [p.top_p for p in params]
        values, ids = self._candidates(scaled, top_k, top_p)
        weights = values.exp()
        rank = torch.arange(values.shape[-1], device=scaled.device)[None]
        weights = weights.masked_fill(rank >= torch.tensor(top_k, device=scaled.device)[:, None], 0.0)
        before = weights.cumsum(-1) - weights
        total = self._mass(scaled, weights, top_k)
        # The token that passes top_p is kept, and so is the most likely one.
        weights = weights.masked_fill((before >= _column(top_p, scaled) * total) & (rank > 0), 0.0)
        weights = _drop_below_min_p(weights, params)
        return ids.gather(-1, _pick(weights, uniform)[:, None])[:, 0]

    def _mass(self, scaled: Tensor, weights: Tensor, top_k: list[int]) -> Tensor:
        """Each row's whole weight after top-k, relative to its most likely token, `[rows, 1]`."""
        if weights.shape[-1] == scaled.shape[-1]:
            return weights.sum(-1, keepdim=True)
        whole = scaled.exp().sum(-1, keepdim=True)
        limited = torch.tensor([k < scaled.shape[-1] for k in top_k], device=scaled.device)[:, None]
        return torch.where(limited, weights.sum(-1, keepdim=True), whole)

    def _candidates(self, scaled: Tensor, top_k: list[int], top_p: list[float]) -> tuple[Tensor, Tensor]:
        """The most likely tokens of each row, enough of them that no row's top-k or top-p needs another."""
        vocabulary = scaled.shape[-1]
        if max(top_k) < vocabulary:
            return scaled.topk(max(top_k), -1)
        limited = [k for k in top_k if k < vocabulary]
        if vocabulary > 4 * CANDIDATES and max(limited, default=0) <= CANDIDATES:
            values, ids = scaled.topk(CANDIDATES, -1)
            kept = (values.logsumexp(-1) - scaled.logsumexp(-1)).exp()
            if bool((kept >= torch.tensor(top_p, device=scaled.device)).all()):
                return values, ids
        return scaled.sort(-1, descending=True)


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]


def _drop_below_min_p(weights: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    if not any(p.min_p for p in params):
        return weights
    floor = _column([p.min_p for p in params], weights) * weights.amax(-1, keepdim=True)
    return weights.masked_fill(weights < floor, 0.0)


def _pick(weights: Tensor, uniform: Tensor) -> Tensor:
    """The index at which the running sum of a row's weights passes its uniform share of the total, `[rows]`.

    A weight of zero is never picked: the sum passes the mark only where it grows.
    """
    running = weights.double().cumsum(-1)
    mark = uniform * running[:, -1:]
    return torch.searchsorted(running, mark, right=True)[:, 0].clamp_max(weights.shape[-1] - 1)
