"""bitsandbytes: LLM.int8() (Dettmers et al. 2022) and 4-bit NormalFloat (QLoRA, Dettmers et al. 2023)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

OUTLIERS = 6.0  # from which size a column of the inputs is multiplied in 16 bit: the paper's choice
PACK_ROWS = 32  # outputs that the fused CPU kernel takes at a time


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


def settle(module: nn.Module, before: Callable[[], None]) -> None:
    """Lets each 4-bit layer compute as exactly as its dtype promises.

    Where the processor has bfloat16 products, bitsandbytes lays a layer's weights out anew at its first forward, and
    from then on computes in bfloat16 whatever the dtype of the inputs. So in other dtypes, and for shapes that the
    layout cannot take, that is switched off: weights are dequantized for each product. In bfloat16 the layout is
    changed now, so that the memory taken is known. `before` is called before each layer, and may raise to stop.
    """
    from bitsandbytes.functional import _convert_weight_packed_for_cpu
    from bitsandbytes.nn import Linear4bit

    for layer in module.modules():
        if not isinstance(layer, Linear4bit) or layer.weight.device.type != "cpu":
            continue
        before()
        weight: Any = layer.weight
        state = weight.quant_state
        fused = (
            layer.support_avx512bf16_for_cpu
            and layer.compute_dtype is torch.bfloat16
            and layer.out_features % PACK_ROWS == 0
            and layer.in_features % state.blocksize == 0
        )
        layer.support_avx512bf16_for_cpu = fused
        if fused:
            weight.data, weight.quant_state = _convert_weight_packed_for_cpu(weight.data, state)
