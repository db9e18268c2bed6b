"""A part of a checkpoint, a rank's or one whose heads are repeated, read straight from its safetensors: nothing else of
it comes to memory."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from types import EllipsisType
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedConfig

from engine.checkpoints.info import EXPERTS
from engine.checkpoints.kv_heads import LATENT
from engine.checkpoints.tensor_part import Cut, TensorPart
from engine.config.specs import InvalidInput
from engine.parallel.split import INTERLEAVED, Split, check_split, narrowed_widths


class Shard:
    """A part of a stored tensor, as transformers' loader takes slices of files: `[...]` reads it."""

    def __init__(self, stored: Any, part: TensorPart | None, before: Callable[[], None]) -> None:
        self._stored, self._part, self._before = stored, part, before

    def get_shape(self) -> list[int]:
        shape = list(self._stored.get_shape())
        return shape if self._part is None else self._part.shape_of(shape)

    def get_dtype(self) -> str:
        return str(self._stored.get_dtype())

    def __getitem__(self, _: EllipsisType) -> Tensor:
        self._before()
        part = self._part
        if part is None:
            return self._stored[...]
        if part.zero:
            return torch.zeros_like(self._stored[...])
        before = (slice(None),) * part.axis
        pieces = [self._stored[(*before, slice(begin, end))] for begin, end in part.ranges]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, part.axis)


def read_shards(files: list[Path], cut: Cut, before: Callable[[str], None]) -> dict[str, Shard]:
    """By the name that its module has for each; `before` hears which one is read and may raise. Raises InvalidInput for
    what cannot be cut so."""
    return {
        held: Shard(stored, cut.part(name, stored.get_shape()), lambda name=name: before(name))  # type: ignore[misc]
        for name, stored in stored_tensors(files)
        if (held := cut.held_as(name) if isinstance(cut, Split) else name) is not None
    }


def stored_tensors(files: list[Path]) -> Iterator[tuple[str, Any]]:
    """All tensors of these, by name, none of which is read."""
    for path in files:
        file = safe_open(path, framework="pt", device="cpu")
        for name in file.keys():  # noqa: SIM118, it is no mapping
            yield name, file.get_slice(name)


def narrowed(
    config: PreTrainedConfig, rank: int, ranks: int, whole_experts: bool = False
) -> tuple[PreTrainedConfig, Split]:
    """The config of a rank's module, and how the model is split; `whole_experts`: a mixture's are shared out among the
    ranks. Raises InvalidInput for a model that transformers has no plan of tensor parallelism for, where its heads,
    widths or whole experts do not divide, and where there are no experts to share out."""
    narrow = copy.deepcopy(config)
    text = narrow.get_text_config()
    if not getattr(text, "base_model_tp_plan", None) and text.model_type not in INTERLEAVED:
        raise InvalidInput(f"tensor_parallel={ranks}: transformers cannot split model type {text.model_type!r}; use 1")
    if getattr(text, LATENT, None):
        raise InvalidInput(
            f"tensor_parallel={ranks}: all heads of model type {text.model_type!r} read one latent, which is not "
            "split; use pipeline_parallel, or 1"
        )
    heads = int(text.num_attention_heads)
    kv_heads = int(getattr(text, "num_key_value_heads", None) or heads)
    experts = next((int(n) for name in EXPERTS if (n := getattr(text, name, None))), 0) if whole_experts else 0
    if whole_experts and not experts:
        raise InvalidInput(
            f"expert_parallel=True: model type {text.model_type!r} has no experts to share out; leave it out"
        )
    check_split(text.to_dict(), ranks, heads, kv_heads, experts)
    head_dim = int(getattr(text, "head_dim", None) or text.hidden_size // heads)
    text.head_dim, text.num_attention_heads = head_dim, heads // ranks
    if getattr(text, "num_key_value_heads", None):
        text.num_key_value_heads = kv_heads // ranks
    for name, width in narrowed_widths(text.to_dict(), experts).items():
        setattr(text, name, width // ranks)
    return narrow, Split(rank, ranks, heads, kv_heads, head_dim, text.model_type, experts)
