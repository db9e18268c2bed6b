"""A model with more key and value heads than its checkpoint has, each repeated: what it would hold, and read, without
grouped-query attention. No torch.

Query head i of h reads key and value head i // (h / g) of g (Ainslie et al. 2023, https://arxiv.org/abs/2305.13245).
With each of these repeated n times, head i reads one of n * g whose numbers are those that it read before: the answers
are the same, and K and V take n times the bytes. With n = h / g every query head has its own: multi-head attention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.checkpoints.tensor_part import Ranges, TensorPart
from engine.config.checks import InvalidInput, check

ALL, OWN = "all", "auto"  # what `ModelSpec.kv_heads` says besides numbers
LATENT = "kv_lora_rank"  # of a config: how many numbers all heads' keys and values are made of
MOST = 1024  # times that a head is offered to be held
Headers = Mapping[str, tuple[tuple[int, ...], str]]


@dataclass(frozen=True, slots=True)
class RepeatedHeads:
    """`own` key and value heads of a checkpoint, of which each is held `held / own` times, beside `heads` of queries of
    `head_dim` numbers."""

    heads: int
    own: int
    held: int
    head_dim: int

    @property
    def words(self) -> str:
        return f"kv_heads={self.held}"

    def part(self, name: str, shape: Sequence[int]) -> TensorPart | None:
        """Of the checkpoint's tensor of that name, which may be longer than it; None for all of it, once."""
        module, _, leaf = name.rpartition(".")
        owner = module.rpartition(".")[2]
        if leaf not in ("weight", "bias") or not shape:
            return None
        if owner in ("k_proj", "v_proj"):
            return TensorPart(0, self._repeated(0, shape[0]))
        if owner == "qkv_proj":
            q, kv = self.heads * self.head_dim, self.own * self.head_dim
            return TensorPart(0, ((0, q), *self._repeated(q, q + kv), *self._repeated(q + kv, q + 2 * kv)))
        if owner == "k_norm" and self.own > 1 and shape[0] in (self.own, self.own * self.head_dim):
            return TensorPart(0, self._repeated(0, shape[0]))  # whose mean over all heads stays what it was
        return None

    def _repeated(self, begin: int, end: int) -> Ranges:
        width, times = (end - begin) // self.own, self.held // self.own
        return tuple((begin + i * width, begin + (i + 1) * width) for i in range(self.own) for _ in range(times))

    def headers(self, headers: Headers) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and dtype of each tensor as it is held."""
        parts = {name: self.part(name, shape) for name, (shape, _) in headers.items() if shape}
        return {
            name: (shape if (part := parts.get(name)) is None else tuple(part.shape_of(shape)), dtype)
            for name, (shape, dtype) in headers.items()
        }

    def config(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The dictionary of a config.json with as many heads as are held."""
        told = {"num_key_value_heads": self.held}
        nested = config.get("text_config")
        return {**config, **({"text_config": {**nested, **told}} if isinstance(nested, Mapping) else told)}


def repeated_heads(config: Mapping[str, Any], kv_heads: int | str) -> RepeatedHeads | None:
    """What `ModelSpec.kv_heads` means to the model of a config.json; None where it holds what its checkpoint has.
    Raises InvalidInput where its heads cannot be repeated, or not so many times."""
    if kv_heads == OWN:
        return None
    nested = config.get("text_config")
    text: dict[str, Any] = {**config, **(nested if isinstance(nested, Mapping) else {})}
    shape: list[Any] = [text.get(name) for name in ("num_attention_heads", "num_key_value_heads", "hidden_size")]
    heads, own, hidden = shape
    if kv_heads == ALL and text.get(LATENT):
        return None  # those that are made of a latent are kept as they are
    if kv_heads == ALL and (own == heads or not own) and not text.get("multi_query"):
        return None  # each has its own already
    kind, use = config["model_type"], "use auto, the model's own"
    for name, why in REFUSED.items():
        check(not text.get(name), "kv_heads", kv_heads, f"model type {kind!r} {why}; {use}")
    if not all(isinstance(count, int) and count > 0 for count in shape):
        raise InvalidInput(f"kv_heads={kv_heads}: model type {kind!r} does not say how many heads share K and V; {use}")
    held = heads if kv_heads == ALL else int(kv_heads)
    if held == own:
        return None
    known = ", ".join(str(own * n) for n in range(1, min(heads // own, MOST) + 1) if heads % (own * n) == 0)
    rule = f"this model has {own} for {heads} query heads, and holds each once or more: use one of {known}, all or auto"
    check(held % own == 0 and heads % held == 0, "kv_heads", kv_heads, rule)
    if isinstance(config.get("quantization_config"), Mapping):
        raise InvalidInput(f"kv_heads={kv_heads}: this checkpoint is quantized, and its heads are not repeated; {use}")
    return RepeatedHeads(heads, own, held, text.get("head_dim") or hidden // heads)


REFUSED = {
    "auto_map": "brings its own code",
    "multi_query": "has queries, keys and values in one matrix",
    LATENT: "makes keys and values of a latent, and keeps that or, with all, those of every head",
    "num_global_key_value_heads": "has heads of two kinds",
}
