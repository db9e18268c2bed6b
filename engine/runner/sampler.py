"""From logits to tokens, for a whole batch at once.

Order of transforms as in vLLM, and in transformers where it has them: the grammar's mask, banned words, ends before
min_tokens, bias (`engine.runner.adjustments`); repetition, frequency and presence penalty; temperature, top-k, top-p,
min-p. Top-k keeps what is as
high as the k-th highest, top-p what has less than its share of the weight above it, min-p what weighs at least its part
of the highest. The token is the one, in vocabulary order, at which the running sum of the kept weights passes the
noise's share of their total: the same on every device, rounding aside. The noise of a token is one uniform number that
is a function of (seed, branch, position), so batch mates and preemption change nothing.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from engine.config.specs import SamplingParams
from engine.kernels.cpu import calls as native
from engine.runner.adjustments import Adjustments, Masks, masks_of, penalize, ruled_out
from engine.runner.launched_step import Masked, Sampled, to_device
from engine.scheduler.request import Branch

Greedy = Callable[[], tuple[Tensor, Tensor]]  # tokens and log-probabilities `[rows]`, int64 and float32
CANDIDATES = 128  # enough for most top-p nuclei; where they are not, more are looked at
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


def with_alternatives(tokens: Tensor, logprobs: Tensor, logits: Tensor, branches: Sequence[Branch]) -> Sampled:
    """Beside each row's token, as many of its likeliest as any row asks for."""
    most = max(b.request.ranked for b in branches)
    if not most:
        return Sampled(tokens, logprobs)
    values, ids = logits.topk(min(most, logits.shape[-1]), -1)
    normalizer = logits.gather(-1, tokens.long()[:, None]).float() - logprobs[:, None]
    return Sampled(tokens, logprobs, ids, values.float() - normalizer)


def likeliest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest tokens of logits `[rows, vocabulary]` and their log-probabilities, `[rows]`."""
    values, tokens = logits.float().max(-1)
    return tokens, values - logits.float().logsumexp(-1)


class SlotSampler:
    """What samplers on any device hold: `_seen` `[slots + 1, vocabulary]` of bytes, which tokens a slot has seen, made
    with the first row that has a repetition penalty where it was not before."""

    def __init__(self, slots: int, vocabulary: int, device: torch.device) -> None:
        self._slots, self._vocabulary, self._device = slots, vocabulary, device
        self._seen: Tensor | None = None
        self.adjust = Adjustments(slots, vocabulary, device)

    def begin(self, branch: Branch) -> None:
        """Called when a branch's first token is computed, on admission: what it has seen is its known tokens."""
        self.adjust.begin(branch)
        if branch.request.params.repetition_penalty == 1.0:
            return
        if self._seen is None:
            self._seen = torch.zeros(self._slots + 1, self._vocabulary, dtype=torch.uint8, device=self._device)
        known = to_device(sorted(set(branch.tokens)), self._device)
        self._seen[branch.slot].zero_().index_fill_(0, known, 1)


class Sampler(SlotSampler):
    """Samples the rows of a step on a CPU."""

    def __call__(
        self,
        logits: Tensor,
        branches: Sequence[Branch],
        positions: Sequence[int],
        greedy: Greedy | None = None,
        previous: Tensor | None = None,
    ) -> Sampled:
        """logits `[rows, vocabulary]` for the branches' tokens at `positions`, before each of which there are so many;
        a branch whose drafted tokens are verified has several. `greedy` tells what a greedy choice would be, where that
        was computed with them; `previous` as `Adjustments` gives it."""
        params = [b.request.params for b in branches]
        ruled = [i for i, b in enumerate(branches) if b.ruled]
        masks = masks_of([branches[i] for i in ruled], self._vocabulary) if ruled else None
        choose = greedy or partial(native.greedy, logits) if self._compiled(logits) else None
        plain = all(p.temperature == 0 and p.repetition_penalty == 1.0 for p in params)
        if choose is not None and plain and not ruled:
            return with_alternatives(*choose(), logits, branches)
        if choose is not None and plain and not any(branches[i].request.rules for i in ruled):
            tokens, logprobs = choose()
            masked = self._among_allowed(tokens, logprobs, logits, ruled, masks)
            return with_alternatives(tokens, logprobs, logits, branches)._replace(masked=masked)
        raw, logits = logits, logits.float()
        adjusted = self._adjusted(logits, branches, ruled, masks, previous)
        drawn = [i for i, p in enumerate(params) if p.temperature != 0]
        if len(drawn) == len(params):
            tokens = self._draw(adjusted, branches, positions, params)
        else:
            tokens = adjusted.max(-1).indices  # half the time of argmax on a CPU
        if 0 < len(drawn) < len(params):
            index = torch.tensor(drawn, device=logits.device)
            drawing, at = [branches[i] for i in drawn], [positions[i] for i in drawn]
            tokens[index] = self._draw(adjusted[index], drawing, at, [params[i] for i in drawn])
        self._note(branches, tokens, ruled)
        logprobs = -cross_entropy(logits, tokens, reduction="none")  # in one pass, without logits' exponentials
        masked = None
        if masks is not None:
            rows = [ruled[place] for place in masks.places]
            if choose is not None and len(rows) == len(params):
                top, top_logprobs = choose()
            else:
                top, top_logprobs = likeliest(logits[torch.tensor(rows, device=raw.device)])
            masked = Masked(rows, masks.bits, top, top_logprobs)
        return with_alternatives(tokens, logprobs, logits, branches)._replace(masked=masked)

    def _compiled(self, logits: Tensor) -> bool:
        return logits.device.type == "cpu" and native.computes(logits.dtype)

    def _among_allowed(
        self, tokens: Tensor, logprobs: Tensor, logits: Tensor, ruled: Sequence[int], masks: Masks | None
    ) -> Masked | None:
        """Of greedy choices, in their place: those that no grammar allows are chosen again."""
        if masks is None:
            return None
        rows = [ruled[place] for place in masks.places]
        index, bits = torch.tensor(rows), masks.bits
        top, top_logprobs = tokens[index], logprobs[index]
        chosen = top.numpy()
        allowed = (bits[range(len(rows)), chosen >> 5] >> (chosen & 31)) & 1
        again = np.flatnonzero((allowed == 0) & bits.any(1)).tolist()
        if again:
            at = torch.tensor([rows[i] for i in again])
            theirs = logits[at].float()
            values, others = ruled_out(theirs, bits[again]).max(-1)
            highest = theirs.gather(-1, top[again].long()[:, None])[:, 0]
            tokens[at] = others.to(tokens.dtype)
            logprobs[at] = values - highest + top_logprobs[again]
        return Masked(rows, bits, top, top_logprobs)

    def _adjusted(
        self,
        logits: Tensor,
        branches: Sequence[Branch],
        ruled: Sequence[int],
        masks: Masks | None,
        previous: Tensor | None,
    ) -> Tensor:
        """The logits that tokens are drawn by: these where nobody asks for others, else a copy."""
        penalties = {i: b.request.params.repetition_penalty for i, b in enumerate(branches) if not b.ruled}
        penalized = [i for i, penalty in penalties.items() if penalty != 1.0]
        if penalized:
            assert self._seen is not None
            seen = self._seen[torch.tensor([branches[i].slot for i in penalized], device=logits.device)]
            rows = torch.tensor(penalized, device=logits.device)
            logits = penalize(logits, rows, seen, [penalties[i] for i in penalized])
        if len(ruled) == len(branches):
            return self.adjust(logits, branches, self._seen, masks, previous)
        if ruled:
            index = torch.tensor(ruled, device=logits.device)
            changed = self.adjust(logits[index], [branches[i] for i in ruled], self._seen, masks, previous)
            return logits.index_copy(0, index, changed)
        return logits

    def _note(self, branches: Sequence[Branch], tokens: Tensor, ruled: Sequence[int]) -> None:
        penalized = [i for i, b in enumerate(branches) if not b.ruled and b.request.params.repetition_penalty != 1.0]
        if self._seen is not None and penalized:
            slots = torch.tensor([branches[i].slot for i in penalized], device=tokens.device)
            self._seen[slots, tokens[torch.tensor(penalized, device=tokens.device)]] = 1
        if ruled:
            self.adjust.drawn(
                [branches[i] for i in ruled], tokens[torch.tensor(ruled, device=tokens.device)], self._seen
            )

    def _draw(
        self, logits: Tensor, branches: Sequence[Branch], positions: Sequence[int], params: Sequence[SamplingParams]
    ) -> Tensor:
        noises = [noise(b.request.seed, b.index, at) for b, at in zip(branches, positions, strict=True)]
        uniform = torch.from_numpy(np.array(noises)).to(logits.device)[:, None]
        temperatures = _column([max(p.temperature, LOWEST_TEMPERATURE) for p in params], logits)
        limited = [p.top_p < 1 or 0 < p.top_k < self._vocabulary for p in params]
        tokens = torch.empty(len(params), dtype=torch.long, device=logits.device)
        for draw, is_for in ((_draw_among_highest, True), (_draw_among_all, False)):
            rows = [i for i, is_limited in enumerate(limited) if is_limited is is_for]
            if len(rows) == len(params):
                return draw(logits, temperatures, uniform, params)
            if rows:
                index, chosen = torch.tensor(rows, device=logits.device), [params[i] for i in rows]
                tokens[index] = draw(logits[index], temperatures[index], uniform[index], chosen)
        return tokens


def _draw_among_all(logits: Tensor, temperatures: Tensor, uniform: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    return _pick(_drop_below_min_p(_weights(logits, temperatures), params), uniform)


def _draw_among_highest(
    logits: Tensor, temperatures: Tensor, uniform: Tensor, params: Sequence[SamplingParams]
) -> Tensor:
    """For rows with top-k or top-p: looks at the highest logits alone, where they are enough."""
    vocabulary = logits.shape[-1]
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
        if bool((values[:, -1:] < border).all()):
            kept = values >= lowest
            widest = int(kept.sum(-1).max())
            weights = _weights(values, temperatures).masked_fill_(~kept, 0.0)[:, :widest]
            ids, order = ids[:, :widest].sort(-1)
            weights = _drop_below_min_p(weights, params).gather(-1, order)
            return ids.gather(-1, _pick(weights, uniform)[:, None])[:, 0]
    lowest, _ = limits.lowest_kept(_descending(logits))
    weights = _weights(logits, temperatures).masked_fill_(logits < lowest, 0.0)
    return _pick(_drop_below_min_p(weights, params), uniform)


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


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]


def _drop_below_min_p(weights: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    if not any(p.min_p for p in params):
        return weights
    floor = _column([p.min_p for p in params], weights) * weights.amax(-1, keepdim=True)
    return weights.masked_fill(weights < floor, 0.0)


def _pick(weights: Tensor, uniform: Tensor) -> Tensor:
    """The index at which the running sum of a row's weights passes its uniform share of the total, `[rows]`. A weight
    of zero is never picked: the sum passes the mark only where it grows."""
    running = weights.double().cumsum(-1)
    mark = uniform * running[:, -1:]
    return torch.searchsorted(running, mark, right=True)[:, 0].clamp_max(weights.shape[-1] - 1)
