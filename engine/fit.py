"""Whether a model fits, before any weight is read: the bill of each quantization, from config and headers alone. No
torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.models.inspect import ModelInfo


@dataclass(frozen=True, slots=True)
class Room:
    """A device and its memory: `kind` is "cpu" or "cuda", `free` and `total` are bytes."""

    kind: str
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Fit:
    """The bill of one way to load a model, in bytes. `dtype` is that of all that is not quantized and of the KV cache.

    `pool` is what the engine would give its KV cache, `tokens` how many it holds. `available`: "" or why this
    quantization cannot be chosen here (library, checkpoint, device), with the remedy. `fits`: weights, activations
    and a
    smallest pool are within what is free.
    """

    quantization: str
    dtype: str
    weights: int
    kv_token: int
    activations: int
    pool: int
    tokens: int
    fits: bool
    available: str = ""
    note: str = ""

    def requests(self, length: int) -> int:
        """How many requests of `length` tokens the pool holds at once."""
        return self.tokens // length if length > 0 else 0


def fits(
    info: ModelInfo,
    room: Room,
    *,
    dtype: str = "auto",
    quantizations: Sequence[str] | None = None,
    max_running: int = 64,
    token_budget: int = 2048,
) -> list[Fit]:
    """The bill of each quantization (all by default), in the order of `SCHEMES`, those that cannot be chosen
    included."""
    raise NotImplementedError


def simple_kv(info: ModelInfo, item: int, length: int, batch: int) -> int:
    """KV bytes by the rule of thumb 2 · bytes · layers · d_model · length · batch, which takes every head to have keys
    and values of its own: grouped-query attention needs kv_heads / heads of it."""
    return 2 * item * info.layers * info.hidden * length * batch
