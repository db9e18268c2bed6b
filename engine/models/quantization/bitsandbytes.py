"""bitsandbytes: LLM.int8() (Dettmers et al. 2022) and 4-bit NormalFloat (QLoRA, Dettmers et al. 2023)."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from engine.memory.weight_bytes import FUSED_OUTPUTS
from engine.models.quantization.passing_weight import multiply, wanted

OUTLIERS = 6.0  # from which size a column of the inputs is multiplied in 16 bit: the paper's choice


def bits_config(name: str, dtype: torch.dtype) -> Any:
    """What `from_pretrained` takes as `quantization_config`."""
    from transformers import BitsAndBytesConfig

    match name:
        case "int8" | "int8-plain":
            return BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=OUTLIERS if name == "int8" else 0.0)
        case "nf4" | "nf4-double":
            return BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=name == "nf4-double",
                bnb_4bit_compute_dtype=dtype,
            )
    raise ValueError(name)


class Dequantized4bitLinear(nn.Module):
    """A 4-bit layer that is multiplied in the dtype of its inputs, dequantized anew for each product: on a CPU.
    bitsandbytes' own layer computes in bfloat16 there, whatever the dtype, once its weights are laid out for that."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        from bitsandbytes.functional import dequantize_4bit

        quantized: Any = self.weight
        return multiply(x, dequantize_4bit(quantized.data, quantized.quant_state), self.bias)


def settle(module: nn.Module, before: Callable[[], None]) -> None:
    """Gives each 4-bit layer on a CPU the form it computes in; `before` is called before each, and may raise to stop.

    In bfloat16, where the processor has products of it, weights are laid out now as bitsandbytes would at their first
    forward, so that the memory they take is known; their scales are bfloat16 from then on. In other dtypes, and for
    sizes that this layout cannot take, they are dequantized for each product.
    """
    from bitsandbytes.functional import _convert_weight_packed_for_cpu
    from bitsandbytes.nn import Linear4bit

    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if not isinstance(layer, Linear4bit) or layer.weight.device.type != "cpu":
                continue
            before()
            weight: Any = layer.weight
            state = weight.quant_state
            fused = layer.support_avx512bf16_for_cpu and layer.compute_dtype is torch.bfloat16
            if fused and layer.out_features % FUSED_OUTPUTS == 0 and layer.in_features % state.blocksize == 0:
                weight.data, weight.quant_state = _convert_weight_packed_for_cpu(weight.data, state)
            else:
                state.dtype = wanted(state.dtype)
                setattr(parent, name, Dequantized4bitLinear(layer))
