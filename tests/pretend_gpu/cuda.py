"""torch.cuda over pretend GPUs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._device import _device_constructors

from tests.pretend_gpu import graphs, streams, tensor
from tests.pretend_gpu.copies import sent
from tests.pretend_gpu.guard import install_guard
from tests.pretend_gpu.memory import Card, as_tensor
from tests.pretend_gpu.tensor import CardTensor, OnCard, SyncDebug

NAME = "Pretend GPU"


def properties(index: Any = None) -> SimpleNamespace:
    card = tensor.cards[streams.as_device(index).index]
    return SimpleNamespace(
        name=NAME, major=9, minor=0, total_memory=card.total, multi_processor_count=4, L2_cache_size=1 << 20,
        uuid=f"00000000-0000-0000-0000-00000000000{card.index}", is_integrated=0, warp_size=32,
        shared_memory_per_block_optin=232448, gcnArchName="", max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
    )  # fmt: skip


def card(device: Any = None) -> Card:
    return tensor.cards[streams.as_device(device).index]


def mem_get_info(device: Any = None) -> tuple[int, int]:
    found = card(device)
    return int(found.total - found.reserved), found.total


def as_tensor_there(data: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """torch.as_tensor, of an address too: such a tensor owns nothing."""
    interface = getattr(data, "__cuda_array_interface__", None)
    if interface is None or isinstance(data, Tensor):
        return _own["as_tensor"](data, dtype=dtype, device=device)
    found = tensor.cards[streams.as_device(device).index]
    address, size = interface["data"][0], tuple(interface["shape"])
    dtype = {"<i1": torch.int8, "<i2": torch.int16, "<i4": torch.int32, "<i8": torch.int64}[interface["typestr"]]
    strides = tuple(step // dtype.itemsize for step in interface["strides"])
    for pool in list(found._pools):
        for _, held in pool.pieces:
            begin = held.ctypes.data
            if begin <= address < begin + len(held):
                nobody = SimpleNamespace(card=found, address=begin, taken_by=None, pool=pool, held=held)
                return CardTensor(as_tensor(held[address - begin :], size, strides, dtype), nobody)
    raise RuntimeError("CUDA error: no memory lies at that address")


_own: dict[str, Any] = {}


def tensor_there(data: Any, *, device: Any = None, pin_memory: bool = False, **kwargs: Any) -> Tensor:
    """torch.tensor, whose values are sent from memory that is not pinned."""
    if device is not None and torch.device(device).type == "cuda":
        return sent(_own["tensor"](data, **kwargs), int(streams.as_device(device).index), False)
    made = _own["tensor"](data, device=device, **kwargs)
    return tensor.pinned.empty(tuple(made.size()), made.dtype).copy_(made) if pin_memory else made


@contextmanager
def stream_context(stream: Any) -> Iterator[None]:
    if stream is None:
        yield
        return
    before, device = streams.current_stream(stream.device), streams.current_device()
    streams.set_stream(stream)
    try:
        yield
    finally:
        streams.set_stream(before)
        streams.exchange_device(device)


@contextmanager
def pretend_gpus(total: int = 2 << 30, count: int = 1, pace: Any = "late") -> Iterator[None]:
    """Within, torch says that it has so many GPUs of `total` bytes each."""
    install_guard()
    tensor.cards.clear()
    tensor.cards.update({index: Card(index, total) for index in range(count)})
    streams.pace.pace = pace
    streams._defaults.clear()
    streams.all_streams.clear()
    tensor.waits.clear()
    _device_constructors()  # is kept from its first call, and must not name what stands for them here
    with pytest.MonkeyPatch.context() as patch:
        _own.update(as_tensor=torch.as_tensor, tensor=torch.tensor)
        launches(patch)
        for name, value in {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "_lazy_init": lambda: None,
            "init": lambda: None,
            "device_count": lambda: count,
            "current_device": streams.current_device,
            "set_device": lambda device: streams.exchange_device(streams.as_device(device).index),
            "_exchange_device": streams.exchange_device,
            "_maybe_exchange_device": streams.exchange_device,
            "get_device_properties": properties,
            "get_device_capability": lambda device=None: (9, 0),
            "get_device_name": lambda device=None: NAME,
            "is_bf16_supported": lambda including_emulation=True: True,
            "mem_get_info": mem_get_info,
            "memory_allocated": lambda device=None: card(device).allocated,
            "memory_reserved": lambda device=None: card(device).reserved,
            "max_memory_allocated": lambda device=None: card(device).most_allocated,
            "max_memory_reserved": lambda device=None: card(device).most_reserved,
            "reset_peak_memory_stats": lambda device=None: card(device).forget_most(),
            "set_per_process_memory_fraction": lambda part, device=None: setattr(card(device), "fraction", part),
            "empty_cache": lambda: [each.empty_cache() for each in tensor.cards.values()] and None,
            "synchronize": streams.synchronize,
            "Stream": streams.OtherStream,
            "Event": streams.Event,
            "stream": stream_context,
            "current_stream": streams.current_stream,
            "default_stream": streams.default_stream,
            "set_stream": streams.set_stream,
            "CUDAGraph": graphs.Graph,
            "graph_pool_handle": graphs.graph_pool_handle,
            "is_current_stream_capturing": lambda: streams.capturing_graph() is not None,
            "get_sync_debug_mode": lambda: {"default": 0, "warn": 1, "error": 2}[SyncDebug.mode],
            "set_sync_debug_mode": set_sync_debug_mode,
        }.items():
            patch.setattr(torch.cuda, name, value)
        patch.setattr(torch._C, "_host_emptyCache", lambda: None, raising=False)
        patch.setattr(torch._C, "_cuda_endAllocateToPool", graphs.end_allocate_to_pool, raising=False)
        # What a module is moved to is no tensor of the same kind, which torch would put into the parameter there is.
        patch.setattr(torch.__future__, "_overwrite_module_params_on_conversion", True)
        patch.setattr(torch, "as_tensor", as_tensor_there)
        patch.setattr(torch, "tensor", tensor_there)
        own = threading.Thread.run

        def run(self: threading.Thread) -> None:
            with OnCard():
                own(self)

        patch.setattr(threading.Thread, "run", run)
        patch.setattr("engine.models.plain_weights.PLAIN", {torch.nn.Parameter, CardTensor})
        with OnCard():
            yield


def set_sync_debug_mode(mode: Any) -> None:
    SyncDebug.mode = {0: "default", 1: "warn", 2: "error"}.get(mode, mode)


def launches(patch: pytest.MonkeyPatch) -> None:
    """Kernels that Triton interprets wait in the stream too."""
    from triton.runtime import interpreter

    own = interpreter.GridExecutor.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        given = [each for each in [*args, *kwargs.values()] if isinstance(each, Tensor)]
        there = [each for each in given if isinstance(each, CardTensor)]
        if not there:
            own(self, *args, **kwargs)
            return
        if len(there) < len(given):
            raise ValueError("Pointer argument cannot be accessed from Triton (cpu tensor?)")
        index = streams.current_device()
        assert {each.memory.card.index for each in there} == {index}, "a kernel is launched on another GPU"
        inner = tensor.held(args), tensor.held(kwargs)
        tensor.put(index, lambda: own(self, *inner[0], **inner[1]), self.fn.__name__, there)

    patch.setattr(interpreter.GridExecutor, "__call__", call)
