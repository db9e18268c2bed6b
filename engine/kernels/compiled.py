"""What the kernels need of a GPU, read from machine code that Triton makes without one.

`python -m engine.kernels.compiled` prints registers, shared memory and spills of each kernel on each architecture, and
fails where something spills or does not fit.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.kernels import awq_matmul, store_kv
from engine.kernels.packed_rows import PackedRows
from engine.kernels.paged_attention import launches
from engine.kernels.tilings import Rows, Tiling

SHARED_MEMORY = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024}  # bytes a block may have
REGISTERS = 65536  # of a multiprocessor
POINTERS = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}

Launch = tuple[Any, dict[str, Any]]  # a kernel and its arguments, tensors that hold nothing


@dataclass(frozen=True, slots=True)
class Usage:
    """What a kernel takes: registers a thread, bytes of shared memory a block, bytes of stack a thread: spills."""

    registers: int
    shared: int
    stack: int
    warps: int

    def resident(self, sm: int) -> int:
        """Blocks that a multiprocessor holds at once, as far as registers and shared memory go; 1 KB a block is its
        own."""
        by_registers = REGISTERS // (-(-self.registers // 8) * 8 * 32 * self.warps)
        return min(by_registers, (SHARED_MEMORY[sm] + 1024) // (self.shared + 1024), 64 // self.warps)

    def fits(self, sm: int) -> bool:
        return self.stack == 0 and self.shared <= SHARED_MEMORY[sm]


def compile_launch(kernel: Any, arguments: dict[str, Any], sm: int) -> Any:
    """Compiles what a launch with these arguments would, specialized as Triton does it: on 1 and on multiples of 16."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    aligned: dict[tuple[int], list[list[Any]]] = {}
    for index, parameter in enumerate(kernel.params):
        name, value = parameter.name, arguments[parameter.name]
        specialized = not parameter.do_not_specialize
        if parameter.is_constexpr or value is None or (isinstance(value, int) and value == 1 and specialized):
            signature[name] = "constexpr"
            constants[name] = value
            continue
        if isinstance(value, Tensor):
            signature[name] = POINTERS[value.dtype]
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32" if abs(value) < 2**31 else "i64"
        if specialized and (isinstance(value, Tensor) or (isinstance(value, int) and value % 16 == 0)):
            aligned[(index,)] = [["tt.divisibility", 16]]
    options = {name: value for name, value in arguments.items() if name not in kernel.arg_names}
    source = ASTSource(kernel, signature, constants, aligned)
    return triton.compile(source, target=GPUTarget("cuda", sm, 32), options=options)


def usage(compiled: Any) -> Usage:
    """Read from the machine code by the cuobjdump that Triton carries; spilled registers are what the stack is for."""
    import triton

    cuobjdump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        told = subprocess.run([cuobjdump, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", told)}
    metadata = compiled.metadata
    return Usage(found["REG"], metadata.shared, found["STACK"] + found["LOCAL"], metadata.num_warps)


def attention(
    sm: int,
    kind: Rows,
    dtype: torch.dtype,
    head_dim: int,
    *,
    group: int = 4,
    queries: int = 1,
    block_size: int = 16,
    everything: bool = False,
    tiling: Tiling | None = None,
) -> list[Launch]:
    """The kernels of one call for rows of a kind: plan, attention, merge; `everything` is window, softcap and sinks."""
    rows, kv_heads = 64, 8
    heads = kv_heads * group
    tokens = rows * queries if kind is Rows.SHORT else 512
    q = torch.empty(tokens, heads, head_dim, dtype=dtype, device="meta")
    cache = torch.empty(1000, block_size, kv_heads, head_dim, dtype=dtype, device="meta")
    starts, lengths = (torch.empty(size, dtype=torch.int32, device="meta") for size in (rows + 1, rows))
    tables = torch.empty(rows, 4096, dtype=torch.int32, device="meta")
    made = launches(
        q,
        q,
        cache,
        cache,
        PackedRows(starts, lengths, tables, lengths, rows if kind is Rows.SHORT else 0),
        scale=0.1,
        sliding_window=1000 if everything else None,
        softcap=30.0 if everything else None,
        sinks=torch.empty(heads, dtype=dtype, device="meta") if everything else None,
        given=tiling,
        sm=sm,
        processors=1000,  # so many that rows of either kind may be split
    )
    return [(kernel, arguments) for kernel, _, arguments in made]


def storing(dtype: torch.dtype, head_dim: int) -> Launch:
    k = torch.empty(64, 8, head_dim, dtype=dtype, device="meta")
    cache = torch.empty(1000, 16, 8, head_dim, dtype=dtype, device="meta")
    slots = torch.empty(64, dtype=torch.int64, device="meta")
    return store_kv.store_kv_kernel, store_kv.launch(k, k, cache, cache, slots)[1]


def awq_products(rows: int, group: int, dtype: torch.dtype) -> list[Launch]:
    """A product of an 8B model's size, its sum of parts too where there is one."""
    inputs, outputs = 4096, 4096
    x, out = (torch.empty(rows, width, dtype=dtype, device="meta") for width in (inputs, outputs))
    made = awq_matmul.launches(out, x, *_awq_weights(inputs, outputs, group), None, processors=132)
    return [(kernel, arguments) for kernel, _, arguments in made]


def awq_unpacking(dtype: torch.dtype) -> Launch:
    out = torch.empty(4096, 4096, dtype=dtype, device="meta")
    return awq_matmul.awq_unpack_kernel, awq_matmul.unpack_launch(out, *_awq_weights(4096, 4096, 128))[1]


def _awq_weights(inputs: int, outputs: int, group: int) -> tuple[Tensor, Tensor, Tensor]:
    qweight = torch.empty(inputs, outputs // 8, dtype=torch.int32, device="meta")
    qzeros = torch.empty(inputs // group, outputs // 8, dtype=torch.int32, device="meta")
    return qweight, qzeros, torch.empty(inputs // group, outputs, dtype=torch.float16, device="meta")


def shipped(sm: int) -> Iterator[tuple[str, Launch]]:
    """Every kernel as it is launched on an architecture, with every option on: dtypes, head_dims and kinds of rows."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for head_dim in (64, 128, 256):
            for kind, queries in ((Rows.SHORT, 1), (Rows.SHORT, 8), (Rows.LONG, 512)):
                made = attention(sm, kind, dtype, head_dim, queries=queries, everything=True)
                yield f"attention {kind.value} {queries} {head_dim} {_short(dtype)}", made[1]
            yield f"merge {head_dim} {_short(dtype)}", made[2]
            yield f"store_kv {head_dim} {_short(dtype)}", storing(dtype, head_dim)
    yield "plan", made[0]
    for dtype in (torch.bfloat16, torch.float16):
        for rows in (1, 17, 64):
            for kernel, arguments in awq_products(rows, 128, dtype):
                yield f"{kernel.fn.__name__} {rows} {_short(dtype)}", (kernel, arguments)
        yield f"awq_unpack {_short(dtype)}", awq_unpacking(dtype)


def _short(dtype: torch.dtype) -> str:
    return {torch.bfloat16: "bf16", torch.float16: "fp16", torch.float32: "fp32"}[dtype]


def main(sms: list[int]) -> int:
    """Prints the table of these architectures; 1 where a kernel spills or does not fit."""
    failed = 0
    print(f"{'kernel':36}{'sm':>5}{'registers':>11}{'shared':>9}{'stack':>7}{'warps':>7}{'resident':>10}")
    for sm in sms:
        for name, launch in shipped(sm):
            took = usage(compile_launch(*launch, sm))
            failed += not took.fits(sm)
            print(
                f"{name:36}{sm:>5}{took.registers:>11}{took.shared:>9}{took.stack:>7}{took.warps:>7}"
                f"{took.resident(sm):>10}{'' if took.fits(sm) else '  !'}",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main([int(sm) for sm in sys.argv[1:]] or list(SHARED_MEMORY)))
