"""transformers under a mask that hides what a cache has forgotten, for tests that say the same by an engine."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

BLOCK, SINKS, WINDOW = 4, 3, 12


def seen(prompt: int, tokens: int, sinks: int = SINKS, window: int = WINDOW) -> Tensor:
    """Which keys each query sees, `[tokens, tokens]`: said once more, token by token."""
    found = torch.zeros(tokens, tokens, dtype=torch.bool)
    kept, recent = -(-sinks // BLOCK), -(-window // BLOCK)
    for query in range(tokens):
        for key in range(query + 1):
            own, there = query // BLOCK, key // BLOCK
            read_whole = own <= prompt // BLOCK
            found[query, key] = read_whole or there < kept or there >= own - recent
    return found


@torch.inference_mode()
def reference(
    module: PreTrainedModel, ids: Sequence[int], prompt: int, sinks: int = SINKS, window: int = WINDOW
) -> Any:
    """transformers over all tokens at once, each of which sees what it saw as it was computed."""
    sees = seen(prompt, len(ids), sinks, window)
    place = torch.arange(len(ids))
    widest = getattr(module.config, "sliding_window", None) or len(ids)
    near = sees & (place[:, None] - place < widest)
    full, sliding = (torch.zeros(1, 1, *x.shape).masked_fill(~x, torch.finfo(torch.float32).min) for x in (sees, near))
    kinds = getattr(module.config, "layer_types", None)
    mask = {"full_attention": full, "sliding_attention": sliding} if kinds else sliding
    return module(torch.tensor([list(ids)]), attention_mask=mask, output_attentions=True)


def assert_said(
    module: PreTrainedModel, prompt: list[int], said: Sequence[int], sinks: int = SINKS, window: int = WINDOW
) -> None:
    logits = reference(module, [*prompt, *said], len(prompt), sinks, window).logits[0]
    assert logits[len(prompt) - 1 : -1].argmax(-1).tolist() == list(said)
