"""What Triton compiles a launch for: launches that have it in common share their code."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from engine.kernels.jit import Launch

_DTYPES = torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8, torch.int8
TYPES = dict(zip(_DTYPES, "fp32 fp16 bf16 i32 i64 u8 i8".split()))


Pairs = tuple[tuple[str, Any], ...]


def specialization(launch: Launch) -> tuple[Any, Pairs, Pairs, tuple[int, ...], Pairs]:
    """What a launch is compiled for, as Triton specializes it on None, on 1 and on multiples of 16: its kernel, types,
    constants, the places of arguments that are such multiples, and options. Launches that have it in common share their
    code."""
    kernel, _, arguments = launch
    signature: list[tuple[str, str]] = []
    constants: list[tuple[str, Any]] = []
    aligned: list[int] = []
    for index, parameter in enumerate(kernel.params):
        name, value = parameter.name, arguments[parameter.name]
        specialized = not parameter.do_not_specialize
        if parameter.is_constexpr or value is None or (isinstance(value, int) and value == 1 and specialized):
            signature.append((name, "constexpr"))
            constants.append((name, value))
            continue
        if isinstance(value, Tensor):
            signature.append((name, f"*{TYPES[value.dtype]}"))
            sixteens = value.storage_offset() * value.itemsize % 16 == 0
        else:
            signature.append((name, "fp32" if isinstance(value, float) else "i32" if abs(value) < 2**31 else "i64"))
            sixteens = isinstance(value, int) and value % 16 == 0
        if specialized and sixteens:
            aligned.append(index)
    options = tuple((name, value) for name, value in arguments.items() if name not in kernel.arg_names)
    return kernel, tuple(signature), tuple(constants), tuple(aligned), options
