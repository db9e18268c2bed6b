"""The tensors of a launch, as far as its kernel may touch them: their own elements, none in the gaps of a view."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Addresses = NDArray[np.uint64]
Places = NDArray[np.int64]  # of granules in a region


class Region:
    """Memory of arguments that overlap, `[start, stop)`, by granules: the size of their smallest elements.

    Of each granule the last store, the last load, and the last load by another program than that one's are known by
    their numbers, 0 where there is none: whoever is not the only one to load is among the two. Loads are kept aside
    until something is stored: of most regions there is nothing more to know.
    """

    __slots__ = ("granule", "kept", "loaded", "loaded_by_another", "start", "stop", "stored")

    def __init__(self, start: int, stop: int, granule: int) -> None:
        self.start, self.stop, self.granule = start, stop, granule
        self.stored: NDArray[np.int32] | None = None
        self.loaded: NDArray[np.int32] | None = None
        self.loaded_by_another: NDArray[np.int32] | None = None
        self.kept: list[tuple[Argument, Addresses, Any, int, int]] = []

    def places(self, argument: Argument, addresses: Addresses) -> Places:
        """The granules of an argument's elements, one dimension."""
        at = (addresses.reshape(-1) - np.uint64(self.start)).astype(np.int64)
        if self.granule > 1:
            at //= self.granule
        wide = argument.itemsize // self.granule
        return at if wide == 1 else (at[:, None] + np.arange(wide)).reshape(-1)

    def blank(self) -> NDArray[np.int32]:
        return np.zeros((self.stop - self.start) // self.granule, np.int32)


class Argument:
    """A tensor's elements: those of `[start, stop)` that are `own`, all where it is None."""

    __slots__ = ("dtype", "itemsize", "last", "name", "own", "region", "shape", "start", "stop", "strides")

    def __init__(self, name: str, tensor: Tensor) -> None:
        self.name, self.dtype, self.itemsize = name, tensor.dtype, tensor.itemsize
        self.shape, self.strides = tuple(tensor.shape), tensor.stride()
        self.start = tensor.data_ptr()
        count, span = 1, 1
        for size, stride in zip(self.shape, self.strides):
            count *= size
            span += (size - 1) * stride
        span = span if count else 0
        self.stop = self.start + span * self.itemsize
        self.last = self.stop - self.itemsize
        self.own = None if count >= span else _own(self.shape, self.strides, span)
        self.region: Region

    @property
    def last_entry(self) -> int:
        """Where the last entry of its first dimension begins."""
        return self.start + (self.shape[0] - 1) * self.strides[0] * self.itemsize

    def element(self, address: int) -> str:
        """Where an address is in this tensor, as one would write it."""
        offset, rest = divmod(address - self.start, self.itemsize)
        told = f"{self.name}, {str(self.dtype).removeprefix('torch.')} {list(self.shape)}"
        if self.strides and list(self.strides) != _dense(self.shape):
            told += f" with strides {list(self.strides)}"
        if not self.start <= address < self.stop:
            by = f"{offset - (self.last - self.start) // self.itemsize} elements past its last"
            return f"{told}: {by if offset >= 0 else f'{-offset} elements before its first'}"
        index = [0] * len(self.shape)
        for dim in sorted(range(len(self.shape)), key=lambda dim: -self.strides[dim]):
            if self.strides[dim] and self.shape[dim] > 1:
                index[dim], offset = divmod(offset, self.strides[dim])
        if offset or rest or any(at >= size for at, size in zip(index, self.shape)):
            return f"{told}: element {(address - self.start) // self.itemsize} from its first, in a gap of the view"
        return f"{told}: element {index}"


def _dense(shape: tuple[int, ...]) -> list[int]:
    strides, step = [0] * len(shape), 1
    for dim in reversed(range(len(shape))):
        strides[dim], step = step, step * max(1, shape[dim])
    return strides


@lru_cache(128)
def _own(shape: tuple[int, ...], strides: tuple[int, ...], span: int) -> NDArray[np.bool_]:
    own = np.zeros(span, bool)
    np.lib.stride_tricks.as_strided(own, shape, strides)[...] = True
    return own


def in_regions(arguments: Iterable[Argument]) -> list[Argument]:
    """The arguments in the order of their addresses, each with the region it shares with those that it overlaps."""
    ordered = sorted(arguments, key=lambda argument: argument.start)
    region = Region(0, 0, 1)
    for argument in ordered:
        if argument.start >= region.stop:
            region = Region(argument.start, argument.stop, argument.itemsize)
        region.stop = max(region.stop, argument.stop)
        while region.granule > argument.itemsize or (argument.start - region.start) % region.granule:
            region.granule //= 2
        argument.region = region
    return ordered
