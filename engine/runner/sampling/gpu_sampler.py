"""The sampler of a GPU: the rule of `engine.runner.sampling.sampler` by kernels, so that the host never waits."""

import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.decoding.constraints.masks import Masks
from engine.kernels.sampling import WORDS, sample
from engine.runner.launched_step import Masked, Sampled, apart, to_device
from engine.runner.sampling.adjustments import masks_of
from engine.runner.sampling.drawing import LOWEST_TEMPERATURE
from engine.runner.sampling.sampler import SlotSampler, likeliest, with_alternatives
from engine.scheduler.request import Branch


def parameter_words(branch: Branch) -> tuple[int, ...]:
    """What the kernels know of a branch, as WORDS signed 32-bit numbers: temperature, top-k, top-p, min-p, repetition
    penalty (floats by their bits), the branch's index, and the low and high half of its request's seed. The penalty of
    a branch whose logits are changed before the kernels is among those changes, and none here."""
    params, seed = branch.request.params, branch.request.seed & (1 << 64) - 1
    temperature = max(params.temperature, LOWEST_TEMPERATURE) if params.temperature else 0.0
    top_k = min(params.top_k, 2**31 - 1)
    penalty = 1.0 if branch.ruled else params.repetition_penalty
    limits = temperature, top_k, params.top_p, params.min_p, penalty
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
        previous: Tensor | None = None,
        masks: Masks | None = None,
    ) -> Sampled:
        """What `draw` draws for the branches' rows, as `told` tells it."""
        words = self.draw(logits, slots, positions, last_tokens, limited=limits_any(branches))
        return self.told(logits, words, branches, last_tokens, previous, masks)

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

    def told(
        self,
        logits: Tensor,
        words: Tensor,
        branches: Sequence[Branch],
        last_tokens: Tensor | None = None,
        previous: Tensor | None = None,
        masks: Masks | None = None,
    ) -> Sampled:
        """What was drawn for the branches, in the first of its columns; where they ask for changes of their logits,
        which no captured step knows, it is drawn again. How many alternatives a step asks for is not known before
        either, so they are looked for after it, also where it was replayed. `previous` as `Adjustments` gives it;
        `masks` are the branches', where they were begun before."""
        rows, masked = len(branches), None
        if any(branch.ruled for branch in branches):
            masks = masks or masks_of(branches, self._vocabulary)
            words, masked = self._drawn_again(logits[:rows], words, branches, last_tokens, previous, masks)
        told = with_alternatives(*apart(words, rows), logits[:rows], branches)
        return told._replace(words=words, masked=masked)

    def _drawn_again(
        self,
        logits: Tensor,
        words: Tensor,
        branches: Sequence[Branch],
        last_tokens: Tensor | None,
        previous: Tensor | None,
        masks: Masks | None,
    ) -> tuple[Tensor, Masked | None]:
        """A copy of the words with other draws for the ruled branches, and what their grammars did."""
        ruled = [i for i, branch in enumerate(branches) if branch.ruled]
        theirs = [branches[i] for i in ruled]
        index = to_device(ruled, self._device)
        raw = logits[index].float()
        slots = to_device([b.slot for b in theirs], self._device, torch.int32)
        positions = to_device([len(b.tokens) + b.in_flight - 1 for b in theirs], self._device, torch.int32)
        changed = self.adjust(raw, theirs, self._seen, masks, previous)
        tokens = self.draw(changed, slots, positions, last_tokens, limited=limits_any(theirs))[0]
        self.adjust.drawn(theirs, tokens.long(), self._seen)
        logprobs = raw.gather(-1, tokens.long()[:, None])[:, 0] - raw.logsumexp(-1)
        words = words.index_copy(1, index, torch.stack((tokens, logprobs.view(torch.int32))))
        if masks is None:
            return words, None
        held = to_device([i for i, b in enumerate(theirs) if b.matcher is not None], self._device)
        return words, Masked(masks, *likeliest(raw[held]))


def limits_any(branches: Sequence[Branch]) -> bool:
    """Whether any of the branches limits its tokens by top-k, top-p or min-p."""
    params = [b.request.params for b in branches]
    return any(p.temperature and (p.top_k or p.top_p < 1 or p.min_p) for p in params)
