"""How a model is split over devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from engine.config.checks import InvalidInput, number, one_of, whole

BACKENDS = ("auto", "shared", "gloo", "nccl")
MOST_RANKS = 64
MOST_MICRO = 64  # micro-batches of a step


@dataclass(frozen=True, slots=True)
class Parallel:
    """`tensor` ranks, each a process of its own, hold a part of every layer's heads and of its MLP; `sequence`: what
    lies between these, norms and residuals, each computes for a share of a step's rows, not for all; `experts`: of a
    mixture's experts each has some whole, not a part of each. Or `pipeline` of
    them each hold some of the layers, one stage after another, through which the rows of a step go in up to
    `micro_batches` parts (0: as many as there are stages).

    They meet over `backend`: "auto" is NCCL between GPUs, each rank on one of its own; on a CPU it is shared memory
    where kernels can be compiled, else gloo. A rank that the others
    wait for longer than `timeout` seconds ends the engine.
    """

    tensor: int = 1
    backend: str = "auto"
    timeout: float = 60.0
    sequence: bool = False
    pipeline: int = 1
    micro_batches: int = 0
    experts: bool = False

    def __post_init__(self) -> None:
        whole("tensor_parallel", self.tensor, 1, MOST_RANKS)
        if self.sequence and self.tensor == 1:
            raise InvalidInput(
                "sequence_parallel=True: it shares rows among the ranks of tensor parallelism, and there is one; use "
                "tensor_parallel 2 or more, or leave it out"
            )
        if self.experts and self.tensor == 1:
            raise InvalidInput(
                "expert_parallel=True: it shares experts out among the ranks of tensor parallelism, and there is one; "
                "use tensor_parallel 2 or more, or leave it out"
            )
        if self.experts and self.sequence:
            raise InvalidInput(
                "expert_parallel=True with sequence_parallel=True: experts are asked by all rows of a step, not by a "
                "share of them; use one of both"
            )
        one_of("parallel_backend", self.backend, BACKENDS)
        number("parallel_timeout", self.timeout, 0.1, 86_400.0, "must be from 0.1 to 86,400 seconds")
        whole("pipeline_parallel", self.pipeline, 1, MOST_RANKS)
        whole("micro_batches", self.micro_batches, 0, MOST_MICRO)
        if self.pipeline == 1 and self.micro_batches:
            raise InvalidInput(
                f"micro_batches={self.micro_batches}: they go through stages; give pipeline_parallel too"
            )
        if self.pipeline == 1:
            return
        if self.tensor > 1:
            raise InvalidInput(
                f"tensor_parallel={self.tensor} with pipeline_parallel={self.pipeline}: a model is split by its heads "
                "or by its layers, not by both; use one of them"
            )

    @property
    def ranks(self) -> int:
        return self.tensor * self.pipeline

    @property
    def words(self) -> str:
        """The setting that splits: "tensor_parallel=2"."""
        return f"pipeline_parallel={self.pipeline}" if self.pipeline > 1 else f"tensor_parallel={self.tensor}"


def shares(count: int, rank: int, ranks: int, begin: int = 0) -> tuple[int, int]:
    """A rank's range of so many, as even as can be."""
    return begin + count * rank // ranks, begin + count * (rank + 1) // ranks


def dividing(counts: Sequence[int]) -> list[int]:
    """The numbers of ranks that divide all of these counts."""
    common = gcd(*counts)
    return [n for n in range(1, min(common, MOST_RANKS) + 1) if not common % n]


def check_dividing(ranks: int, counts: dict[str, int]) -> None:
    """Raises InvalidInput where a count, by what it is of, does not divide by the ranks, with numbers that do."""
    odd = [f"{count:,} {what}" for what, count in counts.items() if count % ranks]
    if odd:
        good = [str(n) for n in dividing(list(counts.values())) if n > 1]
        remedy = f"use {' or '.join(good)}, or 1" if good else "use 1: nothing else divides them"
        raise InvalidInput(f"tensor_parallel={ranks}: {' and '.join(odd)} do not divide by it; {remedy}")
