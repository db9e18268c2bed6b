"""Multi-head latent attention over what it keeps: a latent a token, of which all heads' keys and values are made.

A layer makes keys and values of head h of one latent c of `rank` numbers, k = U_h c and v = W_h c; beside it all heads
share a part of their keys that is rotated. A score q . (U_h c) is (U_h^T q) . c, and a sum of values is W_h times the
sum of latents: queries go to where the latents are, and keys and values are never made ("absorbed"; DeepSeek-V2,
section 2.1.2, https://arxiv.org/abs/2405.04434). To attention that is one KV head of rank + rotated numbers, whose
values are its keys.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from engine.checkpoints.weight_names import OF_LATENTS
from engine.kernels.cpu import calls as native

EXPAND = "expand_kv"  # the method by which transformers' layers make keys and values of a latent


class Absorbed(nn.Module):
    """In the place of that layer: its weights, as queries and sums of latents meet them. `up_keys` `[heads, nope,
    rank]`, `up_values` `[heads, rank, value]`; or, `packed`, as our kernel for a CPU has them."""

    def __init__(self, up_keys: Tensor, up_values: Tensor) -> None:
        super().__init__()
        (_, self.nope, self.rank), self.value = up_keys.shape, up_values.shape[2]
        self.packed = False
        self.up_keys = nn.Parameter(up_keys.contiguous(), requires_grad=False)
        self.up_values = nn.Parameter(up_values.contiguous(), requires_grad=False)

    def pack(self) -> None:
        """Where our kernel multiplies them."""
        weights = [[head.mT for head in each] for each in (self.up_keys.data, self.up_values.data)]
        if self.up_keys.device.type != "cpu" or not all(native.multiplies(heads[0]) for heads in weights):
            return
        for name, heads in zip(("up_keys", "up_values"), weights, strict=True):
            laid = torch.stack([native.laid_out(head) for head in heads])
            setattr(self, name, nn.Parameter(laid, requires_grad=False))
        self.packed = True

    def queries(self, query: Tensor) -> Tensor:
        """`[sequences, heads, tokens, nope + rotated]` as `[..., rank + rotated]`."""
        if self.packed:
            rotated = query.shape[-1] - self.nope
            return _by_heads(query.transpose(1, 2), self.up_keys, self.rank, rotated).transpose(1, 2)
        return torch.cat([query[..., : self.nope] @ self.up_keys, query[..., self.nope :]], dim=-1)

    def values(self, latents: Tensor) -> Tensor:
        """Sums `[sequences, tokens, heads, rank + rotated]` of latents as `[..., value]` of values."""
        latents = latents[..., : self.rank]
        if self.packed:
            return _by_heads(latents, self.up_values, self.value)
        return (latents.transpose(1, 2) @ self.up_values).transpose(1, 2)


def _by_heads(x: Tensor, weight: Tensor, columns: int, rest: int = 0) -> Tensor:
    """`[sequences, tokens, heads, ...]`, all sequences as one."""
    return native.by_heads(x.flatten(0, 1), weight, columns, rest).unflatten(0, x.shape[:2])


def absorbed(layer: nn.Module) -> Absorbed | None:
    """What an attention layer that keeps latents is told by."""
    # Most layers have none, and to miss an attribute takes torch a microsecond.
    found = getattr(layer, "_modules", {}).get(OF_LATENTS)
    return found if isinstance(found, Absorbed) else None


def keep_latents(module: nn.Module) -> None:
    """Lets every layer of a model that makes keys and values of latents keep these instead."""
    with torch.inference_mode():
        for layer in [part for part in module.modules() if hasattr(part, EXPAND)]:
            known: Any = layer
            setattr(known, OF_LATENTS, _absorbed(known))
            setattr(known, EXPAND, _kept)


def pack_latents(module: nn.Module) -> None:
    """Lays out what such layers multiply with as it is read, on a CPU."""
    for part in module.modules():
        if isinstance(part, Absorbed):
            part.pack()


def _absorbed(layer: Any) -> Absorbed:
    like = layer.kv_a_layernorm.weight
    # What it makes of each number of a latent: so it may be held in any way.
    weight: Tensor = layer.kv_b_proj(torch.eye(layer.kv_lora_rank, dtype=like.dtype, device=like.device))
    heads = weight.mT.unflatten(0, (-1, layer.qk_nope_head_dim + layer.v_head_dim))
    up_keys, up_values = heads.split([layer.qk_nope_head_dim, layer.v_head_dim], dim=1)
    return Absorbed(up_keys, up_values.mT)


def _kept(latent: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
    """Instead of keys and values of all heads, `[sequences, 1, tokens, rank + rotated]` for both."""
    both = torch.cat([latent, rotated], dim=-1)
    return both, both
