"""From logits to tokens, for a whole batch at once.

Order of transforms as in vLLM, and in transformers where it has them: the grammar's mask, banned words, ends before
min_tokens, bias (`adjustments`); repetition, frequency and presence penalty; temperature, top-k, top-p, min-p. Top-k
keeps what is as high as the k-th highest, top-p what has less than its share of the weight above it, min-p what
weighs at least its part of the highest. The token is the one, in vocabulary order, at which the running sum of the
kept weights passes the noise's share of their total: the same on every device, rounding aside. The noise of a token
is one uniform number that is a function of (seed, branch, position), so batch mates and preemption change nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from engine.decoding.constraints.masks import Masks
from engine.kernels.cpu import calls as native
from engine.kernels.cpu.sampling import among_allowed
from engine.runner.launched_step import Masked, Sampled, to_device
from engine.runner.sampling.adjustments import Adjustments, masks_of, penalize
from engine.runner.sampling.drawing import draw, draw_among_all, is_limited
from engine.runner.sampling.noise import noise
from engine.scheduler.request import Branch

Greedy = Callable[[], tuple[Tensor, Tensor]]  # tokens and log-probabilities `[rows]`, int64 and float32


def with_alternatives(tokens: Tensor, logprobs: Tensor, logits: Tensor, branches: Sequence[Branch]) -> Sampled:
    """Beside each row's token, as many of its likeliest as any row asks for."""
    most = max([b.request.ranked for b in branches])
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
        masks: Masks | None = None,
    ) -> Sampled:
        """logits `[rows, vocabulary]` for the branches' tokens at `positions`, before each of which there are so many;
        a branch whose drafted tokens are verified has several. `greedy` tells what a greedy choice would be, where that
        was computed with them; `previous` as `Adjustments` gives it; `masks` are the branches', where they were begun
        before."""
        choose = greedy or partial(native.greedy, logits) if self._compiled(logits) else None
        if choose is not None and False not in [b.request.greedy and not b.ruled for b in branches]:
            return with_alternatives(*choose(), logits, branches)
        params = [b.request.params for b in branches]
        ruled = [i for i, b in enumerate(branches) if b.ruled]
        if masks is None and ruled:
            masks = masks_of(branches, self._vocabulary)
        by_grammar = choose is not None and not any(
            p.repetition_penalty != 1.0 or b.request.rules is not None for p, b in zip(params, branches, strict=True)
        )
        if choose is not None and by_grammar and all(p.temperature == 0 for p in params):
            tokens, logprobs = choose()
            masked = None
            if masks is not None:
                masked = Masked(masks, *among_allowed(tokens, logprobs, logits, masks.rows, masks.bits, True))
            return with_alternatives(tokens, logprobs, logits, branches)._replace(masked=masked)
        if by_grammar and all(p.temperature != 0 and not is_limited(p, self._vocabulary) for p in params):
            tokens = draw_among_all(logits, params, noise_of(branches, positions), masks)
        else:
            logits = logits.float()
            tokens = self._drawn(self._adjusted(logits, branches, ruled, masks, previous), branches, positions)
            self._note(branches, tokens, ruled)
        masked = None
        if choose is not None:
            top, top_logprobs = choose()
            if masks is not None:
                masked = Masked(masks, *among_allowed(top, top_logprobs, logits, masks.rows, masks.bits, False))
            of_both = logits.gather(-1, torch.stack((top, tokens), 1)).float()
            logprobs = of_both[:, 1] - of_both[:, 0] + top_logprobs
        else:
            logprobs = -cross_entropy(logits, tokens, reduction="none")  # in one pass, without logits' exponentials
            if masks is not None:
                masked = Masked(masks, *likeliest(logits[torch.tensor(masks.rows, device=logits.device)]))
        return with_alternatives(tokens, logprobs, logits, branches)._replace(masked=masked)

    def _drawn(self, logits: Tensor, branches: Sequence[Branch], positions: Sequence[int]) -> Tensor:
        """The tokens of logits that nothing but temperature and limits change any more."""
        params = [b.request.params for b in branches]
        drawn = [i for i, p in enumerate(params) if p.temperature != 0]
        if len(drawn) == len(params):
            return draw(logits, params, noise_of(branches, positions))
        tokens = logits.max(-1).indices  # half the time of argmax on a CPU
        if drawn:
            index, drawing = torch.tensor(drawn, device=logits.device), [branches[i] for i in drawn]
            noises = noise_of(drawing, [positions[i] for i in drawn])
            tokens[index] = draw(logits[index], [params[i] for i in drawn], noises)
        return tokens

    def _compiled(self, logits: Tensor) -> bool:
        return logits.device.type == "cpu" and native.computes(logits.dtype)

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


def noise_of(branches: Sequence[Branch], positions: Sequence[int]) -> NDArray[np.float64]:
    """The noise of the branches' tokens at these positions."""
    return noise([b.request.seed for b in branches], [b.index for b in branches], positions)
