"""The contiguous KV cache: a strip for each running branch, all of one width, right-aligned at one column."""

from collections.abc import Collection, Sequence
from itertools import chain

import torch
from torch import Tensor

from engine.kernels.attention.padded import NEVER
from engine.memory.layer_kv import LayerKV
from engine.models.loading import LoadedModel
from engine.runner.launched_step import to_device
from engine.scheduler.request import Branch


class ContiguousCache:
    """Room for `tokens` tokens in every layer, laid out as strips `[strip, kv_heads, column, head_dim]`.

    The newest token of every member lies in column `end` - 1, and a member of length n fills columns [end - n, end):
    so a step writes one column and reads one rectangle, [start, end), `start` being where the longest member begins.
    What a shorter member has there is pads or zeros, never another's leftovers, whose NaN a mask would let through.

    K and V move only when a member leaves before others (the last strip takes its place), when the columns run out at
    either side, and when strips must be wider or more. Strips are wider than asked where there is room for `slots` of
    them, which makes that rare. A batch that joins and leaves together never moves.
    """

    def __init__(self, model: LoadedModel, tokens: int, slots: int) -> None:
        self._tokens, self._fair_width = tokens, tokens // slots
        self._kept = model.layer_kv
        self._dtype, self._device = model.dtype, model.device
        self._flat = [
            tuple(self._allocate(kv.heads * kv.dim) for _ in range(1 if kv.latent else 2)) for kv in model.layer_kv
        ]
        self.members: list[Branch] = []  # by strip
        self.lengths: list[int] = []
        self.end = self.width = 0
        self.layers: list[tuple[Tensor, ...]] = []  # K and V as strips, as many as fit; latents, which are both, once
        self._bias = torch.zeros(0, 0)

    def _allocate(self, width: int) -> Tensor:
        return torch.zeros(self._tokens * width, dtype=self._dtype, device=self._device)

    @property
    def start(self) -> int:
        return self.end - max(self.lengths, default=0)

    def forget(self) -> None:
        """Drops all members: what is in their strips cannot be relied on."""
        self.members, self.lengths = [], []

    def retain(self, staying: Collection[Branch]) -> None:
        """Drops the members that are not among `staying`."""
        if all(branch in staying for branch in self.members):
            return
        moves: list[tuple[int, int]] = []
        window = slice(self.start, self.end)
        for strip in reversed(range(len(self.members))):
            if self.members[strip] in staying:
                continue
            last = len(self.members) - 1
            if strip != last:
                moves.append((last, strip))
            self.members[strip], self.lengths[strip] = self.members[last], self.lengths[last]
            self.members.pop()
            self.lengths.pop()
        if self.members:
            for strips in chain.from_iterable(self.layers):
                for source, target in moves:
                    strips[target, :, window] = strips[source, :, window]
            self._make_bias()

    def join(self, branches: Sequence[Branch], lengths: Sequence[int], width: int) -> None:
        """Gives each branch a strip after the others; its tokens are to be written to the columns before `end`. `width`
        is what every strip, old and new, must be able to hold."""
        before, longest, joining = len(self.members), self.end - self.start, max(lengths)
        count = before + len(branches)
        if not before:
            self._lay_out(max(width, self._fair_width))
            self.end = joining
        elif width > self.width or count * self.width > self._tokens:
            self._move(max(width, self._fair_width), max(longest, joining))
        elif joining > self.end:
            self._move(self.width, joining)
        assert count * self.width <= self._tokens, "the strips fit the cache"
        assert max(longest, joining) <= self.end <= self.width, "every member fits its strip"
        self.members += branches
        self.lengths += lengths
        if joining > longest:
            self._clear(slice(0, before), slice(self.end - joining, self.end - longest))
        else:
            self._clear(slice(before, count), slice(self.end - longest, self.end - joining))
        self._make_bias()

    def advance(self, held: Collection[int]) -> None:
        """Makes column `end` - 1 free for one more token of every member. What the strips `held` hold does not matter
        any more: where one is full, its oldest token is given up."""
        for strip in held:
            self.lengths[strip] = min(self.lengths[strip], self.width - 1)
        if self.end == self.width:
            self._move(self.width, max(self.lengths))
            self._make_bias()
        assert self.end < self.width, "every member fits its strip"
        self.end += 1
        self.lengths = [length + 1 for length in self.lengths]

    def bias(self, first: int) -> Tensor | None:
        """0 where a member has a token and -inf where it has none, `[members, 1, 1, end - first]`; None if all have."""
        if self.end - min(self.lengths) <= first:
            return None
        return self._bias[:, None, None, first : self.end]

    def keys(self, strip: int, layer: int, key: Tensor) -> Tensor:
        """`[tokens, kv_heads, head_dim]`: a layer's of a member, its newest, of `key`, among them."""
        return self.layers[layer][0][strip, :, self.end - self.lengths[strip] : self.end].transpose(0, 1)

    def _make_bias(self) -> None:
        starts = to_device([self.end - length for length in self.lengths], self._device)
        empty = torch.arange(self.width, device=self._device) < starts[:, None]
        self._bias = torch.zeros(empty.shape, device=self._device).masked_fill_(empty, NEVER)

    def _lay_out(self, width: int) -> None:
        if width == self.width:
            return
        self.width = width
        flat = zip(self._flat, self._kept, strict=True)
        self.layers = [tuple(self._strips(each, kv) for each in both) for both, kv in flat]

    def _strips(self, flat: Tensor, kv: LayerKV) -> Tensor:
        strips = self._tokens // self.width
        used = strips * self.width * kv.heads * kv.dim
        return flat[:used].view(strips, kv.heads, self.width, kv.dim)

    def _move(self, width: int, end: int) -> None:
        """Moves the members' window so that it ends at column `end` of strips of another width, perhaps."""
        count, window = len(self.members), slice(self.start, self.end)
        there = slice(end - (self.end - self.start), end)
        before = chain.from_iterable(self.layers)
        self._lay_out(width)
        for source, target in zip(before, chain.from_iterable(self.layers), strict=True):
            target[:count, :, there] = source[:count, :, window].clone()  # the two overlap
        self.end = end

    def _clear(self, strips: slice, columns: slice) -> None:
        if strips.start < strips.stop and columns.start < columns.stop:
            for each in chain.from_iterable(self.layers):
                each[strips, :, columns] = 0
