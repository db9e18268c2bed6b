"""Lets transformers read MXFP4: gpt-oss' checkpoints, whose experts are held so, and mixtures whose experts are made so
while they are read. All else stays as it is.

transformers' own MXFP4 needs kernels from its hub, or makes 16 bits of it: a quantization method of our name goes its
own way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from engine.checkpoints.mxfp4_settings import PACKED, Shapes, check_packed
from engine.config.schemes import MX_BLOCK
from engine.config.specs import InvalidInput
from engine.kernels.products.codes import Codes
from engine.models.expert_weights import BIASES, WEIGHTS, HeldExperts, held_by_experts, in_halves
from engine.models.quantization.coded_experts import CodedExperts
from engine.models.quantization.experts_loader import CodesExperts
from engine.models.quantization.mxfp4 import NO_NUMBER, mxfp4_codes, of_blocks
from engine.models.routing import holds_experts

METHOD, STORED_METHOD = "engine_mxfp4", "engine_mxfp4_stored"


@register_quantization_config(METHOD)
class Mxfp4Config(QuantizationConfigMixin):
    """Nothing is to be chosen."""

    def __init__(self, quant_method: str = METHOD, **_: Any) -> None:
        self.quant_method = quant_method


@register_quantization_config(STORED_METHOD)
class StoredMxfp4Config(QuantizationConfigMixin):
    """Of a checkpoint that holds its experts so, and the shapes of what is read."""

    def __init__(self, shapes: Shapes, quant_method: str = STORED_METHOD, **_: Any) -> None:
        self.quant_method = quant_method
        self.shapes = shapes


@register_quantizer(METHOD)
class Mxfp4Quantizer(CodesExperts, HfQuantizer):
    """Raises InvalidInput for a model without experts that can be held so."""

    requires_calibration = False
    each = MX_BLOCK

    def _process_model_before_weight_loading(self, model: Any, **kwargs: Any) -> None:
        super()._process_model_before_weight_loading(model, **kwargs)
        if not self.expert_weights:
            raise InvalidInput(
                f"quantization='mxfp4' is of a mixture's experts, and model type {model.config.model_type!r} has none "
                f"here whose widths groups of {MX_BLOCK} divide; choose nf4"
            )

    def code(self) -> Callable[[Tensor], Codes]:
        return mxfp4_codes

    def is_serializable(self, *_: Any, **__: Any) -> bool:
        return False

    @property
    def is_trainable(self) -> bool:
        return False

    def get_quantize_ops(self) -> Any:
        return self.coded(None)  # there are no others


@register_quantizer(STORED_METHOD)
class StoredMxfp4Quantizer(HfQuantizer):
    """Puts a `StoredExperts` in the place of each layer's experts before weights are read. Raises InvalidInput where
    config and weights contradict each other."""

    requires_calibration = True

    def _process_model_before_weight_loading(self, model: Any, **_: Any) -> None:
        shapes = self.quantization_config.shapes
        check_packed(shapes, model.config.model_type)
        for path, part in list(model.named_modules()):
            if holds_experts(path, part) and f"{path}.{PACKED[0]}" in shapes:
                held = held_by_experts(part)
                if held is None or not held.in_turn:
                    raise InvalidInput(
                        f"{path} is MXFP4, and model type {model.config.model_type!r} holds its experts in a layout "
                        "that MXFP4 is not run for; use the original model"
                    )
                model.set_submodule(path, StoredExperts(part, held))

    def is_serializable(self, *_: Any, **__: Any) -> bool:
        return False

    @property
    def is_trainable(self) -> bool:
        return False


class StoredExperts(nn.Module):
    """What a checkpoint is read into, in the place of a layer's experts; `ready` makes what computes of it."""

    def __init__(self, own: Any, held: HeldExperts) -> None:
        super().__init__()
        assert held.biases is not None
        self._own = (own,)  # not a part of this one: it holds no weights
        experts, hidden, columns = held.down.shape
        sizes = {WEIGHTS[0]: (2 * columns, hidden), WEIGHTS[1]: (hidden, columns)}
        for (name, (outputs, inputs)), bias in zip(sizes.items(), BIASES, strict=True):
            shape = experts, outputs, inputs // MX_BLOCK
            blocks, scales = torch.empty(*shape, MX_BLOCK // 2, device="meta"), torch.empty(shape, device="meta")
            self.register_buffer(f"{name}_blocks", blocks.to(torch.uint8))
            self.register_buffer(f"{name}_scales", scales.to(torch.uint8))
            self.register_parameter(bias, getattr(own, bias))

    def ready(self, path: str, dtype: torch.dtype) -> CodedExperts:
        """What computes of these codes, for tokens of that dtype. Raises InvalidInput for scales that are none."""
        made: list[Codes] = []
        for name in WEIGHTS:
            blocks, scales = getattr(self, f"{name}_blocks"), getattr(self, f"{name}_scales")
            if (scales == NO_NUMBER).any():
                raise InvalidInput(f"the weight {path}.{name}_scales holds NaN; fetch the model again")
            if name == WEIGHTS[0]:
                blocks, scales = (in_halves(x, 1).flatten(1, 2) for x in (blocks, scales))
            made.append(of_blocks(blocks, scales))
        own = self._own[0]
        for bias in BIASES:
            setattr(own, bias, getattr(self, bias))
        return CodedExperts(own, made[0], made[1], dtype)


def stored_arguments(config: Any, shapes: Shapes) -> dict[str, Any]:
    """What `from_pretrained` is to be given, so that it reads tensors of these shapes as MXFP4 our way. Changes
    `config`."""
    config.quantization_config = {"quant_method": STORED_METHOD, "shapes": dict(shapes)}
    return {"config": config}


def settle(module: nn.Module, dtype: torch.dtype, before: Callable[[], None]) -> None:
    """Gives each layer whose experts were read so what computes of them; `before` is called before each, and may raise
    to stop."""
    for path in [path for path, part in module.named_modules() if isinstance(part, StoredExperts)]:
        before()
        part = module.get_submodule(path)
        assert isinstance(part, StoredExperts)
        module.set_submodule(path, part.ready(path, dtype))
        del part  # what it held is freed before the next
