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

EXPAND = "expand_kv"  # the method by which transformers' layers make keys and values of a latent
MAKES = "kv_b_proj"  # the linear layer by which it does


class Absorbed(nn.Module):
    """In the place of that layer: its weights, as queries and sums of latents meet them. `up_keys` `[heads, nope,
    rank]`, `up_values` `[heads, value, rank]`."""

    def __init__(self, up_keys: Tensor, up_values: Tensor) -> None:
        super().__init__()
        self.up_keys = nn.Parameter(up_keys.contiguous(), requires_grad=False)
        self.up_values = nn.Parameter(up_values.contiguous(), requires_grad=False)

    def queries(self, query: Tensor) -> Tensor:
        """`[sequences, heads, tokens, nope + rotated]` as `[..., rank + rotated]`."""
        nope = self.up_keys.shape[1]
        return torch.cat([query[..., :nope] @ self.up_keys, query[..., nope:]], dim=-1)

    def values(self, latents: Tensor) -> Tensor:
        """Sums `[sequences, tokens, heads, rank + rotated]` of latents as `[..., value]` of values."""
        rank = self.up_values.shape[-1]
        return (latents[..., :rank].transpose(1, 2) @ self.up_values.mT).transpose(1, 2)


def absorbed(layer: nn.Module) -> Absorbed | None:
    """What an attention layer that keeps latents is told by."""
    found = getattr(layer, MAKES, None)
    return found if isinstance(found, Absorbed) else None


def keep_latents(module: nn.Module) -> None:
    """Lets every layer of a model that makes keys and values of latents keep these instead."""
    with torch.inference_mode():
        for layer in [part for part in module.modules() if hasattr(part, EXPAND)]:
            known: Any = layer
            setattr(known, MAKES, _absorbed(known))
            setattr(known, EXPAND, _kept)


def _absorbed(layer: Any) -> Absorbed:
    like = layer.kv_a_layernorm.weight
    # What it makes of each number of a latent: so it may be held in any way.
    weight: Tensor = layer.kv_b_proj(torch.eye(layer.kv_lora_rank, dtype=like.dtype, device=like.device))
    heads = weight.mT.unflatten(0, (-1, layer.qk_nope_head_dim + layer.v_head_dim))
    return Absorbed(*heads.split([layer.qk_nope_head_dim, layer.v_head_dim], dim=1))


def _kept(latent: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
    """Instead of keys and values of all heads, `[sequences, 1, tokens, rank + rotated]` for both."""
    both = torch.cat([latent, rotated], dim=-1)
    return both, both
