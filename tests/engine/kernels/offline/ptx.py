"""Runs what few instructions of PTX our decoders are written in, as Triton's interpreter runs none."""

import functools
import operator

import torch

OUTPUTS = "$0", "$1", "$2", "$3"


def run(assembly: str, given: dict[str, int]) -> list[int]:
    """What a thread leaves in `OUTPUTS`."""
    held, declared = dict(given), set(OUTPUTS)
    for line in assembly.partition("{ ")[2].removesuffix("; }").split("; "):
        name, _, told = line.partition(" ")
        if name == ".reg":
            declared |= set(told.partition(" ")[2].split(", "))
        else:
            to, *others = told.split(", ")
            assert to in declared
            held[to] = _computed(name, [held[each] if each in held else int(each, 0) for each in others])
    return [held[register] for register in OUTPUTS]


def _computed(name: str, values: list[int]) -> int:
    match name:
        case "mov.b32":
            return values[0]
        case "and.b32":
            return values[0] & values[1]
        case "shr.b32":
            return values[0] >> values[1]
        case "shl.b32":
            return values[0] << values[1] & 0xFFFFFFFF
        case "prmt.b32":
            eight = (values[1] << 32 | values[0]).to_bytes(8, "little")
            selectors = [values[2] >> 4 * i & 15 for i in range(4)]
            chosen = [eight[each & 7] if each < 8 else (eight[each & 7] >> 7) * 255 for each in selectors]
            return int.from_bytes(chosen, "little")
        case "lop3.b32":
            a, b, c, table = values
            true = [i for i in range(8) if table >> i & 1]
            rows = [(a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c) for i in true]
            return functools.reduce(operator.or_, rows, 0) & 0xFFFFFFFF
        case "fma.rn.f16x2" | "fma.rn.bf16x2":
            dtype = torch.bfloat16 if "bf" in name else torch.float16
            a, b, c = (torch.tensor([each], dtype=torch.uint32).view(dtype).double() for each in values)
            return int((a * b + c).to(dtype).view(torch.uint32))
    raise AssertionError(name)
