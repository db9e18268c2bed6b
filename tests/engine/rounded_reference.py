"""transformers' own decoders with keys and values rounded as a quantized cache keeps them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from engine.kernels.attention.options import Options
from engine.kernels.quantized_kv import CODES, rounded
from tests.engine.kernels import oracle

NAME = "rounded_reference"


@contextmanager
def rounded_attention(module: PreTrainedModel, kv_dtype: str) -> Iterator[None]:
    """Every query of a text attends, by the oracle, to keys and values that went through codes."""
    codes = CODES[kv_dtype]

    def attend(
        layer: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *_: Any,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        s_aux: Tensor | None = None,
        **__: Any,
    ) -> tuple[Tensor, None]:
        options = Options(query.shape[-1] ** -0.5 if scaling is None else scaling, sliding_window, softcap, s_aux)
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        count = len(q)
        blocks = torch.zeros(1, 1, dtype=torch.int32), torch.tensor([0, count]), torch.tensor([count])
        out = oracle.paged_attention(q.contiguous(), rounded(k, codes)[None], rounded(v, codes)[None], *blocks, options)
        return out[None], None

    ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
    module.set_attn_implementation(NAME)
    yield


@torch.inference_mode()
def greedy(module: PreTrainedModel, prompt: list[int], tokens: int) -> tuple[list[int], Tensor]:
    """The tokens that are likeliest one after another, and the logits `[tokens, vocabulary]` they are chosen from; the
    whole text is computed for each."""
    ids, logits = list(prompt), []
    for _ in range(tokens):
        positions = torch.arange(len(ids))[None]
        logits.append(module(input_ids=torch.tensor([ids]), position_ids=positions, use_cache=False).logits[0, -1])
        ids.append(int(logits[-1].argmax()))
    return ids[len(prompt) :], torch.stack(logits)
