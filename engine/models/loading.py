"""Loads a model in the quantization asked for, ready to run with our attention."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from engine.checkpoints.hub import download
from engine.checkpoints.info import ModelInfo
from engine.checkpoints.inspect import check_files, inspect_folder, name_of, resolve
from engine.checkpoints.kv_heads import ALL, repeated_heads
from engine.checkpoints.tensor_part import Cut
from engine.config.schemes import SCHEMES
from engine.config.specs import InvalidInput, ModelSpec
from engine.decoding.detokenizer_factory import DetokenizerFactory
from engine.kernels.cpu.library import native
from engine.memory.allocator import give_back, release_references
from engine.memory.fit import load_dtype
from engine.memory.layer_kv import LayerKV, kv_token_bytes
from engine.memory.splitting import expert_groups
from engine.memory.weight_bytes import layers_share
from engine.models.adapters import Adapters, install
from engine.models.attention import current_device
from engine.models.card import describe, end_tokens, hold_rotation, proving, serve_with_paged_attention
from engine.models.config import quantization_of, read_tokenizer, transformers_config
from engine.models.device import answers, device_for, device_of_each
from engine.models.fusion.fuse import Fusion, fuse, short_logits
from engine.models.latent import keep_latents, pack_latents
from engine.models.packed_experts import pack_experts
from engine.models.packed_linear import pack_linears
from engine.models.routing import Routing
from engine.models.split_card import StageFacts, card_of_heads, card_of_stages, facts_of
from engine.models.states import States, keep_states
from engine.models.weight_count import held_bytes
from engine.models.weights import Report, Reporter, quiet, read_weights
from engine.parallel.device_pipeline import DevicePipeline
from engine.parallel.group import Ranked, chosen, chosen_for_stages, join
from engine.parallel.layers import meet, narrow_head
from engine.parallel.mail import Mail
from engine.parallel.pipeline import Pipeline, SharedPipeline, anatomy_of, refuse_inseparable, shortened
from engine.parallel.ranks import Place, Ranks, no_ranks_here
from engine.parallel.sequence import share_rows
from engine.parallel.shards import narrowed
from engine.parallel.split import UNPARTED, UNSPLIT, Split
from engine.parallel.stages import Stage, stage_of
from engine.trace.records import ModelCard


@dataclass(slots=True)
class LoadedModel:
    """A model ready to run: transformers' module with our attention, its tokenizer, its facts.

    Of a model that is split, `module` and `layer_kv` are this rank's part, `group` is what it meets the others over,
    and `ranks` are the others, on rank 0; there the card is that of the whole model, and `others_kv` the other ranks'
    `layer_kv`; of a pipeline, `stage_layers` are how many layers each stage has. `routing` tells which experts of a
    mixture its tokens are sent to; None of other models, and of a stage, which sees its own layers alone. `adapters`
    are told which of them each token goes through; None where it was loaded without any. `states`: what is kept by
    layers that keep a state of a sequence; None of a model that has no such layers.
    """

    module: PreTrainedModel
    tokenizer: Any
    card: ModelCard
    device: torch.device
    dtype: torch.dtype
    eos: frozenset[int]
    layer_kv: list[LayerKV]  # of each cache: of the layers that share none
    fusion: Fusion | None = None
    notice: str = ""  # why it is not on the device that "auto" would have taken
    group: Ranked | None = None
    ranks: Ranks | None = None
    held_bytes: int = 0  # of the weights, on this rank
    others_kv: list[LayerKV] = field(default_factory=list)
    stage_layers: tuple[int, ...] = ()
    routing: Routing | None = None
    spec: ModelSpec | None = None  # by which another process loads the same
    adapters: Adapters | None = None
    states: States | None = None
    _detokenizers: DetokenizerFactory | None = None

    def card_with(self, kv_dtype: str) -> ModelCard:
        """The card of this model over a cache of this dtype ("auto": its own)."""
        if kv_dtype == "auto":
            return self.card
        token_bytes = kv_token_bytes([*self.layer_kv, *self.others_kv], self.dtype.itemsize, kv_dtype)
        return replace(self.card, kv_token_bytes=token_bytes, kv_dtype=kv_dtype)

    @property
    def detokenizers(self) -> DetokenizerFactory:
        """What a token says, looked up once for all engines that have the model."""
        if self._detokenizers is None:
            self._detokenizers = DetokenizerFactory(self.tokenizer)
        return self._detokenizers

    @property
    def devices(self) -> int:
        """How many it is split over."""
        return self.group.ranks if self.group is not None else 1

    def close(self) -> None:
        """Ends the other ranks, where there are any."""
        if self.ranks is not None:
            self.ranks.close()


def load(spec: ModelSpec, report: Report | None = None, cancelled: threading.Event | None = None) -> LoadedModel:
    """Loads `spec`, its device tried before anything is read. Raises InvalidInput for what a person can mend,
    LoadCancelled when `cancelled` is set; memory is then as it was."""
    device, notice = device_for(spec.device)
    try:
        with current_device(device):
            loaded = _load(spec, Reporter(report, cancelled), device)
        loaded.notice, loaded.spec = notice, spec
        return loaded
    except BaseException as error:
        if device.type == "cpu":
            release_references(error)
        elif answers(device):  # a GPU that is lost is asked to free nothing
            release_references(error)
            torch.cuda.empty_cache()
        raise


def load_part(spec: ModelSpec, folder: Path, place: Place) -> LoadedModel:
    """A rank's part of a model in a folder, that rank 0 has looked at, on the rank's own device. Raises as `load`
    does."""
    if place.device != "cpu":
        torch.cuda.set_device(place.device)  # of this thread, for good: nothing of it lies on another card
    device, _ = device_for(place.device)
    return _read(spec, folder, Reporter(None, None), device, place)


def _load(spec: ModelSpec, say: Reporter, device: torch.device) -> LoadedModel:
    begun = time.perf_counter()
    say("looking at the model")
    folder = resolve(spec)
    if folder is None:
        say("fetching from the hub")
        code, report, cancelled = spec.trust_remote_code, say.report, say.cancelled
        folder = download(spec.source, spec.revision, code=code, report=report, cancelled=cancelled)
        check_files(folder, spec.trust_remote_code)
    if spec.parallel.ranks == 1:
        loaded = _read(spec, folder, say, device)
    else:
        loaded = _read_with_others(spec, folder, say, device)
    loaded.card = replace(loaded.card, load_seconds=time.perf_counter() - begun)
    return loaded


def _read(
    spec: ModelSpec, folder: Path, say: Reporter, device: torch.device, place: Place | None = None
) -> LoadedModel:
    """The model in a folder, or the part of it that the rank at `place` holds."""
    info = inspect_folder(folder, name_of(spec, folder), spec.kv_heads)
    config = transformers_config(folder, spec)
    quantization = quantization_of(folder, spec, config)
    repeated = repeated_heads(config.to_dict(), spec.kv_heads)
    if repeated is not None:
        config.get_text_config().num_key_value_heads = repeated.held
    dtype = getattr(torch, load_dtype(info, quantization, device.type, spec.dtype))
    split, group, pipeline = None, None, None
    if place is not None and spec.parallel.pipeline > 1:
        stage = _stage(spec, config, info, quantization, device, place.rank)
        config, pipeline = shortened(config), _pipeline(spec, place, stage, device)
    elif place is not None:
        config, split = narrowed(config, place.rank, place.board.ranks, spec.parallel.experts)
        group = join(spec.parallel, place.backend, place.board, place.rank, place.store, device)
    say("reading the tokenizer")
    tokenizer = read_tokenizer(folder, spec)
    if device.type == "cpu":  # before weights are laid out for them
        native(lambda: say("compiling kernels for this processor, once"))
    cut = pipeline or split or repeated
    module = read_weights(folder, config, quantization, dtype, device, info, spec.trust_remote_code, say, cut)
    say("checking attention")
    if split is not None:
        narrow_head(module, split.rank, split.ranks)
    with quiet():
        own = None if pipeline is None else pipeline.stage.layers
        loaded = _served(module, tokenizer, spec.source, info.name, quantization, own, spec.kv_heads != ALL)
    if repeated is not None and any(kv.heads != repeated.held for kv in loaded.layer_kv):
        raise InvalidInput(f"{repeated.words}: {info.model_type!r} does not follow its number of heads; use auto")
    loaded.card = replace(loaded.card, kv_heads_stored=info.kv_heads_stored)
    if quantization != "none":
        give_back()  # what quantizing took beside the weights
    say("fusing small operations")
    loaded.fusion = fuse(module)
    if spec.adapters:
        say("reading adapters")
        _adapt(loaded, spec.adapters, cut)
    if split is not None and group is not None:
        _refuse_unsplit(loaded, split)
        meet(module, group, loaded.card.vocabulary)
        if spec.parallel.sequence:
            with quiet(), torch.inference_mode():
                share_rows(module, group, lambda: short_logits(module))
        loaded.group = group
    if pipeline is not None:
        refuse_inseparable(module, pipeline, info.model_type)
        loaded.group = pipeline
    return loaded


def _adapt(loaded: LoadedModel, given: Sequence[str], cut: Cut | Pipeline | None) -> None:
    with torch.inference_mode():
        adapters = install(loaded.module, given, loaded.dtype, loaded.device, cut)
    loaded.adapters, loaded.held_bytes = adapters, loaded.held_bytes + adapters.bytes
    loaded.card = replace(
        loaded.card,
        adapters=adapters.names,
        adapter_ranks=adapters.ranks,
        adapter_bytes=adapters.bytes,
        weight_bytes=loaded.card.weight_bytes + adapters.bytes,
    )


def _read_with_others(spec: ModelSpec, folder: Path, say: Reporter, device: torch.device) -> LoadedModel:
    """As rank 0, while the others read their parts."""
    asked = spec.parallel.words
    info, config = inspect_folder(folder, name_of(spec, folder)), transformers_config(folder, spec)
    held = quantization_of(folder, spec, config)
    if info.states.layers:
        raise InvalidInput(f"{asked}: layers of this model keep a state of a sequence, which are not split; use 1")
    if spec.trust_remote_code and "auto_map" in config.to_dict():
        raise InvalidInput(f"{asked}: a model that brings its own code cannot be split; use 1")
    if why := no_ranks_here():
        raise InvalidInput(f"{asked}: {why}; use 1")
    gpu_path = device.type != "cpu" or os.environ.get("TRITON_INTERPRET") == "1"
    cards = torch.cuda.device_count() if device.type == "cuda" else 0
    devices = device_of_each(device, spec.parallel.ranks, asked, cards)
    if spec.parallel.pipeline > 1:
        _stage(spec, config, info, held, device, 0)
        backend = chosen_for_stages(spec.parallel, device, gpu_path)
    else:
        narrowed(config, 0, spec.parallel.tensor, spec.parallel.experts)
        odd = [n for n in expert_groups(info, held) if n % spec.parallel.tensor and not spec.parallel.experts]
        if odd:
            raise InvalidInput(
                f"{asked}: of the {odd[0]:,} groups of columns that share a scale in each expert ranks cannot have a "
                f"part each; use {UNPARTED}, or {UNSPLIT}"
            )
        dtype = getattr(torch, load_dtype(info, held, device.type, spec.dtype))
        backend = chosen(spec.parallel, dtype, device, gpu_path)
    say("starting ranks")
    ranks = Ranks(spec, folder, backend, torch.get_num_threads(), [str(each) for each in devices])
    if backend == "shared":
        ranks.mail = Mail(ranks.board, 0, spec.parallel.timeout)
    try:
        loaded = _read(spec, folder, say, device, ranks.place)
        ranks.ready(lambda: say("waiting for the other ranks"))
    except BaseException as error:
        meant = ranks.meant(error)
        ranks.close()
        if meant is not error:
            raise meant from error
        raise
    loaded.ranks = ranks
    loaded.others_kv = [kv for each in ranks.layer_kv for kv in each]
    all_kv = [*loaded.layer_kv, *loaded.others_kv]
    if spec.parallel.pipeline > 1:
        stages = [facts_of(loaded.card), *(StageFacts(**each) for each in ranks.stages)]
        loaded.stage_layers = tuple(len(each.windows) for each in stages)
        loaded.card = replace(card_of_stages(loaded.card, stages, info), kv_layers=len(all_kv))
    else:
        loaded.card = card_of_heads(loaded.card, info, spec.parallel.ranks)
    weights, kv_bytes = loaded.held_bytes + sum(ranks.weight_bytes), kv_token_bytes(all_kv, loaded.dtype.itemsize)
    loaded.card = replace(loaded.card, weight_bytes=weights, kv_token_bytes=kv_bytes)
    loaded.card = replace(loaded.card, adapter_bytes=loaded.card.adapter_bytes * spec.parallel.ranks)  # about alike
    return loaded


def _stage(spec: ModelSpec, config: Any, info: ModelInfo, held: str, device: torch.device, rank: int) -> Stage:
    anatomy, share = anatomy_of(config), 1.0
    if SCHEMES[held].made == "at load" and not info.stored_as:
        share = layers_share(info, held, load_dtype(info, held, device.type, spec.dtype), device.type)
    sizes = {
        name: round(size * (share if anatomy.layer_of(name) >= 0 else 1)) for name, (_, size) in info.tensors.items()
    }
    return stage_of(rank, spec.parallel.pipeline, anatomy, sizes)


def _pipeline(spec: ModelSpec, place: Place, stage: Stage, device: torch.device) -> Pipeline:
    if place.backend in ("gloo", "nccl"):
        return DevicePipeline(spec.parallel, place.board, stage, place.backend, device, place.store)
    return SharedPipeline(spec.parallel, place.board, stage)


def _refuse_unsplit(loaded: LoadedModel, split: Split) -> None:
    """Raises InvalidInput where a layer does not hand over this rank's heads, as wide as the whole model's."""
    expected = LayerKV(split.kv_heads // split.ranks, split.head_dim)
    if any(kv != expected for kv in loaded.layer_kv):
        raise InvalidInput(
            f"tensor_parallel={split.ranks}: the attention of model type {split.kind!r} does not follow its number of "
            "heads, so it cannot be split; use 1"
        )


def wrap(
    module: PreTrainedModel,
    tokenizer: Any,
    name: str,
    quantization: str = "none",
    fused: bool = True,
    latents: bool = True,
) -> LoadedModel:
    """A module that is in memory already (a random one in a benchmark, say) as a loaded model; `quantization` is how it
    was quantized; `fused` as `load` does it, else its small operations stay transformers' own; `latents`: those that
    keys and values are made of are kept."""
    loaded = _served(module, tokenizer, name, name, quantization, latents=latents)
    if fused:
        loaded.fusion = fuse(module)
    return loaded


def _served(
    module: PreTrainedModel,
    tokenizer: Any,
    source: str,
    name: str,
    quantization: str,
    own: range | None = None,
    latents: bool = True,
) -> LoadedModel:
    """A module with our attention, its linear layers and its experts packed; the card says what it holds then. `own`:
    the layers that a stage has."""
    hold_rotation(module)
    with proving(module):
        states = keep_states(module)
    if latents:
        keep_latents(module)
    layer_kv, windows = serve_with_paged_attention(module, module.device, own, states)
    card = describe(module, tokenizer, source, name, quantization, layer_kv, windows, states)
    pack_linears(module)
    pack_latents(module)
    pack_experts(module)
    routing = Routing.of(module, module.device) if own is None else None
    told = () if routing is None else routing.layers
    card = replace(card, weight_bytes=held_bytes(module), expert_layers=told)
    eos = end_tokens(module, tokenizer)
    held = card.weight_bytes
    return LoadedModel(
        module,
        tokenizer,
        card,
        module.device,
        module.dtype,
        eos,
        layer_kv,
        held_bytes=held,
        routing=routing,
        states=states,
    )
