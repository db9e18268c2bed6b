"""Bytes of tensors, counted as they are made and let go."""

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of tensors that operations under it make: `live` now, and at the `peak`."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        held = {storage.data_ptr() for storage in _storages((args, kwargs))}
        out = func(*args, **(kwargs or {}))
        for storage in _storages(out):
            self._count(storage, held)
        return out

    def _count(self, storage: torch.UntypedStorage, held: set[int]) -> None:
        place, size = storage.data_ptr(), storage.nbytes()
        if not size or place in held or place in self._known:
            return
        self._known.add(place)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, place, size)

    def _forget(self, place: int, size: int) -> None:
        self._known.discard(place)
        self.live -= size


def _storages(values: Any) -> Iterator[torch.UntypedStorage]:
    """Of all tensors but packed weights, which have none."""
    for value in tree_iter(values):
        if isinstance(value, Tensor) and value.layout is torch.strided:
            yield value.untyped_storage()
