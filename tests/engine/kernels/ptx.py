"""Runs what few instructions of PTX our decoders are written in, as Triton's interpreter runs none."""

import functools
import operator
from collections.abc import Sequence

import torch

LOOKED_UP = 1024  # where a program's tables begin in shared memory
OUTPUTS = "$0", "$1", "$2", "$3"


class Program:
    """A program's threads, one after another: `memory` are the words at address 0, `shared` those of its own by
    address."""

    def __init__(self, memory: Sequence[int] = ()) -> None:
        self.memory = memory
        self.shared: dict[int, int] = {}

    def run(self, assembly: str, given: dict[str, int], thread: int = 0) -> dict[str, int]:
        """What a thread has in its registers in the end."""
        held = {"looked_up": LOOKED_UP, "%tid.x": thread, "%laneid": thread % 32, "%ctaid.z": 0, **given}
        declared = set(OUTPUTS)
        for line in assembly.partition("{ ")[2].removesuffix("; }").split("; "):
            name, _, told = line.partition(" ")
            if name == ".reg":
                declared |= set(told.partition(" ")[2].split(", "))
            elif name == "ld.global.v4.b32":
                to, _, source = told.removeprefix("{").partition("}, ")
                first = _address(source, held) // 4
                held.update(zip(to.split(", "), self.memory[first : first + 4], strict=True))
                assert declared >= set(to.split(", "))
            elif name == "ld.shared.b32":
                to, source = told.split(", ")
                assert to in declared
                assert _address(source, held) // 4 % 32 == thread % 32, "no lane waits for another's bank"
                held[to] = self.shared[_address(source, held)]
            elif name == "st.shared.b32":
                target, value = told.split(", ")
                assert _address(target, held) not in self.shared
                self.shared[_address(target, held)] = held[value]
            elif name != "bar.sync":
                to, *others = told.split(", ")
                assert to in declared
                held[to] = _computed(name, [held[each] if each in held else int(each, 0) for each in others])
        return held


def _address(told: str, held: dict[str, int]) -> int:
    register, _, offset = told.strip("[]").partition(" + ")
    return held[register] + int(offset or 0)


def _computed(name: str, values: list[int]) -> int:
    match name:
        case "mov.u32" | "mov.b32":
            return values[0]
        case "and.b32":
            return values[0] & values[1]
        case "xor.b32":
            return values[0] ^ values[1]
        case "shr.b32" | "shr.u32":
            return values[0] >> values[1]
        case "shl.b32":
            return values[0] << values[1] & 0xFFFFFFFF
        case "add.u64":
            return values[0] + values[1]
        case "mul.wide.u32":
            return values[0] * values[1]
        case "mad.lo.u32":
            return values[0] * values[1] + values[2] & 0xFFFFFFFF
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


def decoded(program: Program, assembly: str, four: Sequence[int], thread: int = 0) -> list[int]:
    """What a decoder makes of four bytes, eight floats of 16 bits: of the upper codes, then of the lower ones."""
    held = program.run(assembly, {"$4": int.from_bytes(bytes(four), "little")}, thread)
    return [held[register] >> 16 * i & 0xFFFF for register in OUTPUTS for i in range(2)]


def every_byte_at_every_place() -> list[list[int]]:
    """Fours of bytes."""
    fours = [[(37 * byte + 11 * place + 59 * i) % 256 for i in range(4)] for byte in range(256) for place in range(4)]
    for at, four in enumerate(fours):
        four[at % 4] = at // 4
    return fours
