"""What a model's config and the headers of its tensors say, wherever they come from. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from engine.checkpoints.awq_settings import awq_settings, check_group, check_names
from engine.checkpoints.kv_heads import LATENT, OWN, repeated_heads
from engine.checkpoints.mxfp4_settings import METHOD, check_packed, holds_mxfp4
from engine.checkpoints.states import StoredStates, stored_states
from engine.checkpoints.weight_names import sort_weights
from engine.config.checks import shown
from engine.config.schemes import MX_BLOCK, STORED
from engine.config.specs import InvalidInput

DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
TORCH_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
TORCH_NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
CONV1D = ("gpt2", "openai-gpt", "imagegpt")  # model types that store linear weights as [inputs, outputs]
TWICE_WINDOWED = ("mimo_v2_flash",)  # model types whose windowed layers have twice as many heads of keys and values
EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
MLP_WIDTHS = ("intermediate_size", "n_inner", "ffn_dim")  # what configs call the width of a layer's MLP
ACTIVE = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k")

Headers = Mapping[str, tuple[tuple[int, ...], str]]


@dataclass(frozen=True, slots=True)
class StoredQuantization:
    """How a checkpoint was quantized beforehand: `method` as its config says ("awq", "gptq" ...), `bits` of a weight,
    `group` inputs that share a scale (-1: all of a column), `kept` names of modules that were left as they were.
    `problem`: why a checkpoint of a method that is run cannot be run here, "" where it can."""

    method: str
    bits: int
    group: int
    kept: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model as its files describe it; `folder` is None where they are on the hub.

    `parameters` are true weights: a packed int32 of an AWQ checkpoint counts as the eight it holds. `linears` are the
    (inputs, outputs) of the linear layers that a quantization at load converts, or that an AWQ checkpoint holds packed;
    `kv_values` are the elements of a token's keys and values in all layers, `kv_vectors` how many heads they are of,
    and `kv_layers` how many layers keep some: others read theirs.
    `others` the elements of all other weights, `experts` those of `others` in a mixture's experts, `expert_matrices`
    what these are where they can be quantized, (inputs, outputs, how many), `layer_experts` how many a layer has, of
    which a token is sent to the share `asked`. `dtype` is that of most weights as stored (of an AWQ
    checkpoint, of those that are not packed). `mlp` is the width of the MLPs a token goes through in a layer. `window`:
    tokens that its sliding-window layers see, 0 where there are none. `tensors` maps names to (elements, bytes) as
    stored. `kv_heads_stored`: key and value heads of the checkpoint, where each is to be held several times, which all
    else counts; 0 where each is held once. `latent`: K and V are one vector of `head_dim` numbers a layer; where those
    of all heads are to be held instead, they are of one head that is stored. `states`: what is kept by layers that keep
    a state of a sequence.
    """

    name: str
    folder: Path | None
    architecture: str
    model_type: str
    parameters: int
    weight_bytes: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    vocabulary: int
    context: int
    dtype: str
    chat: bool
    tensors: dict[str, tuple[int, int]]
    linears: tuple[tuple[int, int], ...] = ()
    others: int = 0
    kv_values: int = 0
    experts: int = 0
    expert_matrices: tuple[tuple[int, int, int], ...] = ()
    layer_experts: int = 0
    asked: float = 1.0
    mlp: int = 0
    window: int = 0
    tied: bool = False
    conv1d: bool = False
    quantized: StoredQuantization | None = None
    licence: str = ""
    kv_vectors: int = 0
    kv_layers: int = 0
    kv_heads_stored: int = 0
    latent: bool = False
    states: StoredStates = StoredStates()

    @property
    def stored_as(self) -> str:
        """The quantization that the checkpoint holds, of those that are read; "" of a plain one."""
        method = self.quantized.method if self.quantized is not None else ""
        return method if method in STORED else ""

    def kv_token_bytes(self, dtype: str, kv_dtype: str = "auto") -> int:
        """Bytes of one token's K and V: 2 x layers x kv_heads x head_dim x bytes of the dtype (layers being alike); of
        another `kv_dtype` than "auto" 2 x layers x kv_heads x (head_dim + 1)."""
        return self.kv_values * TORCH_BYTES[dtype] if kv_dtype == "auto" else self.kv_values + self.kv_vectors


def inspect_parts(
    config: Mapping[str, Any],
    headers: Headers,
    name: str,
    *,
    kv_heads: int | str = OWN,
    folder: Path | None = None,
    chat: bool = False,
    licence: str = "",
    place: str = "config.json",
) -> ModelInfo:
    """What a config and the headers (shape and dtype of each tensor, as safetensors names them) say, wherever they come
    from, with `kv_heads` as `ModelSpec` has them. `place` is what a message calls the config. Raises InvalidInput for
    values that cannot be."""
    if (repeated := repeated_heads(config, kv_heads)) is not None:
        config, headers = repeated.config(config), repeated.headers(headers)
    nested = config.get("text_config")
    text: dict[str, Any] = {**config, **(nested if isinstance(nested, Mapping) else {})}

    def number(*names: str) -> int:
        """The first of these values that the config has, 0 when it has none."""
        for name in names:
            value = text.get(name)
            if value is not None:
                if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                    raise InvalidInput(
                        f"{place}: {name}={shown(value)} is not a whole number of at least 1; fetch the model again"
                    )
                return value
        return 0

    def some(*names: str) -> int:
        """The same of values that a model can do without: 0 for what is no number, or one a layer."""
        found = (text.get(name) for name in names)
        return next((value for value in map(_largest, found) if value), 0)

    quantized = _stored_quantization(config, headers)
    named = config.get("architectures")
    conv1d = config["model_type"] in CONV1D
    tied = bool(text.get("tie_word_embeddings", False))
    bits = quantized.bits if quantized is not None and quantized.method in ("awq", "gptq") else 0
    weights = sort_weights({key: shape for key, (shape, _) in headers.items()}, tied=tied, conv1d=conv1d, bits=bits)
    tensors = {key: (prod(shape), prod(shape) * DTYPE_BYTES.get(dtype, 1)) for key, (shape, dtype) in headers.items()}
    stored = [dtype for key, (_, dtype) in headers.items() if dtype in TORCH_NAMES and not (bits and ".scales" in key)]
    heads = number("num_attention_heads", "n_head") or 1
    hidden = number("hidden_size", "n_embd")
    wide = some(*MLP_WIDTHS)
    if some(*EXPERTS):
        wide = (some(*ACTIVE) or some(*EXPERTS)) * (some("moe_intermediate_size") or wide)
    layers, kept_heads = number("num_hidden_layers", "n_layer"), number("num_key_value_heads")
    layers = layers or 2 * number("num_layers")  # LongCat-Flash's, of two attentions each
    layers = layers or len(text.get("layers_block_type") or ())
    kept_heads = kept_heads or (1 if text.get("multi_query") else heads)
    head_dim = number("head_dim", "kv_channels") or hidden // heads
    latent = bool(some(LATENT)) and kv_heads == OWN
    if latent:
        kept_heads, head_dim = 1, some(LATENT) + some("qk_rope_head_dim")
    elif some(LATENT):  # every head's keys and values, one as wide as the other
        wide_key = some("qk_nope_head_dim") + some("qk_rope_head_dim")
        kept_heads, head_dim = heads, max(wide_key, some("v_head_dim"))
    kept = max(1, layers - some("num_kv_shared_layers")) if layers else 0  # the last ones read what others keep
    states = stored_states(text, {key: shape for key, (shape, _) in headers.items()})
    kept = states.attend if states.layers else kept
    full = 0  # layers whose heads are of another width
    if some("global_head_dim"):
        full = list(text.get("layer_types") or ())[:kept].count("full_attention")
    vectors = (1 if latent else 2) * (kept - full) * kept_heads
    if config["model_type"] in TWICE_WINDOWED:
        vectors += 2 * list(text.get("layer_types") or ())[:kept].count("sliding_attention") * kept_heads
    full_vectors = 2 * full * (some("num_global_key_value_heads") or kept_heads)
    window = text.get("sliding_window") if text.get("use_sliding_window", True) else 0
    return ModelInfo(
        name=name,
        folder=folder,
        architecture=str(named[0]) if isinstance(named, list) and named else config["model_type"],
        model_type=config["model_type"],
        parameters=weights.parameters,
        weight_bytes=sum(size for _, size in tensors.values()),
        layers=layers,
        heads=heads,
        kv_heads=kept_heads,
        head_dim=head_dim,
        hidden=hidden,
        vocabulary=number("vocab_size"),
        context=min(filter(None, (number("max_position_embeddings", "n_positions"), unstretched(text))), default=0),
        dtype=TORCH_NAMES[max(sorted(set(stored)), key=stored.count)] if stored else "float32",
        chat=chat,
        tensors=tensors,
        linears=weights.linears,
        others=weights.others,
        kv_values=vectors * head_dim + full_vectors * some("global_head_dim"),
        experts=weights.experts,
        expert_matrices=weights.expert_matrices,
        layer_experts=some(*EXPERTS),
        asked=min(1.0, some(*ACTIVE) / some(*EXPERTS)) if some(*EXPERTS) and some(*ACTIVE) else 1.0,
        mlp=wide,
        window=window if isinstance(window, int) else 0,
        tied=tied,
        conv1d=conv1d,
        quantized=quantized,
        licence=licence,
        kv_vectors=vectors + full_vectors,
        kv_layers=kept,
        kv_heads_stored=repeated.own if repeated is not None else 1 if some(LATENT) and not latent else 0,
        latent=latent,
        states=states,
    )


def unstretched(config: Mapping[str, Any]) -> int:
    """The tokens up to which a model with LongRoPE keeps its short factors; 0 for any other. One row beyond them would
    turn its whole batch by the long ones, and what it has in the cache no longer fits: so it is served up to there."""
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    for each in (rope, *rope.values()) if isinstance(rope, Mapping) else ():  # of all layers, or by their kind
        if isinstance(each, Mapping) and each.get("rope_type", each.get("type")) in ("longrope", "su"):
            return max(_largest(told.get("original_max_position_embeddings")) for told in (each, config))
    return 0


def _largest(value: object) -> int:
    """A whole number, or the largest of a list of them, one a layer; 0 for anything else."""
    values = value if isinstance(value, list) else [value]
    return max((each for each in values if isinstance(each, int) and not isinstance(each, bool)), default=0)


def _stored_quantization(config: Mapping[str, Any], headers: Headers) -> StoredQuantization | None:
    values = config.get("quantization_config")
    if not isinstance(values, Mapping):
        return None
    if holds_mxfp4(config):
        return StoredQuantization(METHOD, 4, MX_BLOCK, problem=_mxfp4_problem(config, headers))
    bits = values.get("bits", values.get("w_bit", 0))
    group = values.get("group_size", values.get("q_group_size", 0))
    return StoredQuantization(
        str(values.get("quant_method", "unknown")).lower(),
        bits if isinstance(bits, int) else 0,
        group if isinstance(group, int) else 0,
        tuple(map(str, values.get("modules_to_not_convert") or ())),
        _awq_problem(config, headers),
    )


def _mxfp4_problem(config: Mapping[str, Any], headers: Headers) -> str:
    """What a load would refuse an MXFP4 checkpoint for."""
    try:
        check_packed({name: shape for name, (shape, _) in headers.items()}, config["model_type"])
    except InvalidInput as error:
        return str(error)
    return ""


def _awq_problem(config: Mapping[str, Any], headers: Headers) -> str:
    """What a load would refuse an AWQ checkpoint for."""
    try:
        settings = awq_settings(config)
        if settings is not None:
            check_names(headers, config["model_type"])
            for name, (zeros, _) in headers.items():
                module = name.removesuffix(".qzeros")
                if module != name and f"{module}.qweight" in headers:
                    check_group(settings, module, headers[f"{module}.qweight"][0][0], zeros[0])
    except InvalidInput as error:
        return str(error)
    return ""
