"""Layers that keep a state of a sequence in the place of its keys and values: convolutions over the last tokens, and
recurrences (Mamba's, "linear attention", the gated delta rule; https://arxiv.org/abs/2412.06464), as hybrids of today
have them beside a few layers that attend. A state is as large for the first token as for the last.

transformers' layers stay as they are: each is handed rows of equal length, and in the place of transformers' cache one
that holds these rows' states.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from types import FunctionType
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from engine.kernels.recurrence import Sequences
from engine.models.in_place import in_place

CONV, RECURRENT = "conv", "recurrent"
UPDATES = {"update_conv_state", "update_recurrent_state"}  # of transformers' cache: who calls one keeps a state
CACHES = ("cache_params", "past_key_values")  # what a layer's forward calls its cache
MASK = "attention_mask"
KEEPS = "_keeps_state"  # an attribute of such layers
PROMPT = 5  # tokens of a proof
TOLERANCE = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}  # of the largest

Name = tuple[str, int]  # which of a layer's states: its kind, and the number that transformers gives it


@dataclass(frozen=True, slots=True)
class StateShape:
    """Of one state of one sequence."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


class RowStates:
    """What a layer is handed as its cache: the states of the rows that it is called with, each `[rows, ...]`, which it
    changes in place. `begin`: the rows have seen no token yet, and have none; what is there then is written only."""

    def __init__(self, kept: dict[Name, Tensor], begin: bool) -> None:
        self.kept, self.begin = kept, begin

    # What transformers' layers ask of a cache, by its names.

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return None if self.begin else self.kept[CONV, state_idx]

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return None if self.begin else self.kept[RECURRENT, state_idx]

    def has_previous_state(self, layer_idx: int | None = None, state_idx: int | None = None) -> bool:
        return not self.begin

    def is_recording_past(self, layer_idx: int) -> bool:
        return False

    def update_conv_state(
        self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, conv_kernel_size: int | None = None
    ) -> Tensor:
        kept = self.kept[CONV, state_idx]
        whole = conv_states if self.begin else torch.cat([kept, conv_states.to(kept.dtype)], dim=-1)
        lacking = max(0, kept.shape[-1] - whole.shape[-1])
        kept[..., :lacking] = 0
        kept[..., lacking:] = whole[..., -kept.shape[-1] :]
        return whole

    def update_recurrent_state(self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0) -> Tensor:
        return self.kept[RECURRENT, state_idx].copy_(recurrent_states)

    def update(self, key: Tensor, value: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Keys and values are kept by our attention."""
        return key, value


Kept = dict[Name, Tensor]
Layer = Callable[[Tensor, RowStates | None, Tensor | None], Tensor]  # rows, their states, where they have tokens


class StateRows(Protocol):
    """Whose states a step's tokens belong to."""

    def through(self, number: int, hidden: Tensor, layer: Layer) -> Tensor:
        """What the layer makes of the step's tokens `[sequences, tokens, hidden]`; `number` is its place among those
        that keep states."""

    def in_place(self, number: int) -> tuple[Kept, Sequences] | None:
        """All that is kept of that layer, by slot, and whose each token is: for kernels that change it there; None
        where there are none."""


class States:
    """What layers of one model keep of a sequence: `shapes` by layer, whose numbers are `layers`, `bytes` in all."""

    def __init__(self, layers: list[int], shapes: list[dict[Name, StateShape]]) -> None:
        self.layers, self.shapes = layers, shapes
        self._rows: StateRows | None = None
        self._tried: dict[Hashable, tuple[bool, bool]] = {}  # by what layers share: see `_goes_on` and `_proved`

    @property
    def bytes(self) -> int:
        return sum(each.bytes for layer in self.shapes for each in layer.values())

    @contextmanager
    def of(self, rows: StateRows | None) -> Iterator[None]:
        """What is computed within belongs to these; without any, sequences begin with what they are handed and nothing
        is kept."""
        self._rows = rows
        try:
            yield
        finally:
            self._rows = None

    def install(self, number: int, layer: nn.Module, like: Tensor) -> None:
        """In the place of the layer's forward one that asks whose its rows are. `like`: two of its tokens, `[1, 2,
        width]`. Raises TypeError for a layer that is not called as others are."""
        known: Any = layer
        forward = known.forward
        signature = inspect.signature(forward)
        cache = next((name for name in CACHES if name in signature.parameters), "")
        if not cache or MASK not in signature.parameters:
            raise TypeError(f"{type(layer).__name__} takes no cache and mask")
        kind = type(layer), tuple(self.shapes[number].items())
        if kind not in self._tried:
            self._tried[kind] = self._goes_on(number, layer, cache, like), self._proved(number, layer, cache, like)
        goes_on, proved = self._tried[kind]
        rule = in_place(layer) if proved else None

        def stepped(*args: Any, **kwargs: Any) -> Tensor:
            rows = self._rows
            if rows is None:
                return forward(*args, **kwargs)
            if rule is not None and (there := rows.in_place(number)) is not None:
                hidden = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
                return rule(layer, hidden, *there)
            given = signature.bind(*args, **kwargs).arguments if args else kwargs
            rest = {**given, **given.get("kwargs", {})}
            for name in (cache, MASK, "kwargs"):
                rest.pop(name, None)
            hidden = rest.pop("hidden_states")

            def through(x: Tensor, kept: RowStates | None, mask: Tensor | None) -> Tensor:
                if goes_on or kept is None or kept.begin or x.shape[1] == 1:
                    return forward(x, **rest, **{cache: kept, MASK: mask})
                each = [forward(token, **rest, **{cache: kept, MASK: None}) for token in x.split(1, dim=1)]
                return torch.cat(each, dim=1)

            return rows.through(number, hidden, through)

        known.forward = stepped
        setattr(known, KEEPS, True)

    def _proved(self, number: int, layer: Any, cache: str, like: Tensor) -> bool:
        """Whether there are kernels of ours that compute what it does: a prompt, and a token after it."""
        rule = in_place(layer)
        if rule is None:
            return False
        noise = torch.randn(1, PROMPT + 1, like.shape[-1], generator=torch.Generator().manual_seed(0)).to(like)
        theirs, ours = (allocated(self.shapes[number], 1, like.device) for _ in range(2))
        for part, begin in ((slice(PROMPT), True), (slice(PROMPT, PROMPT + 1), False)):
            x, positions = noise[:, part], torch.arange(PROMPT + 1, device=like.device)[part]
            whose = Sequences(torch.zeros_like(positions, dtype=torch.int32), positions)
            if begin and not rule.prompts:
                for kept in (ours, theirs):
                    layer.forward(x, **{cache: RowStates(kept, begin), MASK: None})
                continue
            made = rule(layer, x, ours, whose).float()
            expected = layer.forward(x, **{cache: RowStates(theirs, begin), MASK: None}).float()
            if not (made - expected).abs().max() <= TOLERANCE[like.dtype] * expected.abs().max():
                return False
        return True

    def _goes_on(self, number: int, layer: Any, cache: str, x: Tensor) -> bool:
        """Whether several tokens of a sequence that has states already are computed from these: some of transformers'
        layers begin anew then, and can go on with one token alone."""

        def made(changed: Name | None) -> Tensor:
            kept = {
                name: torch.full((1, *each.shape), float(name == changed), dtype=each.dtype, device=x.device)
                for name, each in self.shapes[number].items()
            }
            return layer.forward(x, **{cache: RowStates(kept, begin=False), MASK: None})

        plain = made(None)
        return not any(torch.equal(made(name), plain) for name in self.shapes[number])


def keep_states(module: PreTrainedModel) -> States | None:
    """Lets every layer of a model that keeps a state keep it where a step says; None where there are no such layers.
    What each keeps is read off transformers' own cache, after two tokens."""
    layers: list[Any] = [part for part in module.modules() if _keeps(type(part))]
    if not layers:
        return None
    cache = DynamicCache(config=module.config)
    with torch.inference_mode():
        ids = torch.zeros(1, 2, dtype=torch.long, device=module.device)
        module(input_ids=ids, past_key_values=cache, use_cache=True)
        shapes = [_shapes(cache.layers[layer.layer_idx]) for layer in layers]
        if not all(shapes):
            raise TypeError("a layer that keeps a state did not")
        states = States([layer.layer_idx for layer in layers], shapes)
        like = module.get_input_embeddings()(ids)
        for number, layer in enumerate(layers):
            states.install(number, layer, like)
    return states


def allocated(shapes: Mapping[Name, StateShape], slots: int, device: torch.device) -> Kept:
    """Of so many slots, all zeros; convolutions' with the channels side by side."""
    kept: Kept = {}
    for name, each in shapes.items():
        turned = name[0] == CONV and len(each.shape) == 2
        shape = each.shape[::-1] if turned else each.shape
        zeros = torch.zeros(slots, *shape, dtype=each.dtype, device=device)
        kept[name] = zeros.mT if turned else zeros
    return kept


def _shapes(layer: Any) -> dict[Name, StateShape]:
    """What transformers' cache holds of a layer."""
    both = {CONV: layer.conv_states, RECURRENT: layer.recurrent_states}
    held = {(kind, i): state for kind, states in both.items() for i, state in states.items() if state is not None}
    return {name: StateShape(tuple(state.shape[1:]), state.dtype) for name, state in held.items()}


def _keeps(kind: type) -> bool:
    """Whether modules of this class hand a state on to a cache."""
    methods = [inspect.unwrap(each) for each in vars(kind).values() if inspect.isfunction(each)]
    return any(UPDATES & {*each.__code__.co_names} for each in methods if isinstance(each, FunctionType))
