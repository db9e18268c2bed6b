"""Reads a checkpoint's weights through transformers: with progress by bytes, cancellable, all of them or an error."""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, TypeGuard

import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    PreTrainedModel,
    TorchAoConfig,
    core_model_loading,
    modeling_utils,
)

from engine.checkpoints.inspect import ModelInfo
from engine.checkpoints.kv_heads import LATENT, RepeatedHeads
from engine.checkpoints.mxfp4_settings import holds_mxfp4
from engine.checkpoints.safetensors import read_headers, weight_files
from engine.checkpoints.tensor_part import Cut
from engine.checkpoints.weight_names import HEADS, OF_LATENTS
from engine.config.specs import InvalidInput
from engine.jobs.job import Report
from engine.jobs.progress import LoadCancelled, LoadProgress
from engine.memory.allocator import ran_out
from engine.models.card import no_room
from engine.models.config import first_line
from engine.models.expert_shares import hold_some
from engine.models.plain_weights import is_plain
from engine.models.quantization import coded_experts
from engine.models.quantization.coded_experts import before_each
from engine.parallel.altered_class import altered, plain_again
from engine.parallel.pipeline import Pipeline, module_class, read_stage, stage_class
from engine.parallel.pipeline import settle as settle_stage
from engine.parallel.shards import read_shards
from engine.parallel.split import Split

# Buffers that old versions saved and every model makes itself: rotary frequencies and causal masks.
REMADE = re.compile(r"(rotary_emb\.inv_freq|\.(attn|attention)\.(masked_)?bias)$")


class Reporter:
    """Says how far a load is. Raises LoadCancelled when it was cancelled."""

    def __init__(self, report: Report | None, cancelled: threading.Event | None) -> None:
        self.report, self.cancelled = report, cancelled

    def go_on(self) -> None:
        """Raises where the load was cancelled."""
        if self.cancelled is not None and self.cancelled.is_set():
            raise LoadCancelled("the load was cancelled")

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        self.go_on()
        if self.report is not None:
            self.report(LoadProgress(stage, done, total))


def read_weights(
    folder: Path,
    config: Any,
    quantization: str,
    dtype: torch.dtype,
    device: torch.device,
    info: ModelInfo,
    trust_remote_code: bool,
    say: Reporter,
    cut: Cut | Pipeline | None = None,
) -> PreTrainedModel:
    """The model with its weights quantized as `quantization` says, on `device`, in eval mode; with `cut`, this rank's
    part of it, or its heads repeated, which `config` describes.

    Raises InvalidInput when they cannot be read, do not fit in memory, or are not those of the config's
    architecture; LoadCancelled between two tensors.
    """
    total = info.weight_bytes
    say("reading weights", 0, total)
    try:
        with quiet(), _byte_progress(info, say), _own_memory(), before_each(say.go_on):
            # Without accelerate, weights for a GPU take a detour through the host's memory.
            placed = find_spec("accelerate") is not None and (device.type != "cpu" or quantization != "none")
            loader, source, given = _loader(folder, config, cut, lambda: say("reading weights", 0, total))
            module, loading = loader.from_pretrained(
                source,
                dtype=dtype,
                device_map={"": device} if placed else None,
                attn_implementation="eager",  # every model has it; ours takes its place after the probe
                use_safetensors=True,
                **({"trust_remote_code": trust_remote_code} if cut is None else {}),
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are refused below, by name
                **_options(quantization, config, dtype, partial(_shapes, folder, given)),
                **given,
            )
            if not placed and device.type != "cpu":
                module.to(device)
            if of_experts(cut):
                plain_again(module)
            if isinstance(cut, Pipeline):
                settle_stage(module, cut.stage)
                loading["unexpected_keys"] = [key for key in loading["unexpected_keys"] if cut.stage.held_as(str(key))]
            refuse_strays(folder, config, module, loading, cut)
            if cut is not None and (folder / "generation_config.json").is_file():
                module.generation_config = GenerationConfig.from_pretrained(folder)
            _refuse_no_numbers(folder, module)
            _settle(module, quantization, dtype, lambda: say("preparing weights", total, total))
    except (LoadCancelled, InvalidInput):
        raise
    except Exception as error:  # each model's code and each file format raises its own
        if ran_out(error):
            raise no_room(info.name, device, error) from error
        if isinstance(error, torch.AcceleratorError):  # the GPU's, whatever is read
            raise
        raise InvalidInput(f"{folder} cannot be loaded: {first_line(error)}") from error
    say("reading weights", total, total)
    return module.eval().requires_grad_(False)


def _loader(
    folder: Path, config: Any, cut: Cut | Pipeline | None, before: Callable[[], None]
) -> tuple[Any, Path | None, dict[str, Any]]:
    """The class whose `from_pretrained` loads, the folder that it is given, and what else; `before` is called before
    each tensor that is cut."""
    if cut is None:
        return AutoModelForCausalLM, folder, {}
    if isinstance(cut, Pipeline):
        read = read_stage(weight_files(folder), cut.stage, lambda _: before())
        return stage_class(module_class(config), cut.stage, cut.passage), None, {"state_dict": read}
    shards, cls = read_shards(weight_files(folder), cut, lambda _: before()), module_class(config)
    if of_experts(cut):
        cls = altered(cls, partial(hold_some, split=cut))
    return cls, None, {"state_dict": shards}


def of_experts(cut: Cut | Pipeline | None) -> TypeGuard[Split]:
    """Whether a rank holds some of a mixture's experts whole."""
    return isinstance(cut, Split) and cut.experts > 0


def _shapes(folder: Path, given: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of each tensor that is read: of a checkpoint's, or of the parts of it that are given."""
    parts = given.get("state_dict")
    if parts is not None:
        return {name: tuple(part.get_shape()) for name, part in parts.items()}
    return {name: shape for name, (shape, _) in read_headers(weight_files(folder)).items()}


def _options(
    quantization: str, config: Any, dtype: torch.dtype, shapes: Callable[[], Mapping[str, tuple[int, ...]]]
) -> dict[str, Any]:
    """What `from_pretrained` is told of a quantization; `shapes` are those of the tensors that are read."""
    kept = [*HEADS, OF_LATENTS] if getattr(config.get_text_config(), LATENT, None) else None
    match quantization:
        case "none":
            return {"config": config}
        case "awq":
            from engine.checkpoints.awq_settings import awq_settings
            from engine.models.quantization.awq_loader import awq_arguments

            settings = awq_settings(config.to_dict())
            assert settings is not None
            return awq_arguments(config, settings, shapes())
        case "mxfp4":
            from engine.models.quantization.mxfp4_loader import Mxfp4Config, stored_arguments

            if holds_mxfp4(config.to_dict()):
                return stored_arguments(config, shapes())
            return {"config": config, "quantization_config": Mxfp4Config()}
        case "torchao-int8":
            from torchao.quantization import Int8WeightOnlyConfig

            given = TorchAoConfig(Int8WeightOnlyConfig(), modules_to_not_convert=kept)
        case _:
            from engine.models.quantization.bitsandbytes import bits_config

            given = bits_config(quantization, dtype, kept)
    from engine.models.quantization.experts_loader import with_experts

    return {"config": config, "quantization_config": with_experts(given)}


def _settle(module: PreTrainedModel, quantization: str, dtype: torch.dtype, before: Callable[[], None]) -> None:
    """Lays the weights out as they are computed with; `before` is called before each layer."""
    coded_experts.settle(module, dtype, before)
    match quantization:
        case "awq":
            from engine.models.quantization import awq_experts
            from engine.models.quantization.awq_linear import make_ready

            awq_experts.settle(module, dtype, before)
            make_ready(module, dtype, before)
        case "mxfp4":
            from engine.models.quantization import mxfp4_loader

            mxfp4_loader.settle(module, dtype, before)
        case "int8" | "int8-plain" | "nf4" | "nf4-double":
            from engine.models.quantization.bitsandbytes import settle

            settle(module, dtype, before)
        case "torchao-int8":
            from engine.models.quantization import torchao

            torchao.settle(module, dtype, before)


def refuse_strays(
    folder: Path, config: Any, module: PreTrainedModel, loading: dict[str, Any], cut: Cut | Pipeline | None = None
) -> None:
    """Raises InvalidInput unless the weights are exactly those that the config's architecture has. `cut`: what made
    this another model than its files'."""
    found = {
        kind: sorted(str(key[0] if isinstance(key, tuple) else key) for key in loading.get(f"{kind}_keys") or ())
        for kind in ("missing", "mismatched", "unexpected")
    }
    found["unexpected"] = [key for key in found["unexpected"] if not REMADE.search(key)]
    found["mismatched"] = found["mismatched"] or _misshapen(module)
    said = [f"{kind} {keys[0]} (of {len(keys)})" for kind, keys in found.items() if keys]
    if said and cut is not None:
        aim, otherwise = ("have their heads repeated", "auto") if isinstance(cut, RepeatedHeads) else ("be split", "1")
        raise InvalidInput(
            f"{cut.words}: the layers of model type {config.model_type!r} are not known well enough "
            f"to {aim} ({', '.join(said)}); use {otherwise}"
        )
    if said:
        raise InvalidInput(
            f"{folder}: its weights are not those of the model that config.json describes ({config.model_type}): "
            f"{', '.join(said)}; fetch the model again, all its files from one place"
        )


def _refuse_no_numbers(folder: Path, module: PreTrainedModel) -> None:
    """Raises InvalidInput where a weight is NaN or infinite: whatever it says would be noise."""
    scales = (named for named in module.named_buffers() if named[0].endswith(".scales"))  # of packed weights
    for name, weight in chain(module.named_parameters(), scales):
        plain = is_plain(weight) and weight.dtype.is_floating_point and weight.dtype.itemsize > 1
        if plain and weight.numel() and not all(edge.isfinite() for edge in torch.aminmax(weight.detach())):
            raise InvalidInput(f"{folder}: the weight {name} holds NaN or infinity; fetch the model again")


def _misshapen(module: PreTrainedModel) -> list[str]:
    """Linear layers that were quantized from a matrix of another shape: of those transformers does not say it."""
    names = []
    for name, part in module.named_modules():
        weight: Any = getattr(part, "weight", None)
        if isinstance(part, torch.nn.Linear) and weight is not None:
            state = getattr(weight, "quant_state", None)  # of bitsandbytes' packed 4-bit weights
            if tuple(weight.shape if state is None else state.shape) != (part.out_features, part.in_features):
                names.append(f"{name}.weight")
    return sorted(names)


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps the warnings and bars of transformers and of quantizers off the terminal while a model is loaded."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.set_verbosity(level)


@contextmanager
def _own_memory() -> Iterator[None]:
    """Has transformers take memory tensor by tensor, and tell where it does not suffice, or a weight is no number.

    Of weights for a GPU it takes all memory at once beforehand; in that one segment those that are joined later leave
    holes, 7 to 14 % of a model, which can never be given back. What a conversion raises (a quantizer's, or experts that
    are merged) it notes, and says in the end that the weight is missing.
    """
    with (
        _replaced(modeling_utils, "caching_allocator_warmup", lambda own: lambda *args, **kwargs: None),
        _replaced(core_model_loading, "log_conversion_errors", _telling),
    ):
        yield


@contextmanager
def _replaced(module: Any, name: str, by: Callable[[Any], Any]) -> Iterator[None]:
    """`by` makes of a function what stands in its place; one that this version of a library lacks stays away."""
    own = getattr(module, name, None)
    if own is None:
        yield
        return
    setattr(module, name, by(own))
    try:
        yield
    finally:
        setattr(module, name, own)


def _telling(own: Callable[..., Any]) -> Callable[..., Any]:
    @contextmanager
    def noted(*args: Any, **kwargs: Any) -> Iterator[None]:
        meant = None
        with own(*args, **kwargs):
            try:
                yield
            except (MemoryError, RuntimeError, InvalidInput, LoadCancelled) as error:
                if not (ran_out(error) or isinstance(error, (torch.AcceleratorError, InvalidInput, LoadCancelled))):
                    raise
                meant = error
        if meant is not None:
            raise meant

    return noted


@contextmanager
def _byte_progress(info: ModelInfo, say: Reporter) -> Iterator[None]:
    """Turns transformers' bar over tensors into bytes, and makes a load that can be cancelled between tensors."""
    set_hook = getattr(transformers.utils.logging, "set_tqdm_hook", None)
    if set_hook is None:
        yield
        return

    class Bar:
        def __init__(self, items: Any = ()) -> None:
            self._items = items

        def __iter__(self) -> Iterator[Any]:
            items = list(self._items)
            names = [str(item[0] if isinstance(item, tuple) else item) for item in items]
            known = [info.tensors[name][1] if name in info.tensors else None for name in names]
            # What several tensors become, an expert's each, has a name of its own: an equal share of all such.
            merged = (info.weight_bytes - sum(size or 0 for size in known)) / max(1, known.count(None))
            done = 0.0
            for item, size in zip(items, known, strict=True):
                say("reading weights", min(round(done), info.weight_bytes), info.weight_bytes)
                yield item
                done += merged if size is None else size

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None: ...

        def __getattr__(self, _: str) -> Any:
            return lambda *args, **kwargs: None

    previous = set_hook(lambda factory, args, kwargs: Bar(*(args[:1] or (kwargs.get("iterable", ()),))))
    try:
        yield
    finally:
        set_hook(previous)
