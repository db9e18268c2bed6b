"""Which layers of a model each stage of a pipeline holds, and the micro-batches that go through them. No torch."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from math import inf
from operator import add

from engine.config.specs import InvalidInput
from engine.scheduler.plan import StepPlan


@dataclass(frozen=True, slots=True)
class Anatomy:
    """Where a model's parts are, as names of modules: the list of its `count` layers, its embedding and its head.
    `tied`: these two have one weight, unless a checkpoint has two."""

    layers: str
    count: int
    embedding: str
    head: str
    tied: bool

    def layer_of(self, name: str) -> int:
        """Of which layer a checkpoint's tensor is; -1 of none. Checkpoints leave the beginning of names out."""
        own = re.escape(self.layers.rpartition(".")[2])
        found = re.search(rf"(?:^|\.){own}\.(\d+)\.", name)
        return int(found[1]) if found else -1

    def is_of(self, name: str, module: str) -> bool:
        """Whether a checkpoint's tensor is a parameter of that module."""
        return name.rpartition(".")[0].rpartition(".")[2] == module.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Stage:
    """The layers from `begin` up to `end` of a model, which rank `rank` of `ranks` holds: the first has the embedding
    too, and the last the head; where they are `tied`, the checkpoint has one weight for both, and each a copy of it."""

    rank: int
    ranks: int
    begin: int
    end: int
    anatomy: Anatomy
    tied: bool

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def last(self) -> bool:
        return self.rank == self.ranks - 1

    @property
    def layers(self) -> range:
        return range(self.begin, self.end)

    @property
    def words(self) -> str:
        """The setting that made it."""
        return f"pipeline_parallel={self.ranks}"

    def held_as(self, name: str) -> list[str]:
        """The names under which this stage's module has a tensor of the checkpoint; none where it holds it not."""
        anatomy, layer = self.anatomy, self.anatomy.layer_of(name)
        if layer >= 0:
            return [name] if layer in self.layers else []
        of_embedding, of_head = anatomy.is_of(name, anatomy.embedding), anatomy.is_of(name, anatomy.head)
        if not (of_embedding or of_head):
            return [name]
        if not self.tied:
            return [name] if (of_embedding and self.first) or (of_head and self.last) else []
        modules = [anatomy.embedding] * self.first + [anatomy.head] * self.last
        return [f"{module}.{name.rpartition('.')[2]}" for module in modules]


def stage_of(rank: int, ranks: int, anatomy: Anatomy, sizes: Mapping[str, int]) -> Stage:
    """That of a rank; `sizes` are the bytes of the checkpoint's tensors by name. Stages are as even in bytes as layers
    allow, embedding and head counted. Raises InvalidInput where there are more stages than layers."""
    if ranks > anatomy.count:
        remedy = f"use at most {anatomy.count}" if anatomy.count > 1 else "use 1"
        raise InvalidInput(
            f"pipeline_parallel={ranks}: the model has {anatomy.count} layers, and a stage needs one; {remedy}"
        )
    layers, embedding, head = [0] * anatomy.count, 0, 0
    for name, size in sizes.items():
        layer = anatomy.layer_of(name)
        if 0 <= layer < anatomy.count:
            layers[layer] += size
        elif anatomy.is_of(name, anatomy.embedding):
            embedding += size
        elif anatomy.is_of(name, anatomy.head):
            head += size
    tied = anatomy.tied and not (embedding and head)
    bounds = split(layers, ranks, embedding or tied * head, head or tied * embedding)
    return Stage(rank, ranks, bounds[rank], bounds[rank + 1], anatomy, tied)


def split(sizes: Sequence[int], parts: int, first: int = 0, last: int = 0) -> list[int]:
    """Where each of so many parts of a row of sizes begins, none empty, and the row's end: the largest part as small as
    can be, and among these the most even, where `first` and `last` are added to the first and the last of them."""
    count = len(sizes)
    totals = [0, *accumulate(sizes)]

    def size(begin: int, end: int) -> int:
        return totals[end] - totals[begin] + first * (begin == 0) + last * (end == count)

    _, most = _divide(count, parts, size, max)
    bounds, _ = _divide(count, parts, lambda a, b: size(a, b) ** 2 if size(a, b) <= most else inf, add)
    return bounds


def _divide(
    count: int, parts: int, cost: Callable[[int, int], float], both: Callable[[float, float], float]
) -> tuple[list[int], float]:
    """The bounds of the cheapest parts of so many things, and what they cost together."""
    least = [inf, *(cost(0, end) for end in range(1, count + 1))]  # of the first things up to each end
    begins: list[list[int]] = []
    for part in range(1, parts):
        found = [
            min(((both(least[begin], cost(begin, end)), begin) for begin in range(part, end)), default=(inf, 0))
            for end in range(count + 1)
        ]
        least = [price for price, _ in found]
        begins.append([begin for _, begin in found])
    bounds = [count]
    for each in reversed(begins):
        bounds.append(each[bounds[-1]])
    return ([0, *reversed(bounds)], least[count])


def micro_batches(plan: StepPlan, most: int) -> list[StepPlan]:
    """The step's rows in up to so many parts, of about as many tokens each; what is done before rows are computed,
    copies and swaps, is in none of them."""
    rows = plan.rows
    parts = max(1, min(most, len(rows)))
    until = [*accumulate(row.count for row in rows)]
    bounds, goal = [0], until[-1] / parts
    for part in range(1, parts):
        nearest = min(range(len(rows)), key=lambda i: abs(until[i] - part * goal)) + 1
        bounds.append(min(max(nearest, bounds[-1] + 1), len(rows) - (parts - part)))
    found = []
    for begin, end in pairwise([*bounds, len(rows)]):
        own = {id(row) for row in rows[begin:end]}
        scored = tuple(each for each in plan.scored if id(each[0]) in own)
        found.append(replace(plan, rows=rows[begin:end], copies=(), swap_out=(), swap_in=(), scored=scored))
    return found


def kept(plan: StepPlan) -> tuple[int, int]:
    """Of how many tokens the logits are drawn from, and of how many more they are scored."""
    return sum(row.samples for row in plan.rows), sum(len(positions) for _, positions in plan.scored)
