"""The attention function that transformers' models call; each step's batch knows its own cache and answers it."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from engine.kernels.attention.options import Options
from engine.models.latent import absorbed
from engine.trace.column import Array

NAME = "batchscope"
CACHE = "_cache"  # an attribute of attention layers: whose keys and values theirs are, counted without repeats
LATER = "_later"  # an attribute of keys: what of them and of the queries was put off (`engine.models.fusion.placing`)


class Batch(Protocol):
    """One step's rows over one of the caches. Layers that share their keys and values are one `layer`, called as often:
    what is kept twice is the same."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, options: Options) -> Tensor:
        """Keeps key and value `[sequences, kv_heads, tokens, head_dim]`, attends with query `[sequences, heads, tokens,
        head_dim]`; out `[sequences, tokens, heads, head_dim]`."""


@dataclass(slots=True)
class Timer:
    """The seconds that a step's attention took so far: on a CPU, where a call returns when it is done. Of a replayed
    step also those of each kernel, float64 `[kernels]` as the runner names them."""

    seconds: float = 0.0
    kernels: Array | None = None


def attend(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None = None,
    *,
    batch: Batch,
    timer: Timer | None = None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface; shapes as in `Batch.attend`. Values may be narrower than keys: they are kept
    as wide, filled up with zeros."""
    known: Any = module
    latent, width = absorbed(module), value.shape[-1]
    layer: int = getattr(known, CACHE, known.layer_idx)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if latent is not None:
        query = latent.queries(query)
    elif width < key.shape[-1]:
        none = torch.zeros(key.shape[-1] - width, dtype=value.dtype, device=value.device)
        value = torch.cat([value, none.expand(*value.shape[:-1], -1)], dim=-1)
    begun = time.perf_counter()
    options, later = Options(scale, sliding_window, softcap, s_aux), getattr(key, LATER, None)
    watch = getattr(batch, "watch", None)
    place = getattr(batch, "place", None) if watch is None else None  # which keeps queries to itself
    if later is not None and place is None:
        query, key = later.done(query, key)
    if later is not None and place is not None:
        out = place(layer, query, key, value, options, later)
    else:
        out = batch.attend(layer, query, key, value, options)
    if timer is not None:
        timer.seconds += time.perf_counter() - begun
    if watch is not None:
        watch.note(known.layer_idx, layer, query, key, options)
    if latent is not None:
        out = latent.values(out)
    elif width < key.shape[-1]:
        out = out[..., :width]
    return out, None


def current_device(device: torch.device) -> AbstractContextManager[object]:
    """The thread's current GPU becomes the model's: other libraries' kernels, events and streams go there."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


# No mask is registered under the name: transformers then makes none, and does not look for packed sequences in the
# positions, for which the host would wait for the GPU in every step.
ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
