"""Which part of a stored tensor is read, and what says so of each of a checkpoint's. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TensorPart:
    """Of a tensor's `axis` these ranges, one after another, one of them perhaps several times; `zero`: its shape, and
    nothing of what it holds."""

    axis: int = 0
    ranges: Ranges = ()
    zero: bool = False

    def shape_of(self, shape: Sequence[int]) -> list[int]:
        """That of the part of a tensor of this shape."""
        if self.zero:
            return list(shape)
        length = sum(end - begin for begin, end in self.ranges)
        return [*shape[: self.axis], length, *shape[self.axis + 1 :]]


class Cut(Protocol):
    """How a checkpoint is read otherwise than whole."""

    @property
    def words(self) -> str:
        """The setting that made it."""

    def part(self, name: str, shape: Sequence[int]) -> TensorPart | None:
        """Of the tensor of that name; None for all of it. Raises InvalidInput for what cannot be read so."""
