"""bitsandbytes: LLM.int8() (Dettmers et al. 2022) and 4-bit NormalFloat (QLoRA, Dettmers et al. 2023)."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from engine.kernels.cpu.codes import multiplies
from engine.kernels.products.codes import SHARED, Codes
from engine.kernels.products.coding import Coding
from engine.models.quantization.coded_linear import CodedLinear
from engine.models.quantization.passing_weight import multiply, wanted

NAME = "bitsandbytes"
OUTLIERS = 6.0  # from which size a column of the inputs is multiplied in 16 bit: the paper's choice
LARGEST = 127  # code of 8 bits
FLOAT16 = 60_000.0  # less than its largest number
COMPILING: dict[str, Any] = {name: vars(torch)[name] for name in ("compile", "_disable_dynamo") if name in vars(torch)}


@cache
def library() -> Any:
    """bitsandbytes, its functions marked neither for torch's compiler nor against it: no engine compiles any, and the
    marks alone import all of the compiler, 1.4 s and 75 MB in each process."""
    try:
        vars(torch).update(dict.fromkeys(COMPILING, _unmarked))
        return import_module(NAME)
    finally:
        vars(torch).update(COMPILING)


def _unmarked(function: Any = None, **_: Any) -> Any:
    return _unmarked if function is None else function


def bits_config(name: str, dtype: torch.dtype, kept: list[str] | None = None) -> Any:
    """What `from_pretrained` takes as `quantization_config`; `kept` are the layers that stay as they are, the output
    layer among them, where it is not that alone."""
    from transformers import BitsAndBytesConfig

    library()  # before transformers imports it
    match name:
        case "int8" | "int8-plain":
            return BitsAndBytesConfig(
                load_in_8bit=True, llm_int8_threshold=OUTLIERS if name == "int8" else 0.0, llm_int8_skip_modules=kept
            )
        case "nf4" | "nf4-double":
            return BitsAndBytesConfig(
                load_in_4bit=True,
                llm_int8_skip_modules=kept,
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


def settle(module: nn.Module, dtype: torch.dtype, before: Callable[[], None]) -> None:
    """Gives each layer on a CPU the form it computes in with inputs of `dtype`; `before` is called before each, and may
    raise to stop. Its codes are multiplied as they are where the compiled product takes them; else those of 4 bits are
    dequantized for each product."""
    from bitsandbytes.nn import Linear4bit, Linear8bitLt

    tables = dict[bytes, Tensor]()
    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if not isinstance(layer, (Linear4bit, Linear8bitLt)) or layer.weight.device.type != "cpu":
                continue
            before()
            weight: Any = layer.weight
            if isinstance(layer, Linear8bitLt):
                if multiplies(Coding.BYTES, layer.in_features, layer.in_features, dtype):
                    scales, outliers = weight.SCB.view(-1, 1) / LARGEST, layer.state.threshold
                    codes = Codes(Coding.BYTES, weight.CB, scales, outliers=outliers)
                    setattr(parent, name, CodedLinear(codes, layer.bias))
                continue
            state = weight.quant_state
            ours = not layer.in_features % state.blocksize and (not state.nested or state.state2.blocksize == SHARED)
            if ours and multiplies(Coding.ENTRIES, layer.in_features, state.blocksize, layer.compute_dtype):
                setattr(parent, name, CodedLinear(codes_of(layer, tables), layer.bias))
            else:
                state.dtype = wanted(state.dtype)
                setattr(parent, name, Dequantized4bitLinear(layer))


def codes_of(layer: Any, tables: dict[bytes, Tensor]) -> Codes:
    """A 4-bit layer's weight, row by row. Equal tables are held once, in `tables`."""
    return _entries(layer.weight.data, layer.weight.quant_state, layer.out_features, layer.in_features, tables)


def four_bit_codes(weight: Tensor, twice: bool, tables: dict[bytes, Tensor]) -> Codes:
    """A weight `[outputs, inputs]`, inputs a multiple of 64, in nf4; `twice`: its scales are quantized too."""
    packed, state = library().functional.quantize_4bit(weight.contiguous(), compress_statistics=twice, quant_type="nf4")
    outputs, inputs = weight.shape
    return _entries(packed, state, outputs, inputs, tables)


def eight_bit_codes(weight: Tensor) -> Codes:
    """A weight `[outputs, inputs]` in 8 bits, rounded in float16 as layers are. Inputs are multiplied as they are."""
    less = (weight.abs().amax(1, keepdim=True).float() / FLOAT16).clamp(min=1.0)  # rows that float16 cannot hold
    codes, highest, _ = library().functional.int8_vectorwise_quant((weight / less).to(torch.float16).contiguous())
    return Codes(Coding.BYTES, codes, highest.float().view(-1, 1) * less / LARGEST)


def _entries(data: Tensor, state: Any, outputs: int, inputs: int, tables: dict[bytes, Tensor]) -> Codes:
    def held(table: Tensor) -> Tensor:
        return tables.setdefault(table.float().cpu().numpy().tobytes(), table.float())

    data = data.view(outputs, inputs // 2)
    codes, table, scales = data >> 4 | data << 4, held(state.code), state.absmax.view(outputs, -1)
    if not state.nested:
        return Codes(Coding.ENTRIES, codes, scales, table)
    coarse = torch.stack([state.state2.absmax, state.offset.expand_as(state.state2.absmax)], 1)
    first = torch.arange(0, scales.numel(), scales.shape[1], dtype=torch.int32, device=scales.device)
    return Codes(Coding.ENTRIES_TWICE, codes, scales, table, held(state.state2.code), coarse, first)
