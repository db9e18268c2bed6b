"""Lets transformers load AWQ checkpoints into `AwqLinear`, through its public hooks for quantizers.

transformers' own AWQ needs gptqmodel; a quantization method of our name goes its own way: `awq_arguments` renames the
method in a config, and `from_pretrained` does the rest.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from engine.checkpoints.awq_settings import AwqSettings, check_group, check_names
from engine.config.specs import InvalidInput
from engine.models.quantization.awq_experts import AwqExperts, packed_experts, sizes
from engine.models.quantization.awq_layout import COLUMNS
from engine.models.quantization.awq_linear import AwqLinear

METHOD = "engine_awq"
Shapes = Mapping[str, tuple[int, ...]]


@register_quantization_config(METHOD)
class AwqConfig(QuantizationConfigMixin):
    """`AwqSettings` as transformers carries them, and the shapes of what is read."""

    def __init__(
        self, group: int, skipped: Sequence[str], shapes: Shapes, quant_method: str = METHOD, **_: Any
    ) -> None:
        self.quant_method = quant_method
        self.group = group
        self.skipped = list(skipped)
        self.shapes = shapes


@register_quantizer(METHOD)
class AwqQuantizer(HfQuantizer):
    """Puts an `AwqLinear` in the place of each linear layer that the checkpoint holds packed, before weights are read.
    Raises InvalidInput when config and weights contradict each other."""

    requires_calibration = True

    def _process_model_before_weight_loading(self, model: Any, **_: Any) -> None:
        told = self.quantization_config
        swap_linears(model, AwqSettings(told.group, tuple(told.skipped)), told.shapes)

    def is_serializable(self, *_: Any, **__: Any) -> bool:
        return False

    @property
    def is_trainable(self) -> bool:
        return False


def awq_arguments(config: Any, settings: AwqSettings, shapes: Shapes) -> dict[str, Any]:
    """What `from_pretrained` is to be given, so that it reads tensors of these shapes as AWQ our way. Changes
    `config`."""
    for part in (config, config.get_text_config()):
        if getattr(part, "quantization_config", None) is not None:
            del part.quantization_config
    told = {"group": settings.group, "skipped": list(settings.skipped), "shapes": dict(shapes)}
    config.quantization_config = {"quant_method": METHOD, **told}
    return {"config": config}


def swap_linears(model: Any, settings: AwqSettings, shapes: Shapes) -> None:
    """Swaps the linears that are packed in the checkpoint, after all of them have been checked against the config."""
    kind = model.config.model_type
    check_names(shapes, kind)
    linears = {name: part for name, part in model.named_modules() if type(part) is nn.Linear}
    head = model.get_output_embeddings()
    for name, linear in linears.items():
        _check(name, linear, linear is head, settings, shapes)
    mixtures = list(packed_experts(model, shapes))
    for _, part, names in mixtures:
        for (_, role), name in names.items():
            _check_sizes(name, *sizes(part, role), settings, shapes)
    packed = {name.removesuffix(".qweight") for name in shapes if name.endswith(".qweight")}
    packed -= {name for *_, names in mixtures for name in names.values()}
    if strangers := sorted(packed - linears.keys()):
        raise InvalidInput(
            f"model type {kind!r}: this checkpoint holds {strangers[0]} as AWQ, which is no linear layer of the model "
            "here, so it cannot be loaded; use the original model"
        )
    for name in sorted(packed):
        linear = linears[name]
        bias = None if linear.bias is None else linear.bias.dtype
        with torch.device("meta"):
            swapped = AwqLinear(linear.in_features, linear.out_features, settings.group, bias)
        model.set_submodule(name, swapped)
    for path, part, names in mixtures:
        model.set_submodule(path, AwqExperts(part, names, settings.group))


def _check(name: str, linear: nn.Linear, is_head: bool, settings: AwqSettings, shapes: Shapes) -> None:
    if f"{name}.qweight" not in shapes:
        if f"{name}.weight" in shapes and not is_head and not settings.skips(name):
            raise InvalidInput(
                f"config.json says that {name} is AWQ, but its weights are not packed; fetch the model again"
            )
        return
    _check_packed(name, settings)
    _check_sizes(name, linear.in_features, linear.out_features, settings, shapes)


def _check_packed(name: str, settings: AwqSettings) -> None:
    if settings.skips(name):
        raise InvalidInput(
            f"config.json says that {name} is not quantized (modules_to_not_convert), but its weights are AWQ; "
            "fetch the model again"
        )


def _check_sizes(name: str, inputs: int, outputs: int, settings: AwqSettings, shapes: Shapes) -> None:
    qweight, qzeros = shapes[f"{name}.qweight"], shapes.get(f"{name}.qzeros")
    if qzeros is None:
        raise InvalidInput(f"the AWQ weights of {name} have no qzeros; fetch the model again")
    if qweight != (inputs, outputs // COLUMNS) or outputs % COLUMNS:
        raise InvalidInput(
            f"the AWQ weights of {name} are {list(qweight)} where {inputs} inputs and {outputs} outputs take "
            f"{[inputs, outputs // COLUMNS]}: config.json is another model's; fetch the model again"
        )
    check_group(settings, name, inputs, qzeros[0])
