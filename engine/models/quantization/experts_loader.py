"""Lets transformers read a mixture's experts into codes, layer by layer, beside the linear layers that bitsandbytes and
torchao convert, through its public hooks for quantizers: those libraries' own leave experts as they are, which are most
of such a model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from transformers.core_model_loading import ConversionOps
from transformers.quantizers import register_quantizer
from transformers.quantizers.quantizer_bnb_4bit import Bnb4BitHfQuantizer
from transformers.quantizers.quantizer_bnb_8bit import Bnb8BitHfQuantizer
from transformers.quantizers.quantizer_torchao import TorchAoHfQuantizer

from engine.config.schemes import BLOCK
from engine.config.specs import InvalidInput
from engine.kernels.products.codes import Codes
from engine.kernels.products.coding import Coding
from engine.models.expert_weights import WEIGHTS, held_by_experts, our_layout
from engine.models.quantization.bitsandbytes import eight_bit_codes, four_bit_codes
from engine.models.quantization.coded_experts import coded
from engine.models.quantization.torchao import int8_codes
from engine.models.routing import holds_experts

FOUR, EIGHT, TORCHAO = "engine_4bit", "engine_8bit", "engine_torchao"  # the methods of quantization configs


def with_experts(config: Any) -> Any:
    """A library's quantization config, by which experts are quantized too. Changes it."""
    if hasattr(config, "load_in_4bit"):
        config.quant_method = FOUR if config.load_in_4bit else EIGHT
    else:
        config.quant_method = TORCHAO
    return config


class Coded(ConversionOps):
    """Experts' weights as codes; all others as the library converts them. Raises InvalidInput for weights that are no
    numbers: of codes that cannot be told."""

    def __init__(self, quantizer: Any, others: Any) -> None:
        self.quantizer, self.others = quantizer, others

    def convert(self, input_dict: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        for name, value in input_dict.items():
            for weight in value if isinstance(value, list) else [value]:
                if weight.numel() and not all(edge.isfinite() for edge in torch.aminmax(weight)):
                    raise InvalidInput(f"the weight {name} holds NaN or infinity; fetch the model again")
        if not input_dict.keys() <= self.quantizer.expert_weights.keys():
            return dict(self.others.convert(input_dict, *args, **kwargs))
        weights = {name: value[0] if isinstance(value, list) else value for name, value in input_dict.items()}
        for name, weight in weights.items():
            told = self.quantizer.expert_weights[name]
            if tuple(weight.shape) != told:
                raise InvalidInput(
                    f"the weight {name} is {list(weight.shape)} where config.json describes {list(told)}; fetch the "
                    "model again, all its files from one place"
                )
        with torch.no_grad():
            return {name: coded(self._ours(name, weight), self.quantizer.code()) for name, weight in weights.items()}

    def _ours(self, name: str, weight: Tensor) -> Iterable[Tensor]:
        """Each expert's, `[outputs, inputs]`."""
        path, _, leaf = name.rpartition(".")
        return (our_layout(one, leaf) for one in weight) if path in self.quantizer.in_turn else weight


class CodesExperts:
    """Before the class of a library's quantizer: it converts the experts too that are `held_by_experts`, of inputs that
    are multiples of `each`."""

    each: int
    expert_weights: Mapping[str, tuple[int, ...]] = MappingProxyType({})  # by name: their shapes
    in_turn: Collection[str] = ()  # the paths of experts that are held as `own_layout` says

    def code(self) -> Callable[[Tensor], Codes]:
        """What makes codes of a weight `[outputs, inputs]`."""
        raise NotImplementedError

    def _process_model_before_weight_loading(self, model: Any, **kwargs: Any) -> None:
        super()._process_model_before_weight_loading(model, **kwargs)  # type: ignore[misc]
        found = {
            path: (part, held)
            for path, part in model.named_modules()
            if holds_experts(path, part) and (held := held_by_experts(part)) is not None
            if not any(weight.shape[-1] % self.each for weight in (held.gate_up, held.down))
        }
        self.in_turn = {path for path, (_, held) in found.items() if held.in_turn}
        self.expert_weights = {
            f"{path}.{name}": tuple(getattr(part, name).shape) for path, (part, _) in found.items() for name in WEIGHTS
        }

    def param_needs_quantization(self, model: Any, param_name: str, **kwargs: Any) -> bool:
        if param_name in self.expert_weights:
            return True
        return bool(super().param_needs_quantization(model, param_name, **kwargs))  # type: ignore[misc]

    def get_quantize_ops(self) -> Coded:
        return self.coded(super().get_quantize_ops())  # type: ignore[misc]

    def coded(self, others: Any) -> Coded:
        """What converts the experts, and by `others` all else."""
        return Coded(self, others)


@register_quantizer(FOUR)
class FourBitQuantizer(CodesExperts, Bnb4BitHfQuantizer):
    each = BLOCK

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tables = dict[bytes, Tensor]()

    def code(self) -> Callable[[Tensor], Codes]:
        twice = self.quantization_config.bnb_4bit_use_double_quant
        return partial(four_bit_codes, twice=twice, tables=self._tables)


@register_quantizer(EIGHT)
class EightBitQuantizer(CodesExperts, Bnb8BitHfQuantizer):
    each = Coding.BYTES.word

    def code(self) -> Callable[[Tensor], Codes]:
        return eight_bit_codes


@register_quantizer(TORCHAO)
class TorchAoQuantizer(CodesExperts, TorchAoHfQuantizer):
    each = Coding.BYTES.word

    def code(self) -> Callable[[Tensor], Codes]:
        return int8_codes
