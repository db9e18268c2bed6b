"""What a loaded model is: that our attention serves it, the tokens that end its texts, its card."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.checkpoints.architectures import INSTEAD
from engine.checkpoints.info import unstretched
from engine.config.specs import InvalidInput
from engine.kernels.attention.tilings import WIDEST
from engine.memory.allocator import ran_out
from engine.memory.layer_kv import LayerKV, kv_token_bytes
from engine.models import attention
from engine.models.config import first_line
from engine.models.latent import absorbed
from engine.models.states import States
from engine.models.weight_count import count_weights, held_bytes
from engine.trace.records import ModelCard

ALONE = ("mlp", "moe")  # kinds of layers
_Place = tuple[int, tuple[int, ...], tuple[int, ...]]  # where a tensor lies: address, shape, strides


def serve_with_paged_attention(
    module: PreTrainedModel, device: torch.device, held: range | None = None, states: States | None = None
) -> tuple[list[LayerKV], dict[int, int]]:
    """Sets our attention and proves with a two-token forward that every layer calls it, or, of a stage, those `held`,
    but for those that keep `states` instead.

    Returns what each layer keeps that has keys and values of its own, and by their numbers the sliding window (0: none)
    of the layers that attend, read off what the layers really hand over: one that hands over what an earlier layer did
    shares that layer's cache. Raises InvalidInput for a model whose layers do not all come through.
    """
    layers = held or range(int(module.config.get_text_config().num_hidden_layers))
    handed: dict[int, tuple[Any, Tensor, Tensor]] = {}  # held, so that no two lie in one place
    windows: dict[int, int] = {}

    def probe(
        layer: Any, q: Tensor, k: Tensor, v: Tensor, *_: Any, sliding_window: int | None = None, **__: Any
    ) -> Any:
        if (
            k.shape[:-1] == v.shape[:-1]
            and v.shape[-1] <= k.shape[-1]
            and isinstance(getattr(layer, "layer_idx", None), int)
        ):
            handed[layer.layer_idx] = layer, k, v
            windows[layer.layer_idx] = sliding_window or 0
        wide = torch.zeros_like(v).transpose(1, 2)[:, :, :1].expand(-1, -1, q.shape[1], -1).contiguous()
        return wide if (latent := absorbed(layer)) is None else latent.values(wide), None

    probe_name = f"{attention.NAME}_probe"
    attention.ALL_ATTENTION_FUNCTIONS.register(probe_name, probe)
    kind = module.config.model_type
    try:
        with proving(module), torch.inference_mode():
            module.set_attn_implementation(probe_name)
            ids = torch.zeros(1, 2, dtype=torch.long, device=device)
            module(input_ids=ids, position_ids=torch.arange(2, device=device)[None], use_cache=False)
            module.set_attn_implementation(attention.NAME)
    finally:
        seen = dict(handed)
        handed.clear()  # transformers keeps the probe for ever, and with it whatever that holds on to
    if not seen or {*seen, *_others(module, states)} != set(layers):
        raise _unserved(kind)
    kept: dict[tuple[_Place, _Place], int] = {}
    for i in sorted(seen):
        layer, k, v = seen[i]
        setattr(layer, attention.CACHE, kept.setdefault((_place(k), _place(v)), len(kept)))
    own = [LayerKV(heads, dim, latent=keys == values) for keys, values in kept for _, heads, _, dim in [keys[1]]]
    _refuse_wide_heads(kind, device, module.dtype, max(kv.dim for kv in own))
    return own, dict(sorted(windows.items()))


def _others(module: PreTrainedModel, states: States | None) -> set[int]:
    """Of a hybrid the layers that keep states, and those in which no token hears of another."""
    kinds = getattr(module.config.get_text_config(), "layer_types", None) or ()
    return set() if states is None else {*states.layers, *(i for i, kind in enumerate(kinds) if kind in ALONE)}


@contextmanager
def proving(module: PreTrainedModel) -> Iterator[None]:
    """Of a model that does not come through what is tried within, raises InvalidInput."""
    kind, device = module.config.model_type, module.device
    try:
        yield
    except (ValueError, RuntimeError, TypeError, AttributeError, NotImplementedError, MemoryError) as error:
        if ran_out(error):
            raise no_room(kind, device, error) from error
        if isinstance(error, torch.AcceleratorError):  # the GPU's, whatever runs on it
            raise
        raise _unserved(kind) from error


def _unserved(kind: str) -> InvalidInput:
    return InvalidInput(
        f"model type {kind!r}: not every layer keeps keys and values, or a state, as transformers' interfaces have it, "
        f"so it cannot be served; {INSTEAD}"
    )


def no_room(what: str, device: torch.device, error: BaseException) -> InvalidInput:
    """What a load is refused with whose memory does not suffice."""
    where = "memory" if device.type == "cpu" else "the GPU's memory"
    return InvalidInput(f"{what} does not fit in {where}: {first_line(error)}")


def _refuse_wide_heads(kind: str, device: torch.device, dtype: torch.dtype, widest: int) -> None:
    most = WIDEST if dtype.itemsize < 4 else WIDEST // 2
    if device.type == "cuda" and widest > most:
        told, instead = str(dtype).removeprefix("torch."), "choose bfloat16, or " if widest <= WIDEST else ""
        raise InvalidInput(
            f"model type {kind!r}: its attention heads are {widest} wide, and our GPU kernels serve up to {most} in "
            f"{told}: {instead}run it on the CPU"
        )


def _place(x: Tensor) -> _Place:
    return x.data_ptr(), tuple(x.shape), x.stride()


def hold_rotation(module: PreTrainedModel) -> None:
    """Keeps the angles that the model was loaded with: transformers would choose them anew for the longest row of each
    step, and wait for the GPU to know it. What a card's context holds needs no others."""
    for part in module.modules():
        if kinds := vars(part).get("rope_type"):
            part.rope_type = dict.fromkeys(kinds, "default") if isinstance(kinds, dict) else "default"


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
    source: str,
    name: str,
    quantization: str,
    layer_kv: list[LayerKV],
    windows: dict[int, int],
    states: States | None = None,
) -> ModelCard:
    """The card of a module, its linear layers packed or not; `quantization` as it was really loaded."""
    config = module.config.get_text_config()
    item = module.dtype.itemsize
    kept, layers = layer_kv[0], len({*windows, *_others(module, states)})
    context, limit = int(getattr(config, "max_position_embeddings", 0) or 0), unstretched(config.to_dict())
    return ModelCard(
        name=name,
        source=source,
        architecture=type(module).__name__,
        layers=layers,
        heads=int(config.num_attention_heads),
        kv_heads=kept.heads,
        head_dim=kept.dim,
        latent=kept.latent,
        hidden=int(config.hidden_size),
        vocabulary=int(config.vocab_size),
        context=min(context, limit or context),
        stretched=context if limit else 0,
        dtype=str(module.dtype).removeprefix("torch."),
        device=str(module.device),
        quantization=quantization,
        weight_bytes=held_bytes(module),
        kv_token_bytes=kv_token_bytes(layer_kv, item),
        kv_layers=len(layer_kv),
        chat=getattr(tokenizer, "chat_template", None) is not None,
        windows=tuple(windows.values()),
        attending=() if len(windows) == layers else tuple(windows),
        state_layers=() if states is None else tuple(states.layers),
        state_bytes=0 if states is None else states.bytes,
        **asdict(count_weights(module)),
    )
