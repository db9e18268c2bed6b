"""Every kernel compiles for the GPUs it is launched on, and fits their shared memory; no GPU is needed for that.

The AWQ kernels spill no registers either, read from what cuobjdump says of the machine code.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

from engine.kernels import awq_matmul, paged_attention, store_kv  # noqa: E402
from engine.kernels.packed_rows import PackedRows  # noqa: E402

SHARED_MEMORY = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024}  # bytes a block may have, by sm
POINTERS = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
DECODE, PREFILL = (64, 64), (2048, 8)  # tokens, rows


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def compile_launch(kernel: Any, arguments: dict[str, Any], sm: int) -> Any:
    """Compiles what a launch with these arguments would, specialized as Triton does it: on 1 and on multiples of 16."""
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


def attention_arguments(
    dtype: torch.dtype, head_dim: int, tokens: int, rows: int, *, group: int = 4, everything: bool = False
) -> dict[str, Any]:
    """The arguments of a launch on tensors that hold nothing; `everything` turns on window, softcap and sinks."""
    heads = 8 * group
    q = torch.empty(tokens, heads, head_dim, dtype=dtype, device="meta")
    cache = torch.empty(1000, 16, 8, head_dim, dtype=dtype, device="meta")
    table, starts, contexts = (torch.empty(s, dtype=torch.int32, device="meta") for s in [(rows, 64), rows + 1, rows])
    return paged_attention.launches(
        q,
        q,
        cache,
        cache,
        PackedRows(starts, contexts, table, short=rows if tokens == rows else 0),
        scale=0.1,
        sliding_window=128 if everything else None,
        softcap=30.0 if everything else None,
        sinks=torch.empty(heads, dtype=dtype, device="meta") if everything else None,
        sm=90,
        processors=132,
    )[1][2]


def check(compiled: Any, sm: int) -> None:
    assert compiled.asm["cubin"]
    assert compiled.metadata.shared <= SHARED_MEMORY[sm]


@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize(
    ("dtype", "step"),
    [
        pytest.param(torch.bfloat16, DECODE, id="bf16-decode"),
        pytest.param(torch.bfloat16, PREFILL, id="bf16-prefill"),
        pytest.param(torch.float16, PREFILL, id="fp16-prefill"),
        pytest.param(torch.float32, PREFILL, id="fp32"),
    ],
)
@pytest.mark.parametrize("sm", [80, 90, 100])
def test_attention_compiles_and_fits(sm: int, dtype: torch.dtype, step: tuple[int, int], head_dim: int) -> None:
    check(compile_launch(paged_attention.paged_attention_kernel, attention_arguments(dtype, head_dim, *step), sm), sm)


@pytest.mark.parametrize("step", [DECODE, PREFILL], ids=["decode", "prefill"])
@pytest.mark.parametrize("sm", [80, 90, 100])
def test_attention_with_window_softcap_and_sinks_compiles_and_fits(sm: int, step: tuple[int, int]) -> None:
    arguments = attention_arguments(torch.bfloat16, 256, *step, everything=True)
    check(compile_launch(paged_attention.paged_attention_kernel, arguments, sm), sm)


@pytest.mark.parametrize("sm", [80, 90, 100])
def test_attention_of_odd_sizes_compiles_and_fits(sm: int) -> None:
    arguments = attention_arguments(torch.float16, 80, 100, 7, group=7)
    check(compile_launch(paged_attention.paged_attention_kernel, arguments, sm), sm)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("head_dim", [128, 256])
def test_attention_fits_the_smaller_shared_memory_of_consumer_cards(dtype: torch.dtype, head_dim: int) -> None:
    arguments = attention_arguments(dtype, head_dim, *PREFILL, everything=True)
    check(compile_launch(paged_attention.paged_attention_kernel, arguments, 89), 89)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["bf16", "fp32"])
@pytest.mark.parametrize("sm", [80, 90, 100])
def test_storing_keys_and_values_compiles_and_fits(sm: int, dtype: torch.dtype) -> None:
    k = torch.empty(64, 8, 128, dtype=dtype, device="meta")
    cache = torch.empty(1000, 16, 8, 128, dtype=dtype, device="meta")
    arguments = store_kv.launch(k, k, cache, cache, torch.empty(64, dtype=torch.int64, device="meta"))[1]
    check(compile_launch(store_kv.store_kv_kernel, arguments, sm), sm)


def check_nothing_spills(compiled: Any, folder: Path) -> None:
    """Spilled registers are the only local memory of these kernels: STACK and LOCAL in what cuobjdump says."""
    cubin = folder / "kernel.cubin"
    cubin.write_bytes(compiled.asm["cubin"])
    cuobjdump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    usage = subprocess.run([cuobjdump, "-res-usage", cubin], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"(?:STACK|LOCAL):(\d+)", usage) == ["0", "0"], usage


def awq_launches(rows: int, group: int, dtype: torch.dtype) -> list[tuple[Any, dict[str, Any]]]:
    """Kernels and arguments of a product of an 8B model's size, on tensors that hold nothing."""
    inputs, outputs = 4096, 4096
    x, out = (torch.empty(rows, width, dtype=dtype, device="meta") for width in (inputs, outputs))
    qweight = torch.empty(inputs, outputs // 8, dtype=torch.int32, device="meta")
    qzeros = torch.empty(inputs // group, outputs // 8, dtype=torch.int32, device="meta")
    scales = torch.empty(inputs // group, outputs, dtype=torch.float16, device="meta")
    made = awq_matmul.launches(out, x, qweight, qzeros, scales, None, processors=132)
    return [(kernel, arguments) for kernel, _, arguments in made]


@pytest.mark.parametrize("rows", [1, 17, 64])
@pytest.mark.parametrize(
    ("sm", "dtype"),
    [(sm, torch.bfloat16) for sm in (80, 89, 90, 100)] + [(90, torch.float16)],
    ids=["80-bf16", "89-bf16", "90-bf16", "100-bf16", "90-fp16"],
)
def test_awq_products_compile_and_fit_without_spills(sm: int, rows: int, dtype: torch.dtype, tmp_path: Path) -> None:
    for kernel, arguments in awq_launches(rows, 128, dtype):
        compiled = compile_launch(kernel, arguments, sm)
        check(compiled, sm)
        check_nothing_spills(compiled, tmp_path)


@pytest.mark.parametrize("group", [32, 64, 4096])
@pytest.mark.parametrize("rows", [1, 17, 64])
def test_awq_products_of_other_groups_compile_and_fit_without_spills(rows: int, group: int, tmp_path: Path) -> None:
    kernel, arguments = awq_launches(rows, group, torch.bfloat16)[0]
    compiled = compile_launch(kernel, arguments, 90)
    check(compiled, 90)
    check_nothing_spills(compiled, tmp_path)


@pytest.mark.parametrize("sm", [80, 90, 100])
def test_unpacking_awq_compiles_without_spills(sm: int, tmp_path: Path) -> None:
    qweight, qzeros = (torch.empty(rows, 512, dtype=torch.int32, device="meta") for rows in (4096, 32))
    scales = torch.empty(32, 4096, dtype=torch.float16, device="meta")
    out = torch.empty(4096, 4096, dtype=torch.bfloat16, device="meta")
    arguments = awq_matmul.unpack_launch(out, qweight, qzeros, scales)[1]
    compiled = compile_launch(awq_matmul.awq_unpack_kernel, arguments, sm)
    check(compiled, sm)
    check_nothing_spills(compiled, tmp_path)
