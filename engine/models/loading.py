"""Loads a model in the quantization asked for, ready to run with our attention."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import PreTrainedModel

from engine.checkpoints.hub import download
from engine.checkpoints.inspect import check_files, inspect_folder, name_of, resolve
from engine.config.specs import ModelSpec
from engine.kernels.cpu.library import native
from engine.memory.allocator import give_back, release_references
from engine.memory.fit import load_dtype
from engine.memory.rules import kv_token_bytes
from engine.models.attention import current_device
from engine.models.card import describe, end_tokens, hold_rotation, serve_with_paged_attention
from engine.models.config import quantization_of, read_tokenizer, transformers_config
from engine.models.device import device_for
from engine.models.fusion.fuse import Fusion, fuse
from engine.models.packed_linear import pack_linears
from engine.models.weight_count import held_bytes
from engine.models.weights import Report, Reporter, quiet, read_weights
from engine.trace.records import ModelCard


@dataclass(slots=True)
class LoadedModel:
    """A model ready to run: transformers' module with our attention, its tokenizer, its facts."""

    module: PreTrainedModel
    tokenizer: Any
    card: ModelCard
    device: torch.device
    dtype: torch.dtype
    eos: frozenset[int]
    layer_kv: list[tuple[int, int]]  # (kv_heads, head_dim) of each cache: of the layers that share none
    fusion: Fusion | None = None
    notice: str = ""  # why it is not on the device that "auto" would have taken

    def card_with(self, kv_dtype: str) -> ModelCard:
        """The card of this model over a cache of this dtype ("auto": its own)."""
        if kv_dtype == "auto":
            return self.card
        token_bytes = kv_token_bytes(self.layer_kv, self.dtype.itemsize, kv_dtype)
        return replace(self.card, kv_token_bytes=token_bytes, kv_dtype=kv_dtype)


def load(spec: ModelSpec, report: Report | None = None, cancelled: threading.Event | None = None) -> LoadedModel:
    """Loads `spec`, its device tried before anything is read. Raises InvalidInput for what a person can mend,
    LoadCancelled when `cancelled` is set; memory is then as it was."""
    device, notice = device_for(spec.device)
    try:
        with current_device(device):
            loaded = _load(spec, Reporter(report, cancelled), device)
        loaded.notice = notice
        return loaded
    except BaseException as error:
        release_references(error)
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()
        raise


def _load(spec: ModelSpec, say: Reporter, device: torch.device) -> LoadedModel:
    begun = time.perf_counter()
    say("looking at the model")
    folder = resolve(spec)
    if folder is None:
        say("fetching from the hub")
        code, report, cancelled = spec.trust_remote_code, say.report, say.cancelled
        folder = download(spec.source, spec.revision, code=code, report=report, cancelled=cancelled)
        check_files(folder, spec.trust_remote_code)
    info = inspect_folder(folder, name_of(spec, folder))
    config = transformers_config(folder, spec)
    quantization = quantization_of(folder, spec, config)
    dtype = getattr(torch, load_dtype(info, quantization, device.type, spec.dtype))
    say("reading the tokenizer")
    tokenizer = read_tokenizer(folder, spec)
    module = read_weights(folder, config, quantization, dtype, device, info, spec.trust_remote_code, say)
    if device.type == "cpu":  # before its weights are packed for them
        native(lambda: say("compiling kernels for this processor, once"))
    say("checking attention")
    with quiet():
        loaded = _served(module, tokenizer, spec.source, info.name, quantization)
    if quantization != "none":
        give_back()  # what quantizing took beside the weights
    say("fusing small operations")
    loaded.fusion = fuse(module)
    loaded.card = replace(loaded.card, load_seconds=time.perf_counter() - begun)
    return loaded


def wrap(
    module: PreTrainedModel, tokenizer: Any, name: str, quantization: str = "none", fused: bool = True
) -> LoadedModel:
    """A module that is in memory already (a random one in a benchmark, say) as a loaded model; `quantization` is how it
    was quantized; `fused` as `load` does it, else its small operations stay transformers' own."""
    loaded = _served(module, tokenizer, name, name, quantization)
    if fused:
        loaded.fusion = fuse(module)
    return loaded


def _served(module: PreTrainedModel, tokenizer: Any, source: str, name: str, quantization: str) -> LoadedModel:
    """A module with our attention and its linear layers packed; the card says what it holds then."""
    hold_rotation(module)
    layer_kv, windows = serve_with_paged_attention(module, module.device)
    card = describe(module, tokenizer, source, name, quantization, layer_kv, windows)
    pack_linears(module)
    card = replace(card, weight_bytes=held_bytes(module))
    eos = end_tokens(module, tokenizer)
    return LoadedModel(module, tokenizer, card, module.device, module.dtype, eos, layer_kv)
