"""A step that the device is computing, and what it brings back to the host."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.decoding.constraints.masks import Masks
from engine.parallel.board import RankTimes
from engine.runner.prompt_scores import ScoredPositions
from engine.scheduler.plan import StepPlan
from engine.scheduler.request import Emission
from engine.trace.column import Array

Clock = time.perf_counter
Beside = tuple[int, tuple[int, float] | None]  # tokens that were allowed; the likeliest, where it was not
FREE: Beside = (-1, None)


def to_device(values: Sequence[float], device: torch.device, dtype: torch.dtype = torch.long) -> Tensor:
    """The values as a tensor on the device; the host does not wait for the copy."""
    if device.type == "cpu":
        return torch.tensor(values, dtype=dtype)
    return torch.tensor(values, dtype=dtype, pin_memory=True).to(device, non_blocking=True)


def staged(parts: Sequence[Sequence[int] | np.ndarray], device: torch.device) -> list[Tensor]:
    """The parts as int32 tensors on the device, each aligned to 16 bytes; one copy, and no waiting for it."""
    arrays = [np.asarray(part, np.int32) for part in parts]
    starts = [0, *np.cumsum([-(-len(array) // 4) * 4 for array in arrays]).tolist()]
    on_gpu = device.type == "cuda"
    host = torch.empty(starts[-1], dtype=torch.int32, pin_memory=on_gpu)
    flat = host.numpy()
    for array, start in zip(arrays, starts):
        flat[start : start + len(array)] = array
    there = host.to(device, non_blocking=True) if on_gpu else host
    return [there[start : start + len(array)] for array, start in zip(arrays, starts)]


def send_to(there: Tensor, words: np.ndarray) -> Tensor:
    """The words int32 at the beginning of a tensor on the device; the host does not wait for their copy."""
    host = torch.empty(len(words), dtype=torch.int32, pin_memory=there.is_cuda)
    host.numpy()[:] = words
    return there[: len(words)].copy_(host, non_blocking=True)


class Masked(NamedTuple):
    """Of the rows that are held to a grammar: the tokens that were allowed, and on the device the likeliest of all
    tokens, `tokens` and `logprobs` `[those rows]`; which of these are ruled out, where that is known already."""

    masks: Masks
    tokens: Tensor
    logprobs: Tensor
    refused: np.ndarray | None = None

    def told(self) -> dict[int, Beside]:
        """By row: how many tokens were allowed, and the likeliest with its log-probability where it was not."""
        masks, refused = self.masks, self.refused
        tokens, logprobs = self.tokens.tolist(), self.logprobs.tolist()
        if refused is None:
            refused = np.array([not bits[token >> 5] >> (token & 31) & 1 for bits, token in zip(masks.bits, tokens)])
        found: dict[int, Beside] = {row: (count, None) for row, count in zip(masks.rows, masks.counts)}
        for i in refused.nonzero()[0].tolist():
            found[masks.rows[i]] = masks.counts[i], (tokens[i], logprobs[i])
        return found


class Sampled(NamedTuple):
    """On the device: `tokens` `[rows]`, `logprobs` `[rows]` of the model's own distribution; alternatives if asked.
    `words` int32 `[2, rows or more]` is where the first two lie, as tokens and as bits, where they lie together.
    `masked` tells of the rows that were held to a grammar."""

    tokens: Tensor
    logprobs: Tensor
    alternatives: Tensor | None = None
    alternative_logprobs: Tensor | None = None
    words: Tensor | None = None
    masked: Masked | None = None

    def sent(self) -> "Sampled":
        """On its way to the host, which does not wait for it."""
        masked = self.masked
        if masked is not None:
            masked = masked._replace(tokens=_sent(masked.tokens), logprobs=_sent(masked.logprobs))
        others = (None if t is None else _sent(t) for t in (self.alternatives, self.alternative_logprobs))
        if self.words is None:
            tokens, logprobs = _sent(self.tokens), _sent(self.logprobs)
        else:
            tokens, logprobs = apart(_sent(self.words), len(self.tokens))
        return Sampled(tokens, logprobs, next(others), next(others), masked=masked)

    def results(self) -> "Results":
        """What is on the host by now."""
        alternatives, theirs = (() if t is None else t.tolist() for t in (self.alternatives, self.alternative_logprobs))
        masked = {} if self.masked is None else self.masked.told()
        return Results(self.tokens.tolist(), self.logprobs.tolist(), alternatives, theirs, masked)


def apart(words: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """The tokens int32 `[rows]` and log-probabilities float32 `[rows]` of the first rows of `Sampled.words`."""
    return words[0, :rows], words[1, :rows].view(torch.float32)


@dataclass(slots=True)
class Results:
    """A step's sampled tokens on the host, in the order of its sampling rows. `masked`: by row that is held to a
    grammar, how many tokens were allowed, and what the model would rather have said, with its log-probability.
    `attention`: likewise what tokens attended to, as `Emission` has it."""

    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    alternatives: Sequence[list[int]] = ()
    alternative_logprobs: Sequence[list[float]] = ()
    masked: Mapping[int, Beside] = field(default_factory=dict)
    attention: Mapping[int, Array] = field(default_factory=dict)

    def emissions(self, plan: StepPlan) -> list[Emission]:
        """With alternatives for those that asked, and as many as they asked for."""
        if not (self.alternatives or self.masked or self.attention):
            return Emission.plain(self.tokens, self.logprobs)
        drawn = zip(self.tokens, self.logprobs, strict=True)
        beside = [(*self.masked.get(i, FREE), self.attention.get(i)) for i in range(len(self.tokens))]
        if not self.alternatives:
            return [Emission(t, p, (), "", *told) for (t, p), told in zip(drawn, beside)]
        asked = [row.branch.request.ranked for row in plan.rows for _ in range(row.samples)]
        others = zip(drawn, beside, self.alternatives, self.alternative_logprobs, asked, strict=True)
        return [Emission(t, p, tuple(zip(a[:k], lp[:k])), "", *told) for (t, p), told, a, lp, k in others]


def _sent(tensor: Tensor) -> Tensor:
    """On its way to the host, which does not wait for it."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)


@dataclass(slots=True)
class LaunchedStep:
    """A step that the device is computing. `seconds` a phase: prepare, forward, sample; `read` adds wait. `attention`:
    those of forward that were spent in attention, where that can be told; `kernels`: those of each kernel, where a CPU
    replayed the step. `graph`: the size of the graph replayed. `experts` int32 `[layers, experts]`, once read: how many
    tokens went to each expert of a mixture.
    `device`: seconds by the GPU's own clock, once read, from where it comes to what the step computes to where the
    tokens are on the host's side; where blocks are copied or swapped for the step, from where it comes to these. What
    it waits for before, as the host lays the step out, is no part of it; of a step that is no replayed graph, what it
    waits for within is. `swapping`: those of prepare in which blocks were copied to host memory and back. `beside`: how
    many of the plan's rows, the last, a prefill worker computes. `times` tells what the step took each rank of a split
    model, by its `number` there, and `check` raises where not all have computed it.
    """

    plan: StepPlan
    started: float
    step: int = -1
    seconds: dict[str, float] = field(default_factory=dict)
    attention: float = 0.0
    kernels: Array | None = None
    graph: int = 0
    device: float = 0.0
    swapping: float = 0.0
    number: int = -1
    beside: int = 0
    times: Callable[[int], RankTimes | None] | None = None
    check: Callable[[], None] | None = None
    experts: Array | None = None
    _routed: Tensor | None = None
    _scored: ScoredPositions | None = None
    _attended: dict[int, Tensor] = field(default_factory=dict)
    _sampled: Sampled | None = None
    _reached: torch.cuda.Event | None = None
    _event: torch.cuda.Event | None = None

    def mark(self) -> None:
        """Marks where the GPU comes to the step, and, called again, where it is done with it."""
        self._reached, self._event = self._event, torch.cuda.Event(enable_timing=True)
        self._event.record()

    def keep(self, sampled: Sampled) -> None:
        """Takes the step's tokens, and starts their way to the host where they are not there yet."""
        there = sampled.tokens.device.type == "cpu"
        self._sampled = sampled if there else sampled.sent()

    def keep_scores(self, scored: ScoredPositions) -> None:
        """Likewise what the step tells of prompts."""
        self._scored = scored if scored.logprobs.device.type == "cpu" else ScoredPositions(*map(_sent, scored))

    def keep_routing(self, counts: Tensor) -> None:
        """Likewise how many tokens went to each expert: the counts are then free to be counted anew."""
        self._routed = counts.clone() if counts.device.type == "cpu" else _sent(counts)

    def keep_attention(self, told: dict[int, Tensor]) -> None:
        """Likewise what tokens attended to, by their place among those drawn."""
        self._attended = {at: one if one.device.type == "cpu" else _sent(one) for at, one in told.items()}

    def tell_scores(self) -> None:
        """Tells requests what the step says of their prompts; `read` has waited for it."""
        if self._scored is not None:
            self._scored.tell(self.plan.scored)

    def read(self) -> Results:
        """Waits for the device and copies the tokens to the host."""
        begun = Clock()
        if self._event is not None:
            self._event.synchronize()
            if self._reached is not None:
                self.device = self._reached.elapsed_time(self._event) / 1e3
        if self.check is not None:
            self.check()
        if self._routed is not None:
            self.experts = self._routed.numpy()
        sampled = self._sampled
        results = Results() if sampled is None else sampled.results()
        if self._attended:
            results.attention = {at: told.numpy() for at, told in self._attended.items()}
        self.seconds["wait"] = Clock() - begun
        return results
