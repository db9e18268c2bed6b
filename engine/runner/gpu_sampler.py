"""The sampler of a GPU: the rule of `engine.runner.sampler` by kernels, so that the host never waits."""

import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.kernels.sampling import WORDS, sample
from engine.runner.launched_step import Sampled
from engine.runner.sampler import LOWEST_TEMPERATURE, SlotSampler, with_alternatives
from engine.scheduler.request import Branch


def parameter_words(branch: Branch) -> tuple[int, ...]:
    """What the kernels know of a branch, as WORDS signed 32-bit numbers: temperature, top-k, top-p, min-p, repetition
    penalty (floats by their bits), the branch's index, and the low and high half of its request's seed."""
    params, seed = branch.request.params, branch.request.seed & (1 << 64) - 1
    temperature = max(params.temperature, LOWEST_TEMPERATURE) if params.temperature else 0.0
    top_k = min(params.top_k, 2**31 - 1)
    limits = temperature, top_k, params.top_p, params.min_p, params.repetition_penalty
    return struct.unpack("<8i", struct.pack("<fifffiII", *limits, branch.index, seed & 0xFFFFFFFF, seed >> 32))


class DeviceSampler(SlotSampler):
    """Samples the rows of a step by what the device holds of their slots.

    `parameters` int32 `[slots + 1, WORDS]`: a slot's row must be `parameter_words` of its branch; zeros mean greedy, as
    for the last slot, a dummy.
    """

    def __init__(self, slots: int, vocabulary: int, device: torch.device) -> None:
        super().__init__(slots, vocabulary, device)
        self.parameters = torch.zeros(slots + 1, WORDS, dtype=torch.int32, device=device)
        self._nothing_seen = torch.zeros(1, 1, dtype=torch.uint8, device=device)  # without a penalty nobody reads it
        self._last_tokens = torch.zeros(slots + 1, dtype=torch.int64, device=device)

    def __call__(
        self,
        logits: Tensor,
        slots: Tensor,
        positions: Tensor,
        branches: Sequence[Branch],
        last_tokens: Tensor | None = None,
    ) -> Sampled:
        """logits `[rows, vocabulary]` of the branches' last tokens, in float32 or half of it, columns adjacent; slots
        and positions int32 `[rows]` on the device, a position being the number of tokens before the one drawn.

        Each token is also kept at its slot of `last_tokens`, int64 `[slots + 1]`.
        """
        assert logits.shape[-1] == self._vocabulary, "what was seen is found by the vocabulary's size"
        params = [b.request.params for b in branches]
        limited = any(p.temperature and (p.top_k or p.top_p < 1 or p.min_p) for p in params)
        seen = self._nothing_seen if self._seen is None else self._seen
        state = self.parameters, seen, self._last_tokens if last_tokens is None else last_tokens
        tokens, logprobs = sample(logits, slots, positions, *state, limited=limited)
        return with_alternatives(tokens, logprobs, logits, params)
