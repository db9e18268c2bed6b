"""Copies between the host and a pretend GPU: when they read and write, and who waits for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.pretend_gpu import streams
from tests.pretend_gpu.tensor import CardTensor, like, pinned, put, wait


def sent(source: Tensor, index: int, non_blocking: bool) -> CardTensor:
    there = like(torch.empty_like(source, device="meta"), index)
    send(there, source, non_blocking)
    return there


def send(there: CardTensor, source: Tensor, non_blocking: bool) -> None:
    """A pinned source is read when the copy's turn comes; any other at once, which a capture cannot."""
    if source.numel() == 0:
        return
    index, target = there.memory.card.index, there.held
    if not (pinned.holds(source) and non_blocking):
        streams.refuse_in_capture()
        source = source.clone()
    put(index, lambda: target.copy_(source), "a copy to the GPU", [there])
    if not non_blocking:
        wait(index, "a copy to the GPU")


def bring(target: Tensor, source: CardTensor, non_blocking: bool) -> None:
    """To the host. What is not waited for is junk until its turn came."""
    if source.numel() == 0:
        return
    index, come = source.memory.card.index, source.held
    unasked = non_blocking and pinned.holds(target)
    if unasked:
        spoil(target)
    else:
        streams.refuse_in_capture()
    put(index, lambda: target.copy_(come), "a copy to the host", [source])
    if not unasked:
        wait(index, "a copy to the host")


def spoil(target: Tensor) -> None:
    with torch.inference_mode():
        if target.dtype.is_floating_point:
            target.fill_(torch.nan)
        elif target.dtype != torch.bool:
            target.fill_(torch.iinfo(target.dtype).max // 2)


def copied(args: Any, kwargs: dict[str, Any]) -> Tensor:
    """`Tensor.copy_` between any two places, of which a GPU is one."""
    target, source = args[0], args[1]
    non_blocking = bool(kwargs.get("non_blocking", args[2] if len(args) > 2 else False))
    if not isinstance(source, Tensor):
        target.fill_(source)
    elif not isinstance(target, CardTensor):
        bring(target, source, non_blocking)
    elif not isinstance(source, CardTensor):
        send(target, source, non_blocking)
    else:
        index, to, come = target.memory.card.index, target.held, source.held
        if source.memory.card.index != index:
            streams.current_stream(source.memory.card.index).drain()
        put(index, lambda: to.copy_(come), "a copy", [target, source])
    result: Tensor = target
    return result


def converted(source: CardTensor, device: torch.device, dtype: torch.dtype, non_blocking: bool) -> Tensor:
    """On the host, or on another GPU; what is not waited for goes to pinned memory."""
    if device.type == "cuda":
        streams.current_stream(source.memory.card.index).drain()
        return sent(source.held.to(dtype), int(streams.as_device(device).index), False)
    size, strides = tuple(source.size()), source.held.stride()
    dense = source.held.is_contiguous()
    with torch.inference_mode(source.is_inference()):
        plain = torch.empty_strided(size, strides, dtype=dtype) if dense else torch.empty(size, dtype=dtype)
    target = pinned.empty(size, dtype) if non_blocking else plain
    bring(target, source, non_blocking)
    return target
