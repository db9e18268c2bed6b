"""Tensors of a pretend GPU: what they hold lies on the host, and is there once the work before is done."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from tests.pretend_gpu import streams
from tests.pretend_gpu.memory import Card, Memory, Pinned, as_tensor

CPU = torch.device("cpu")
cards: dict[int, Card] = {}
pinned = Pinned()
waits: list[str] = []  # what the host waited for, and where


class SyncDebug:
    """What torch does where the host waits: "default" (nothing), "warn" or "error"."""

    mode = "default"


class CardTensor(Tensor):
    """`held` is where its values lie on the host, once the work before is done; it owns `memory`."""

    held: Tensor
    memory: Memory

    @staticmethod
    def __new__(cls, held: Tensor, memory: Memory) -> CardTensor:
        device = torch.device("cuda", memory.card.index)
        layout = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        made = Tensor._make_wrapper_subclass(cls, held.size(), dtype=held.dtype, device=device, **layout)
        made.held, made.memory = held, memory
        return made

    def __init__(self, held: Tensor, memory: Memory) -> None: ...

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from tests.pretend_gpu.dispatch import dispatch

        return dispatch(func, args, kwargs or {})

    def data_ptr(self) -> int:
        return self.held.data_ptr()

    def untyped_storage(self) -> Any:
        return self.held.untyped_storage()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError(f"can't convert {self.device} device type tensor to numpy.")
        return self.cpu().numpy()

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def is_pinned(self, device: Any = None) -> bool:
        return False

    def __repr__(self, *_: Any, **__: Any) -> str:
        return f"CardTensor({tuple(self.shape)}, {self.dtype}, {self.device})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a tensor of a pretend GPU is not pickled")

    def __deepcopy__(self, memo: Any) -> Any:
        return memo.setdefault(id(self), self.clone())


class OnCard(TorchDispatchMode):
    """Sees what makes tensors of a pretend GPU; one a thread."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from tests.pretend_gpu.dispatch import dispatch

        return dispatch(func, args, kwargs or {})


def held(values: Any) -> Any:
    """The same with tensors of the host's in their place."""
    return tree_map_only(CardTensor, lambda each: each.held, values)


def like(made: Tensor, index: int) -> CardTensor:
    """Memory of a card for a tensor of this layout, which nobody has written."""
    size, strides = tuple(made.size()), tuple(made.stride())
    last = sum((n - 1) * s for n, s in zip(size, strides)) + 1 if made.numel() else 0
    graph = streams.capturing_graph()
    memory = cards[index].take(last * made.dtype.itemsize, None if graph is None else graph.shared, graph)
    return CardTensor(as_tensor(memory.held, size, strides, made.dtype), memory)


def put(index: int, do: Callable[[], object], what: str, used: list[CardTensor]) -> None:
    """Leaves work to the thread's current stream of a card."""
    graph = streams.capturing_graph()
    if graph is not None:
        for tensor in used:
            graph.uses(tensor.memory)

    def quietly() -> None:
        with torch.inference_mode(), torch._C.DisableTorchFunction():
            do()

    streams.current_stream(index).put(quietly, f"{what} ({where()})")


def wait(index: int, what: str) -> None:
    """The host waits for what was put into the thread's current stream."""
    streams.refuse_in_capture()
    if SyncDebug.mode == "error":
        raise RuntimeError(f"called a synchronizing CUDA operation: {what}")
    waits.append(f"{what} ({where()})")
    streams.current_stream(index).drain()


def where() -> str:
    """The nearest lines of the engine."""
    frame: Any = sys._getframe(1)
    found: list[str] = []
    while frame is not None and len(found) < 3:
        name = frame.f_code.co_filename
        if "/engine/" in name and "site-packages" not in name:
            found.append(f"{name[name.rindex('/engine/') + 1 :]}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(found)
