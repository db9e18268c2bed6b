"""Expert parallelism: a rank holds some of a mixture's experts whole, not a part of each, and computes what these make
of all tokens that are sent to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from engine.config.specs import InvalidInput
from engine.models.routing import ALL, COUNTS_ITSELF, FIRST, first_expert, holds_experts, in_order
from engine.parallel.split import Split


def hold_some(module: nn.Module, split: Split) -> None:
    """Narrows what holds all of a layer's experts to those of a rank. Raises InvalidInput where nothing does."""
    begin, end = split.own_experts
    held: list[Any] = [part for path, part in module.named_modules() if holds_experts(path, part)]
    if not held or any(part.num_experts != split.experts for part in held):
        raise InvalidInput(
            f"{split.words}: model type {split.kind!r} does not hold all of a layer's experts together, so ranks "
            "cannot have some of them; leave expert_parallel out"
        )
    for part in held:
        for name, weight in part.named_parameters(recurse=False):
            if weight.shape[0] == split.experts:
                fewer = torch.empty(end - begin, *weight.shape[1:], dtype=weight.dtype, device=weight.device)
                setattr(part, name, nn.Parameter(fewer, requires_grad=False))
        setattr(part, FIRST, begin)
        setattr(part, ALL, split.experts)
        part.num_experts = end - begin
        ordered = in_order(type(part).forward)
        part.register_forward_pre_hook(partial(_told_here, ordered), with_kwargs=True)


def _told_here(
    ordered: Callable[..., tuple[Any, ...]], part: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Tells transformers' own code of the experts that are here: of tokens that are sent to others it computes one that
    is, by no weight. Kernels of ours know which they are, and so does what multiplies codes, which asks such a module
    for one expert at a time."""
    if getattr(part, COUNTS_ITSELF, False) or not hasattr(part, FIRST):
        return None
    x, ids, weights = ordered(args, kwargs)
    begin = first_expert(part)
    end = begin + part.num_experts
    here: Tensor = (ids >= begin) & (ids < end)
    return (x, (ids - begin).clamp(0, end - begin - 1), weights * here), {}
