"""What the kernels need of a GPU, read from machine code that Triton makes without one.

`python -m engine.kernels.offline.compiled` prints registers, shared memory and spills of every kernel that is shipped,
on each architecture, and fails where something does not compile, spills in a loop or does not fit.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from engine.kernels.jit import Launch
from engine.kernels.offline.shipped import matrix, shipped
from engine.kernels.offline.specialization import specialization

_KIB = {80: 163, 86: 99, 89: 99, 90: 227, 100: 227, 120: 99}
SHARED_MEMORY = {sm: kib * 1024 for sm, kib in _KIB.items()}  # bytes a block may have, by sm
WARPS = {80: 64, 86: 48, 89: 48, 90: 64, 100: 64, 120: 48}  # of a multiprocessor; it holds half as many blocks
REGISTERS = 65536  # of a multiprocessor
COLUMNS = 512  # of a multiprocessor's tensor memory


@dataclass(frozen=True, slots=True)
class Usage:
    """What a kernel takes: registers a thread, bytes of shared memory a block, bytes of stack a thread: spills.
    `looped`: instructions within loops that reach for the stack. Others do so once a program, as for addresses that are
    wanted at its end: ptxas chooses that where another program then fits. `columns` of tensor memory (sm_100)."""

    registers: int
    shared: int
    stack: int
    warps: int
    looped: int = 0
    columns: int = 0

    def resident(self, sm: int) -> int:
        """Blocks that a multiprocessor holds at once; 1 KB of shared memory a block is its own."""
        by_registers = REGISTERS // (-(-self.registers // 8) * 8 * 32 * self.warps)
        by_memory = (SHARED_MEMORY[sm] + 1024) // (self.shared + 1024)
        by_columns = COLUMNS // max(1, self.columns)
        return min(by_registers, by_memory, by_columns, WARPS[sm] // max(2, self.warps))

    def fits(self, sm: int) -> bool:
        return self.looped == 0 and self.shared <= SHARED_MEMORY[sm]


def compile_launch(launch: Launch, sm: int) -> Any:
    """Compiles what a launch would on an architecture, 90 being sm_90."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel, signature, constants, aligned, options = specialization(launch)
    sixteens = {(index,): [["tt.divisibility", 16]] for index in aligned}
    source = ASTSource(kernel, dict(signature), dict(constants), sixteens)
    return triton.compile(source, target=GPUTarget("cuda", sm, 32), options=dict(options))


def usage(compiled: Any) -> Usage:
    """Read from the machine code by the cuobjdump that Triton carries; spilled registers are what the stack is for."""
    import triton

    cuobjdump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()

        def told(option: str) -> str:
            return subprocess.run([cuobjdump, option, file.name], capture_output=True, text=True, check=True).stdout

        found = {name: int(value) for name, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", told("-res-usage"))}
        stack = found["STACK"] + found["LOCAL"]
        looped = spills_in_loops(told("-sass")) if stack else 0
    columns = sum(map(int, re.findall(r"tcgen05\.alloc\S+ \[[^]]*\], (\d+);", compiled.asm["ptx"])))
    return Usage(found["REG"], compiled.metadata.shared, stack, compiled.metadata.num_warps, looped, columns)


def spills_in_loops(sass: str) -> int:
    """Instructions that read or write a thread's local memory between the target of a branch back and that branch."""
    code = [(int(at, 16), words) for at, words in re.findall(r"/\*([0-9a-f]{4,})\*/\s+(.*?);", sass)]
    branches = [(int(to[1], 16), at) for at, words in code if (to := re.search(r"\bBRA\b.*?0x([0-9a-f]+)", words))]
    loops = [(first, last) for first, last in branches if first < last]  # the last one waits for the end, at itself
    spills = [at for at, words in code if re.search(r"\b(LDL|STL)\b", words)]
    return sum(any(first <= at <= last for first, last in loops) for at in spills)


def measured(sm: int, name: str) -> Usage | str:
    """What a kernel that is shipped or of the matrix takes; where it does not compile, the traceback."""
    try:
        return usage(compile_launch(shipped(sm).get(name) or matrix(sm)[name], sm))
    except Exception:  # of any kind: Triton's, LLVM's or ptxas's
        return traceback.format_exc()


def print_table(measurements: Iterable[tuple[int, str, Usage | str]]) -> list[str]:
    """Prints a line for each architecture's kernel as it comes; those that do not compile, spill in a loop or do not
    fit."""
    failed: list[str] = []
    print(f"{'kernel':36}{'sm':>5}{'registers':>11}{'shared':>9}{'stack':>7}{'warps':>7}{'resident':>10}")
    for sm, name, took in measurements:
        if isinstance(took, str):
            failed.append(f"{name} on sm_{sm}")
            print(f"{name:36}{sm:>5}  ! does not compile\n{took}", flush=True)
            continue
        if not took.fits(sm):
            failed.append(f"{name} on sm_{sm}")
        print(
            f"{name:36}{sm:>5}{took.registers:>11}{took.shared:>9}{took.stack:>7}{took.warps:>7}"
            f"{took.resident(sm):>10}{'' if took.fits(sm) else '  !'}",
            flush=True,
        )
    return failed


def main(arguments: list[str] | None = None) -> int:
    """Prints the table of some architectures, 1 where a kernel fails."""
    parser = argparse.ArgumentParser(prog="python -m engine.kernels.offline.compiled", description=__doc__)
    parser.add_argument("sm", nargs="*", type=int, help="architectures, 90 being sm_90; without any, all")
    parser.add_argument("--matrix", action="store_true", help="attention of every group, block and head size: an hour")
    options = parser.parse_args(arguments)
    sms = options.sm or list(SHARED_MEMORY)
    if unknown := set(sms) - set(SHARED_MEMORY):
        parser.error(f"sm is one of {', '.join(map(str, SHARED_MEMORY))}, not {', '.join(map(str, unknown))}")

    rows = [(sm, name) for sm in sms for name in (matrix if options.matrix else shipped)(sm)]
    # Spawned: a fork would lose threads that LLVM or torch may have.
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as processes:
        took = processes.map(measured, *zip(*rows))
        failed = print_table((sm, name, usage) for (sm, name), usage in zip(rows, took))
    verdict = "none spills in a loop, all fit"
    if failed:
        verdict = f"{len(failed)} do not compile, spill in a loop or do not fit: {', '.join(failed)}"
    print(f"{len(rows)} kernels compiled for sm_{', '.join(map(str, sms))}: {verdict}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
