"""A checkpoint's files up to its weights: read, and what it is refused for."""

from pathlib import Path
from typing import Any

import transformers
from transformers import MODEL_FOR_MASKED_LM_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer

from engine.checkpoints.architectures import REASONS, why_probed
from engine.config.schemes import SCHEMES, STORED, missing
from engine.config.specs import InvalidInput, ModelSpec


def transformers_config(folder: Path, spec: ModelSpec) -> Any:
    """Raises InvalidInput for one that transformers cannot use or our attention cannot serve."""
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=spec.trust_remote_code)
    except Exception as error:  # a config checks itself, and raises what it likes
        raise InvalidInput(
            f"{folder}: transformers {transformers.__version__} cannot use this config: {first_line(error)}"
        ) from error
    if not spec.trust_remote_code:
        refuse_unsupported(config)
        if why := why_probed(config.model_type):
            raise InvalidInput(why)
    return config


def quantization_of(folder: Path, spec: ModelSpec, config: Any) -> str:
    """How the weights will be held: as the checkpoint was quantized beforehand, else as asked for. Raises InvalidInput
    where the two do not go together, or what is needed is not installed."""
    stored = getattr(config, "quantization_config", None)
    if stored is None:
        if spec.quantization == "awq":
            raise InvalidInput(
                f"{folder} is not an AWQ checkpoint: make one with `batchscope quantize {spec.source} --to awq`, "
                "or choose a quantization that is made at load, such as nf4"
            )
        lacking = missing(spec.quantization)
        if lacking:
            raise InvalidInput(f"quantization={spec.quantization!r}: {lacking}")
        return spec.quantization
    values = stored if isinstance(stored, dict) else stored.to_dict()
    method = str(values.get("quant_method", "unknown"))
    if method not in STORED:
        raise InvalidInput(
            f"{folder} is quantized already, as {method!r}, which is not supported: "
            "use the original model, or an AWQ checkpoint of it"
        )
    if spec.quantization not in ("none", method):
        raise InvalidInput(
            f"{folder} is quantized already, as {SCHEMES[method].title}, and cannot be quantized again as "
            f"{spec.quantization}: choose none or {method}, or use the original model"
        )
    return method


def refuse_unsupported(config: Any) -> None:
    """Raises InvalidInput for a model type that our attention cannot serve."""
    kind = config.model_type
    try:
        cls = AutoModelForCausalLM._model_mapping[type(config)]
    except KeyError as error:
        raise InvalidInput(f"model type {kind!r} {REASONS['no decoder']}") from error
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING:  # BERT and its kin have a causal class, and are none
        raise InvalidInput(f"model type {kind!r} {REASONS['masked']}")
    if isinstance(cls, tuple):
        cls = cls[0]
    if not cls._supports_attention_backend and not cls._is_stateful:
        raise InvalidInput(f"model type {kind!r} {REASONS['no interface']}")


def read_tokenizer(folder: Path, spec: ModelSpec) -> Any:
    """Raises InvalidInput for one that cannot be read."""
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=spec.trust_remote_code)
    except Exception as error:  # tokenizers raises bare Exception for a broken tokenizer.json
        raise InvalidInput(
            f"{folder}: the tokenizer cannot be read: {first_line(error)}; fetch the model's tokenizer files again"
        ) from error


def first_line(error: BaseException) -> str:
    """What an error says, short enough for a message of ours; of one that only announces it, the second line too."""
    first, *more = (str(error).strip() or type(error).__name__).splitlines()
    return (f"{first} {more[0].strip()}" if first.endswith(":") and more else first)[:300]
