"""What requests ask of their logits before a token is drawn, but for temperature and limits: by torch, on any device,
and only for the rows that ask (`Branch.ruled`)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.decoding.constraints.masks import Masks
from engine.decoding.constraints.matcher import Bits
from engine.kernels.cpu.calls import computes
from engine.kernels.cpu.sampling import rule_out
from engine.runner.launched_step import staged, to_device
from engine.scheduler.request import Branch

RULED_OUT = -torch.inf
PART = 16 << 20  # bytes of float32 logits that are changed at a time: what lies between takes some times as many
# By a byte of bits, what is added to the logits of its eight tokens.
_ADDED = np.where(np.arange(256)[:, None] >> np.arange(8) & 1, 0.0, RULED_OUT).astype(np.float32)


def masks_of(branches: Sequence[Branch], vocabulary: int) -> Masks | None:
    """The masks of the branches that are held to a grammar: all their tokens must be known. Found from here on."""
    matchers = [branch.matcher for branch in branches if branch.matcher is not None]
    if not matchers:
        return None
    rows = [i for i, branch in enumerate(branches) if branch.matcher is not None]
    assert {branches[i].in_flight for i in rows} == {1}, "a matcher has seen every token but the one drawn now"
    return Masks(rows, matchers, vocabulary)


def ruled_out(logits: Tensor, bits: Bits) -> Tensor:
    """A copy of logits `[rows, vocabulary]` with all tokens ruled out that no bit allows; rows without any bit are left
    as they are: their branches end."""
    on_cpu = logits.device.type == "cpu"
    if on_cpu and logits.dtype is torch.float32 and computes(torch.float32):
        return rule_out(logits, bits)
    bits = np.ascontiguousarray(np.where(bits.any(1, keepdims=True), bits, -1))
    if on_cpu:
        added = _ADDED.take(bits.view(np.uint8), axis=0).reshape(len(bits), -1)  # a fifth of the time of masked_fill
        return logits + torch.from_numpy(added)[:, : logits.shape[-1]]
    words = staged([bits.ravel()], logits.device)[0].view(bits.shape)
    apart = words[:, :, None] >> torch.arange(32, dtype=torch.int32, device=logits.device)
    allowed = (apart & 1).flatten(1)[:, : logits.shape[-1]].bool()
    return logits.masked_fill(~allowed, RULED_OUT)


class Adjustments:
    """The changes that `slots` slots ask for; `counts` int32 `[slots + 1, vocabulary]` is how often the answers of the
    slots have each token, made with the first that asks. What it is told of a slot, it is told in the device's order:
    a token in flight counts."""

    def __init__(self, slots: int, vocabulary: int, device: torch.device) -> None:
        self._slots, self._vocabulary, self._device = slots, vocabulary, device
        self._counts: Tensor | None = None

    def begin(self, branch: Branch) -> None:
        """Called when a branch's first token is computed, on admission."""
        rules = branch.request.rules
        if rules is None or not rules.counts:
            return
        if self._counts is None:
            self._counts = torch.zeros(self._slots + 1, self._vocabulary, dtype=torch.int32, device=self._device)
        self._counts[branch.slot].zero_()
        said = branch.tokens[branch.request.prompt_length :]
        if said:
            ones = torch.ones(len(said), dtype=torch.int32, device=self._device)
            self._counts[branch.slot].index_put_((self._tensor(said),), ones, accumulate=True)

    def previous(self, branches: Sequence[Branch], last_tokens: Tensor) -> Tensor | None:
        """The tokens that the ruled branches' slots drew last, `[ruled rows]`, where they are not known yet and matter:
        taken before a step draws others."""
        unread = [b for b in branches if b.in_flight > 1]
        if not any(b.request.rules is not None and b.request.rules.banned for b in unread):
            return None
        ruled = [b for b in branches if b.ruled]
        return last_tokens[self._tensor([b.slot for b in ruled])]

    def __call__(
        self,
        logits: Tensor,
        branches: Sequence[Branch],
        seen: Tensor | None,
        masks: Masks | None,
        previous: Tensor | None,
    ) -> Tensor:
        """The logits `[ruled rows, vocabulary]`, float32, changed in vLLM's order: the grammar's mask, banned words,
        ends that come too early, bias; repetition, frequency and presence penalties. A copy. `masks` are those of all
        ruled rows that have one."""
        bits, each = None if masks is None else masks.bits, max(1, PART // (4 * self._vocabulary))
        if len(branches) <= each:
            return self._changed(logits, branches, seen, bits, previous)
        changed, held = torch.empty_like(logits), 0
        for at in range(0, len(branches), each):
            rows, before = slice(at, at + each), held
            held += sum(b.matcher is not None for b in branches[rows])
            theirs = None if bits is None else bits[before:held]
            last = None if previous is None else previous[rows]
            changed[rows] = self._changed(logits[rows], branches[rows], seen, theirs, last)
        return changed

    def _changed(
        self,
        logits: Tensor,
        branches: Sequence[Branch],
        seen: Tensor | None,
        bits: Bits | None,
        previous: Tensor | None,
    ) -> Tensor:
        held = [i for i, b in enumerate(branches) if b.matcher is not None] if bits is not None else []
        if bits is not None and held and len(held) == len(branches):
            logits = ruled_out(logits, bits)
        elif bits is not None and held:
            index = self._tensor(held)
            logits = logits.index_copy(0, index, ruled_out(logits[index], bits))
        else:
            logits = logits.clone()
        if any(b.request.rules is not None for b in branches):
            self._ban(logits, branches, previous)
            self._add_bias(logits, branches)
        logits = self._repetition(logits, branches, seen)
        return self._frequency(logits, branches)

    def drawn(self, branches: Sequence[Branch], tokens: Tensor, seen: Tensor | None) -> None:
        """Takes note of the tokens `[ruled rows]`."""
        penalized = [i for i, b in enumerate(branches) if b.request.params.repetition_penalty != 1.0]
        if penalized and seen is not None:
            places = self._slots_of(branches, penalized), tokens[self._tensor(penalized)]
            seen.index_put_(places, seen.new_ones(()))  # a number of the host's would be waited for
        counted = _counted(branches)
        if counted and self._counts is not None:
            self._counts[self._slots_of(branches, counted), tokens[self._tensor(counted)]] += 1

    def _ban(self, logits: Tensor, branches: Sequence[Branch], previous: Tensor | None) -> None:
        rows: list[int] = []
        tokens: list[int] = []
        before: list[int] = []  # the token that must have been drawn last; -1: any
        for row, branch in enumerate(branches):
            rules = branch.request.rules
            if rules is None:
                continue
            unread = branch.in_flight - 1
            if branch.generated - 1 < rules.min_tokens:
                rows += [row] * len(rules.ends)
                tokens += rules.ends
                before += [-1] * len(rules.ends)
            for *head, last in rules.banned:
                told = head[: len(head) - unread]
                if not head or branch.tokens[len(branch.tokens) - len(told) :] == told:
                    rows.append(row)
                    tokens.append(last)
                    before.append(head[-1] if head and unread else -1)
        if not rows:
            return
        places = self._tensor(rows)
        fill = torch.full((len(rows),), RULED_OUT, device=logits.device)
        if previous is not None:
            wanted = self._tensor(before)
            fill = fill.masked_fill((wanted >= 0) & (previous[places] != wanted), 0.0)
        logits.index_put_((places, self._tensor(tokens)), fill, accumulate=True)

    def _add_bias(self, logits: Tensor, branches: Sequence[Branch]) -> None:
        biases = [(row, *pair) for row, b in enumerate(branches) if b.request.rules for pair in b.request.rules.bias]
        if biases:
            rows, tokens, values = zip(*biases, strict=True)
            more = to_device(values, logits.device, torch.float32)
            logits.index_put_((self._tensor(rows), self._tensor(tokens)), more, accumulate=True)

    def _repetition(self, logits: Tensor, branches: Sequence[Branch], seen: Tensor | None) -> Tensor:
        rows = [i for i, b in enumerate(branches) if b.request.params.repetition_penalty != 1.0]
        if not rows or seen is None:
            return logits
        penalties = [branches[i].request.params.repetition_penalty for i in rows]
        return penalize(logits, self._tensor(rows), seen[self._slots_of(branches, rows)], penalties)

    def _frequency(self, logits: Tensor, branches: Sequence[Branch]) -> Tensor:
        rows = _counted(branches)
        if not rows or self._counts is None:
            return logits
        rules = [rule for i in rows if (rule := branches[i].request.rules) is not None]
        sizes = to_device([x for r in rules for x in (r.frequency, r.presence)], logits.device, torch.float32)
        frequency, presence = sizes.view(-1, 2).T[:, :, None]
        counts = self._counts[self._slots_of(branches, rows)]
        return logits.index_add(0, self._tensor(rows), -(frequency * counts + presence * (counts > 0)))

    def _slots_of(self, branches: Sequence[Branch], rows: Sequence[int]) -> Tensor:
        return self._tensor([branches[i].slot for i in rows])

    def _tensor(self, values: Sequence[int]) -> Tensor:
        return to_device(values, self._device)


def penalize(logits: Tensor, rows: Tensor, seen: Tensor, penalties: Sequence[float]) -> Tensor:
    """A copy of the logits with the repetition penalty on these rows, whose `seen` `[rows, vocabulary]` says where."""
    penalty = to_device(penalties, logits.device, logits.dtype)[:, None]
    chosen = logits[rows]
    punished = torch.where(chosen > 0, chosen / penalty, chosen * penalty)
    return logits.index_copy(0, rows, torch.where(seen.view(torch.bool), punished, chosen))


def _counted(branches: Sequence[Branch]) -> list[int]:
    return [i for i, b in enumerate(branches) if b.request.rules is not None and b.request.rules.counts]
