"""The sampler of a GPU: the rule of `engine.runner.sampler` by kernels, so that the host never waits."""

import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.kernels.sampling import WORDS, sample
from engine.runner.launched_step import Sampled, apart
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
        # From the beginning: a captured step knows its place.
        self._seen = torch.zeros(slots + 1, vocabulary, dtype=torch.uint8, device=device)
        self._last_tokens = torch.zeros(slots + 1, dtype=torch.int64, device=device)

    def __call__(
        self,
        logits: Tensor,
        slots: Tensor,
        positions: Tensor,
        branches: Sequence[Branch],
        last_tokens: Tensor | None = None,
    ) -> Sampled:
        """What `draw` draws for the branches' rows, with the alternatives that they ask for."""
        params = [b.request.params for b in branches]
        limited = any(p.temperature and (p.top_k or p.top_p < 1 or p.min_p) for p in params)
        return self.told(logits, self.draw(logits, slots, positions, last_tokens, limited=limited), branches)

    def draw(
        self,
        logits: Tensor,
        slots: Tensor,
        positions: Tensor,
        last_tokens: Tensor | None = None,
        *,
        limited: bool = True,
    ) -> Tensor:
        """`engine.kernels.sampling.sample` by what the slots ask for; may be captured.

        logits `[rows, vocabulary]` of the rows' last tokens, in float32 or half of it, columns adjacent; slots and
        positions int32 `[rows]` on the device, a position being the number of tokens before the one drawn. Each token
        is also kept at its slot of `last_tokens`, int64 `[slots + 1]`. Without `limited` no row may have limits.
        """
        assert logits.shape[-1] == self._vocabulary, "what was seen is found by the vocabulary's size"
        assert self._seen is not None
        state = self.parameters, self._seen, self._last_tokens if last_tokens is None else last_tokens
        return sample(logits, slots, positions, *state, limited=limited)

    def told(self, logits: Tensor, words: Tensor, branches: Sequence[Branch]) -> Sampled:
        """What was drawn for the branches, in the first of its columns. How many alternatives a step asks for is not
        known before, so they are looked for after it, also where it was replayed."""
        rows = len(branches)
        return with_alternatives(*apart(words, rows), logits[:rows], branches)._replace(words=words)
