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

from engine.kernels.cpu import calls as native

EXPAND = "expand_kv"  # the method by which transformers' layers make keys and values of a latent
MAKES = "kv_b_proj"  # the linear layer by which it does


class Absorbed(nn.Module):
    """In the place of that layer: its weights, as queries and sums of latents meet them. `up_keys` `[heads, nope,
    rank]`, `up_values` `[heads, value, rank]`, either as our kernel for a CPU has it, where that multiplies them."""

    def __init__(self, up_keys: Tensor, up_values: Tensor) -> None:
        super().__init__()
        (_, self.nope, self.rank), self.value = up_keys.shape, up_values.shape[1]
        self.packed = up_keys.device.type == "cpu" and all(map(native.multiplies, (up_keys[0].mT, up_values[0])))
        self.up_keys = self._held(up_keys.mT)
        self.up_values = self._held(up_values)

    def _held(self, weight: Tensor) -> nn.Parameter:
        """`[heads, columns, depth]`."""
        laid = torch.stack([native.laid_out(head) for head in weight]) if self.packed else weight.mT.contiguous()
        return nn.Parameter(laid, requires_grad=False)

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
