"""Loads a model with transformers, checks that our attention serves it, and describes it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    MODEL_FOR_MASKED_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
)

from engine.config import InvalidInput, ModelSpec
from engine.models import attention
from engine.models.inspect import ModelInfo, check_files, inspect_folder, resolve
from engine.models.packed_linear import pack_linears
from engine.models.weight_count import count_weights
from engine.progress import LoadCancelled, LoadProgress
from engine.trace.records import ModelCard

Report = Callable[[LoadProgress], None]


@dataclass(slots=True)
class LoadedModel:
    """A model ready to run: transformers' module with our attention, its tokenizer, its facts."""

    module: PreTrainedModel
    tokenizer: Any
    card: ModelCard
    device: torch.device
    dtype: torch.dtype
    eos: frozenset[int]
    layer_kv: list[tuple[int, int]]  # (kv_heads, head_dim) of each layer's cache


def load(spec: ModelSpec, report: Report | None = None, cancelled: threading.Event | None = None) -> LoadedModel:
    """Loads `spec`. Raises InvalidInput for what a person can mend, LoadCancelled when `cancelled` is set."""
    begun = time.perf_counter()
    say = _Reporter(report, cancelled)
    device = _device(spec)
    say("looking at the model")
    folder = resolve(spec)
    if folder is None:
        say("fetching from the hub")
        folder = _fetch(spec)
        check_files(folder, spec.trust_remote_code)
    info = inspect_folder(folder, _name(spec, folder))
    dtype = _dtype(spec, info, device)
    config = _config(folder, spec)
    say("reading the tokenizer")
    tokenizer = _tokenizer(folder, spec)
    module = _weights(folder, spec, config, dtype, device, info, say)
    say("checking attention")
    layer_kv, windows = serve_with_paged_attention(module, device)
    eos = end_tokens(module, tokenizer)
    card = describe(module, tokenizer, spec, info.name, layer_kv, windows)
    pack_linears(module)
    card = replace(card, load_seconds=time.perf_counter() - begun)
    return LoadedModel(module, tokenizer, card, device, dtype, eos, layer_kv)


class _Reporter:
    def __init__(self, report: Report | None, cancelled: threading.Event | None) -> None:
        self._report, self._cancelled = report, cancelled

    def __call__(self, stage: str, done: int = 0, total: int = 0) -> None:
        if self._cancelled is not None and self._cancelled.is_set():
            raise LoadCancelled("the load was cancelled")
        if self._report is not None:
            self._report(LoadProgress(stage, done, total))


def _name(spec: ModelSpec, folder: Path) -> str:
    return {"demo": "demo stories 5M", "demo-draft": "demo draft 0.8M"}.get(
        spec.source, folder.name if Path(spec.source).expanduser().exists() else spec.source
    )


def _device(spec: ModelSpec) -> torch.device:
    if spec.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if spec.device.startswith("cuda"):
        if not torch.cuda.is_available():
            raise InvalidInput(
                f"device={spec.device!r}: no CUDA GPU is usable here; use cpu, or ask `batchscope doctor` why"
            )
        device = torch.device(spec.device)
        if (device.index or 0) >= torch.cuda.device_count():
            raise InvalidInput(f"device={spec.device!r}: this machine has {torch.cuda.device_count()} GPU(s)")
        return device
    return torch.device("cpu")


def _dtype(spec: ModelSpec, info: ModelInfo, device: torch.device) -> torch.dtype:
    name = spec.dtype
    if name == "auto":
        name = "float32" if device.type == "cpu" else info.dtype
    return getattr(torch, name)


def _fetch(spec: ModelSpec) -> Path:
    """The hub's snapshot in the local cache, downloaded where needed: configs, tokenizer and safetensors only."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    wanted = ["*.json", "*.safetensors", "*.jinja", "tokenizer.model", "*.txt"]
    if spec.trust_remote_code:
        wanted.append("*.py")
    try:
        return Path(snapshot_download(spec.source, revision=spec.revision, allow_patterns=wanted))
    except GatedRepoError as error:
        raise InvalidInput(
            f"{spec.source} is gated: accept its licence on its page, then log in with `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise InvalidInput(f"the hub has no model {spec.source!r}, or it is private: check its name") from error
    except (HfHubHTTPError, OSError, RuntimeError, ValueError) as error:
        raise InvalidInput(
            f"cannot fetch {spec.source!r}: the hub cannot be reached and the model is not in the local cache; "
            "check the network, or give the path of a local folder"
        ) from error
    except Exception as error:  # httpx errors, which huggingface_hub passes on as they are
        if type(error).__module__.split(".")[0] in ("httpx", "httpcore", "requests", "huggingface_hub"):
            raise InvalidInput(
                f"cannot fetch {spec.source!r}: {error}; check the network, or give the path of a local folder"
            ) from error
        raise


def _config(folder: Path, spec: ModelSpec) -> Any:
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=spec.trust_remote_code)
    except Exception as error:  # a config checks itself, and raises what it likes
        raise InvalidInput(
            f"{folder}: transformers {transformers.__version__} cannot use this config: {_first_line(error)}"
        ) from error
    if getattr(config, "quantization_config", None) is not None:
        raise InvalidInput(f"{folder} is quantized already; quantized checkpoints are not built yet: use the original")
    if not spec.trust_remote_code:
        refuse_unsupported(config)
    return config


def refuse_unsupported(config: Any) -> None:
    """Raises InvalidInput for a model type that our attention cannot serve."""
    kind = config.model_type
    try:
        cls = AutoModelForCausalLM._model_mapping[type(config)]
    except KeyError as error:
        raise InvalidInput(
            f"model type {kind!r} is not a decoder that generates text; choose a causal model"
        ) from error
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING:  # BERT and its kin have a causal class, and are none
        raise InvalidInput(f"model type {kind!r} fills gaps and does not generate text; choose a causal model")
    if isinstance(cls, tuple):
        cls = cls[0]
    if not cls._supports_attention_backend or cls._is_stateful:
        raise InvalidInput(
            f"model type {kind!r} does not use transformers' attention interface, "
            "so a paged KV cache cannot serve it; choose another architecture (Llama, Qwen, Mistral, Gemma ...)"
        )


def _tokenizer(folder: Path, spec: ModelSpec) -> Any:
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=spec.trust_remote_code)
    except Exception as error:  # tokenizers raises bare Exception for a broken tokenizer.json
        raise InvalidInput(f"{folder}: the tokenizer cannot be read: {_first_line(error)}") from error


def _weights(
    folder: Path,
    spec: ModelSpec,
    config: Any,
    dtype: torch.dtype,
    device: torch.device,
    info: ModelInfo,
    say: _Reporter,
) -> PreTrainedModel:
    total = info.weight_bytes
    say("reading weights", 0, total)
    try:
        with _quiet(), _byte_progress(info, say):
            module, loading = AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                device_map=None if device.type == "cpu" else {"": device},
                attn_implementation="eager",  # every model has it; ours takes its place after the probe
                use_safetensors=True,
                trust_remote_code=spec.trust_remote_code,
                output_loading_info=True,
            )
    except LoadCancelled:
        raise
    except Exception as error:  # each model's code and each file format raises its own
        if isinstance(error, torch.cuda.OutOfMemoryError):
            raise InvalidInput(f"{info.name} does not fit in the GPU's memory: {_first_line(error)}") from error
        raise InvalidInput(f"{folder} cannot be loaded: {_first_line(error)}") from error
    for kind in ("missing_keys", "mismatched_keys"):
        if loading[kind]:
            names = ", ".join(sorted(map(str, loading[kind]))[:3])
            raise InvalidInput(
                f"{folder}: {kind.replace('_', ' ')} in the weights ({names} ...); fetch the model again"
            )
    say("reading weights", total, total)
    return module.eval().requires_grad_(False)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps transformers' warnings and bars off the terminal while it loads."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)


@contextmanager
def _byte_progress(info: ModelInfo, say: _Reporter) -> Iterator[None]:
    """Turns transformers' bar over tensors into bytes, and makes a load that can be cancelled between tensors."""
    set_hook = getattr(transformers.utils.logging, "set_tqdm_hook", None)
    if set_hook is None:
        yield
        return

    class Bar:
        def __init__(self, items: Any = ()) -> None:
            self._items = items

        def __iter__(self) -> Iterator[Any]:
            done = 0
            for item in self._items:
                say("reading weights", min(done, info.weight_bytes), info.weight_bytes)
                yield item
                name = item[0] if isinstance(item, tuple) else item
                done += info.tensors.get(str(name), (0, 0))[1]

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


def serve_with_paged_attention(
    module: PreTrainedModel, device: torch.device
) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
    """Sets our attention and proves with a two-token forward that every layer calls it.

    Returns (kv_heads, head_dim) and the sliding window (0: none) of each layer, read off what the layers really hand
    over. Raises InvalidInput for a model whose layers do not all come through.
    """
    layers = int(module.config.get_text_config().num_hidden_layers)
    shapes: dict[int, tuple[int, int]] = {}
    windows: dict[int, int] = {}

    def probe(
        layer_module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *_: Any,
        sliding_window: int | None = None,
        **__: Any,
    ) -> Any:
        if key.shape == value.shape and isinstance(getattr(layer_module, "layer_idx", None), int):
            shapes[layer_module.layer_idx] = (key.shape[1], key.shape[3])  # type: ignore[index]
            windows[layer_module.layer_idx] = sliding_window or 0  # type: ignore[index]
        return torch.zeros_like(query).transpose(1, 2).contiguous(), None

    probe_name = f"{attention.NAME}_probe"
    attention.ALL_ATTENTION_FUNCTIONS.register(probe_name, probe)
    attention.ALL_MASK_ATTENTION_FUNCTIONS.register(probe_name, lambda *args, **kwargs: None)
    kind = module.config.model_type
    refusal = InvalidInput(
        f"model type {kind!r}: not every layer keeps ordinary keys and values and uses transformers' attention "
        "interface, so a paged KV cache cannot serve it; choose another architecture (Llama, Qwen, Mistral, Gemma ...)"
    )
    try:
        module.set_attn_implementation(probe_name)
        with torch.inference_mode():
            ids = torch.zeros(1, 2, dtype=torch.long, device=device)
            module(input_ids=ids, position_ids=torch.arange(2, device=device)[None], use_cache=False)
        module.set_attn_implementation(attention.NAME)
    except (ValueError, RuntimeError, TypeError, AttributeError, NotImplementedError) as error:
        raise refusal from error
    if sorted(shapes) != list(range(layers)):
        raise refusal
    return [shapes[i] for i in range(layers)], tuple(windows[i] for i in range(layers))


def end_tokens(module: PreTrainedModel, tokenizer: Any) -> frozenset[int]:
    """Every EOS id: of the generation config, the model's config and the tokenizer."""
    ids: set[int] = set()
    for holder in (module.generation_config, module.config.get_text_config(), tokenizer):
        value = getattr(holder, "eos_token_id", None)
        ids |= set(value) if isinstance(value, (list, tuple)) else {value} if value is not None else set()
        if ids:
            break
    return frozenset(ids)


def describe(
    module: PreTrainedModel,
    tokenizer: Any,
    spec: ModelSpec,
    name: str,
    layer_kv: list[tuple[int, int]],
    windows: tuple[int, ...],
) -> ModelCard:
    config = module.config.get_text_config()
    item = module.dtype.itemsize
    kv_heads, head_dim = layer_kv[0]
    weights = count_weights(module)
    return ModelCard(
        name=name,
        source=spec.source,
        architecture=type(module).__name__,
        parameters=module.num_parameters(),
        layers=len(layer_kv),
        heads=int(config.num_attention_heads),
        kv_heads=kv_heads,
        head_dim=head_dim,
        hidden=int(config.hidden_size),
        vocabulary=int(config.vocab_size),
        context=int(getattr(config, "max_position_embeddings", 0) or 0),
        dtype=str(module.dtype).removeprefix("torch."),
        device=str(module.device),
        quantization=spec.quantization,
        weight_bytes=sum(p.numel() * p.element_size() for p in module.parameters()),
        kv_token_bytes=sum(2 * heads * dim * item for heads, dim in layer_kv),
        chat=getattr(tokenizer, "chat_template", None) is not None,
        body_parameters=weights.body,
        expert_parameters=weights.expert,
        experts=weights.experts,
        active_experts=weights.active,
        head_parameters=weights.head,
        bytes_per_weight=weights.bytes_per_weight,
        windows=windows,
    )


def wrap(module: PreTrainedModel, tokenizer: Any, name: str) -> LoadedModel:
    """A module that is in memory already (a random one in a benchmark, say) as a loaded model."""
    device = module.device
    layer_kv, windows = serve_with_paged_attention(module, device)
    card = replace(describe(module, tokenizer, ModelSpec(name), name, layer_kv, windows), source=name)
    pack_linears(module)
    return LoadedModel(module, tokenizer, card, device, module.dtype, end_tokens(module, tokenizer), layer_kv)
