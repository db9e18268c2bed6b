"""Attention of rows padded to one width, K and V of each contiguous: plain torch, on any device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from engine.kernels.attention.options import Options

NEVER = float("-inf")


def attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, options: Options) -> Tensor:
    """Attention as two products over each KV head: for one query a row, and for what sdpa cannot do.

    q `[rows, heads, tokens, head_dim]`, k and v `[rows, kv_heads, context, head_dim]`, out as q. `bias`, broadcast to
    `[rows, 1, tokens, context]`, is 0 where a key is seen and -inf where not: it holds the window too. Every query
    sees a key.
    """
    rows, heads, tokens, head_dim = q.shape
    kv_heads, context = k.shape[1:3]
    group = heads // kv_heads
    queries = (q * options.scale).reshape(rows * kv_heads, group * tokens, head_dim)
    scores = torch.bmm(queries, k.flatten(0, 1).transpose(1, 2)).float().view(rows, heads, tokens, context)
    if options.softcap is not None:
        scores = scores.div_(options.softcap).tanh_().mul_(options.softcap)
    if bias is not None:
        scores.add_(bias)
    weights = scores.softmax(-1)
    if options.sinks is not None:
        # exp(scores) / (sum of exp(scores) + exp(sink)), from the softmax without the sink.
        weights *= (scores.logsumexp(-1, keepdim=True) - options.sinks.float()[:, None, None]).sigmoid()
    weights = weights.to(v.dtype).view(rows * kv_heads, group * tokens, context)
    return torch.bmm(weights, v.flatten(0, 1)).view(rows, heads, tokens, head_dim)


def causal_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, options: Options) -> Tensor:
    """Queries at the end of their context, the last tokens of k and v; shapes as in `attention`.

    `bias` holds the whole mask, causality included, in q's dtype. None: queries and keys are the same tokens, and each
    sees itself and all before it.
    """
    tokens = q.shape[2]
    if options.softcap is None and options.sinks is None:
        shared = k.shape[1] < q.shape[1]
        if shared and bias is not None and q.device.type == "cuda":  # its kernels take a mask or shared heads, not both
            k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
            shared = False
        causal = bias is None and tokens > 1
        return scaled_dot_product_attention(q, k, v, bias, is_causal=causal, scale=options.scale, enable_gqa=shared)
    if bias is None:
        bias = torch.full((tokens, tokens), NEVER, dtype=q.dtype, device=q.device).triu_(1)
    return attention(q, k, v, bias, options)


def left_padded_bias(padding: Tensor, tokens: int, window: int | None, dtype: torch.dtype) -> Tensor:
    """The mask `[rows, 1, tokens, tokens]` of rows whose first `padding` `[rows]` tokens are pads. A pad sees itself
    alone: a query that sees nothing would be NaN, and spread through its value to the row's end."""
    at = torch.arange(tokens, device=padding.device)
    key, query = at[None, :], at[:, None]
    seen = (key <= query) & (key >= padding[:, None, None])
    if window is not None:
        seen &= key > query - window
    seen |= key == query
    bias = torch.zeros(seen.shape, dtype=dtype, device=padding.device)
    return bias.masked_fill_(~seen, NEVER)[:, None]
