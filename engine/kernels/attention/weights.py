"""What one query gives each of its keys, by itself: for whoever wants to see it. Plain torch, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.attention.options import Options


def attention_weights(q: Tensor, k: Tensor, options: Options) -> Tensor:
    """float32 `[heads, context]`: softmax(q k^T * scale) of the last of `context` tokens, q `[heads, head_dim]`, over
    itself and all before it, k `[context, kv_heads, head_dim]`. A head's weights sum to 1, and to less where sinks take
    their part. Outside a sliding window they are 0."""
    heads, head_dim = q.shape
    context, kv_heads, _ = k.shape
    queries = (q.float() * options.scale).view(kv_heads, heads // kv_heads, head_dim)
    scores = torch.bmm(queries, k.float().permute(1, 2, 0)).view(heads, context)
    if options.softcap is not None:
        scores = scores.div_(options.softcap).tanh_().mul_(options.softcap)
    if options.window is not None and options.window < context:
        scores[:, : context - options.window] = float("-inf")
    weights = scores.softmax(-1)
    if options.sinks is not None:
        weights *= (scores.logsumexp(-1, keepdim=True) - options.sinks.float()[:, None]).sigmoid()
    return weights
