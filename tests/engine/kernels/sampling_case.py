"""Rows to be sampled, and checks of the sampler for devices against the one for a CPU, that run on any device."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine import SamplingParams
from engine.decoding.detokenizer_factory import DetokenizerFactory
from engine.decoding.output import Output
from engine.runner.launched_step import Sampled
from engine.runner.sampling.gpu_sampler import DeviceSampler, parameter_words
from engine.runner.sampling.sampler import Sampler
from engine.scheduler.request import Branch, Request
from tests.engine.decoding.tokenizer_kinds import tokenizer

CPU = torch.device("cpu")


def make_branch(params: SamplingParams, slot: int, *, tokens: Sequence[int] = (1,), seed: int = 0) -> Branch:
    """A branch whose next token is being drawn."""
    request = Request(0, len(tokens), params, 100, seed)
    output = Output(DetokenizerFactory(tokenizer("demo"))(), params, frozenset(), 100)
    branch = Branch(request, list(tokens), output, in_flight=1, slot=slot, index=slot % 3)
    request.branches.append(branch)
    return branch


def make_logits(rows: int, vocabulary: int, seed: int, spread: float = 3.0) -> Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * spread


def positions_of(branches: Sequence[Branch]) -> list[int]:
    """Where the tokens that are drawn for them will stand."""
    return [len(branch.tokens) + branch.in_flight - 1 for branch in branches]


@dataclass
class Pair:
    """The same branches with a sampler for the device, and one for the CPU. Slots go in no order."""

    branches: list[Branch]
    vocabulary: int
    device: torch.device
    sampler: DeviceSampler = field(init=False)
    oracle: Sampler = field(init=False)
    last_tokens: Tensor = field(init=False)

    def __post_init__(self) -> None:
        slots = len(self.branches)
        self.sampler = DeviceSampler(slots, self.vocabulary, self.device)
        self.oracle = Sampler(slots, self.vocabulary, CPU)
        self.last_tokens = torch.full((slots + 1,), -1, dtype=torch.int64, device=self.device)
        for branch in self.branches:
            self.begin(branch)

    def begin(self, branch: Branch) -> None:
        self.sampler.parameters[branch.slot] = torch.tensor(parameter_words(branch), dtype=torch.int32)
        self.sampler.begin(branch)
        self.oracle.begin(branch)

    def draw(self, logits: Tensor, branches: Sequence[Branch] | None = None) -> Sampled:
        """By the device; logits are of all branches, or of these."""
        branches = self.branches if branches is None else branches
        slots = torch.tensor([b.slot for b in branches], dtype=torch.int32, device=self.device)
        at = torch.tensor(positions_of(branches), dtype=torch.int32, device=self.device)
        return self.sampler(logits.to(self.device), slots, at, branches, self.last_tokens)

    def check(self, logits: Tensor) -> list[int]:
        """The samplers agree: tokens exactly, log-probabilities but for rounding; the tokens."""
        found, expected = self.draw(logits), self.oracle(logits, self.branches, positions_of(self.branches))
        assert found.tokens.tolist() == expected.tokens.tolist()
        assert found.words is not None
        assert found.words.dtype == torch.int32, "one copy takes tokens and log-probabilities to the host"
        torch.testing.assert_close(found.logprobs.cpu(), expected.logprobs, atol=2e-5, rtol=1e-5)
        slots = [b.slot for b in self.branches]
        assert self.last_tokens.cpu()[slots].tolist() == found.tokens.tolist()
        if expected.alternatives is not None:
            assert found.alternatives is not None
            assert found.alternative_logprobs is not None
            assert found.alternatives.tolist() == expected.alternatives.tolist()
            torch.testing.assert_close(
                found.alternative_logprobs.cpu(), expected.alternative_logprobs, atol=2e-5, rtol=1e-5
            )
        return found.tokens.tolist()


def make_pair(
    params: Sequence[SamplingParams],
    vocabulary: int,
    device: torch.device,
    *,
    tokens: Sequence[int] = (1,),
    seed: int = 0,
) -> Pair:
    """A branch for each of the parameters, in slots of mixed order, its seed wider than 32 bits."""
    slots = torch.randperm(len(params), generator=torch.Generator().manual_seed(seed)).tolist()
    branches = [
        make_branch(p, slot, tokens=tokens, seed=(seed + i) * 0x9E3779B97F4A7C15 % 2**64)
        for i, (p, slot) in enumerate(zip(params, slots, strict=True))
    ]
    return Pair(branches, vocabulary, device)


def random_params(count: int, seed: int) -> list[SamplingParams]:
    """Rows of every kind: greedy and not, with and without each limit and the penalty."""
    generator = torch.Generator().manual_seed(seed)

    def choose(*values: float) -> float:
        return values[int(torch.randint(len(values), (1,), generator=generator))]

    return [
        SamplingParams(
            temperature=choose(0, 0.7, 1.0, 1.0, 1.8),
            top_k=int(choose(0, 0, 1, 5, 60, 100_000)),
            top_p=choose(1.0, 1.0, 0.05, 0.6, 0.95),
            min_p=choose(0.0, 0.0, 0.02, 0.3),
            repetition_penalty=choose(1.0, 1.0, 1.4, 0.7),
        )
        for _ in range(count)
    ]
