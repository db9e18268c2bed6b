"""Which experts of a mixture the tokens are sent to: counted where it is decided, as they are computed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

TALLY = "_tally"  # an attribute of experts: their row of `Routing.counts`
COUNTED_BY = "_routing"  # another: who counts
COUNTS_ITSELF = "counts_itself"  # of experts that count by themselves
FIRST, ALL = "first_expert", "all_experts"  # of those of which only some are held: the first, and how many there are
SENT = ("top_k_index", "router_indices")  # what the parameter is called that says where each token goes


class Routing:
    """`counts` int32 `[layers with experts, experts]`: how many tokens each layer sent to each expert since `begin`.

    `layers` are those layers' numbers. On a GPU a captured step counts as it is replayed; the tokens that fill it up
    are left out. A token is counted once for every expert that it is sent to.
    """

    def __init__(self, parts: Sequence[tuple[int, nn.Module]], experts: int, device: torch.device) -> None:
        self.layers = tuple(layer for layer, _ in parts)
        self.counts = torch.zeros(len(parts), experts, dtype=torch.int32, device=device)
        self._real = torch.zeros(0, 1, dtype=torch.int32, device=device)  # [tokens, 1]: 1 for one that is counted
        self._hooks: list[RemovableHandle] = []
        self._parts = [part for _, part in parts]
        for row, (_, part) in zip(self.counts, parts, strict=True):
            setattr(part, TALLY, row)
            setattr(part, COUNTED_BY, self)
            hook = part.register_forward_pre_hook(partial(self._count, row), with_kwargs=True, prepend=True)
            self._hooks.append(hook)

    @classmethod
    def of(cls, module: nn.Module, device: torch.device) -> Routing | None:
        """Of a model whose layers have their experts as parameters of one module; None where there are no such layers,
        or not all have as many."""
        parts = [(_layer(path), part) for path, part in module.named_modules() if holds_experts(path, part)]
        experts = {all_experts(part) for _, part in parts}
        return cls(parts, experts.pop(), device) if len(experts) == 1 else None

    def room(self, tokens: int) -> None:
        """Of a step that is captured: it may have so many tokens, some of which nobody asked for."""
        if tokens > len(self._real):
            self._real = torch.ones(tokens, 1, dtype=torch.int32, device=self.counts.device)

    def stop(self) -> None:
        """Counts no more."""
        for hook, part in zip(self._hooks, self._parts, strict=True):
            hook.remove()
            delattr(part, COUNTED_BY)

    def begin(self, tokens: int | None = None) -> None:
        """Forgets what was counted. Of what is computed next the first `tokens` are counted; None: all."""
        self.counts.zero_()
        if len(self._real):
            self._real.fill_(tokens is None)
            self._real[: tokens or 0] = 1

    def real(self, tokens: int) -> Tensor | None:
        """int32 `[tokens, 1]`, 1 for those that are counted; None: all are."""
        return self._real[:tokens] if tokens <= len(self._real) else None

    def _count(self, row: Tensor, part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if getattr(part, COUNTS_ITSELF, False):
            return
        sent = next((kwargs[name] for name in SENT if name in kwargs), args[1] if len(args) > 1 else None)
        if not isinstance(sent, Tensor) or sent.dtype not in (torch.int64, torch.int32):
            return
        tokens, each = sent.shape
        real = self.real(tokens)
        real = self._real.new_ones(tokens, 1) if real is None else real
        row.index_add_(0, sent.flatten(), real.expand(tokens, each).flatten())


def tally_of(part: nn.Module, tokens: int) -> tuple[Tensor | None, Tensor | None]:
    """Where experts that count by themselves do, and which of so many tokens: as `Routing.counts` and `real`."""
    routing = getattr(part, COUNTED_BY, None)
    return (None, None) if routing is None else (getattr(part, TALLY), routing.real(tokens))


def first_expert(part: nn.Module) -> int:
    """The number of the first of the experts that a module holds."""
    return int(getattr(part, FIRST, 0))


def all_experts(part: Any) -> int:
    """How many a layer has, of which a module may hold some."""
    return int(getattr(part, ALL, part.num_experts))


def in_order(forward: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]:
    """What experts are given, tokens, where each goes and by which weights, in this order, however it is passed to
    their `forward`."""
    _, *names = list(inspect.signature(forward).parameters)[:4]

    def ordered(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        given = dict(zip(names, args)) | kwargs
        return tuple(given[name] for name in names)

    return ordered


def holds_experts(path: str, part: nn.Module) -> bool:
    """Whether a module holds all of a layer's experts, and is told where each token goes."""
    return path.rpartition(".")[2] == "experts" and isinstance(getattr(part, "num_experts", None), int)


def _layer(path: str) -> int:
    return next(int(name) for name in path.split(".") if name.isdigit())
