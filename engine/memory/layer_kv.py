"""What a layer keeps of each token, and the bytes that takes. No torch."""

from collections.abc import Iterable
from typing import NamedTuple


class LayerKV(NamedTuple):
    """A layer's keys and its values, each `heads` times `dim` numbers a token; or, where they are one `latent`, both
    at once."""

    heads: int
    dim: int
    latent: bool = False

    @property
    def vectors(self) -> int:
        """Of `dim` numbers a token; each has a scale in a cache of codes."""
        return self.heads * (1 if self.latent else 2)


def kv_token_bytes(layers: Iterable[LayerKV], item: int, kv_dtype: str = "auto") -> int:
    """Bytes of a token's K and V in these layers, `item` bytes a value; of another `kv_dtype` than "auto" a byte each,
    and one for each vector's scale."""
    if kv_dtype == "auto":
        return sum(kv.vectors * kv.dim * item for kv in layers)
    return sum(kv.vectors * (kv.dim + 1) for kv in layers)
