"""The fused small kernels compile for the GPUs they are launched on and spill no registers; no GPU is needed for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from engine.kernels import rms_norm, rotary, silu_mul
from engine.kernels.rms_norm import Rounding
from engine.kernels.silu_mul import Activation
from tests.engine.kernels.test_compiled import check, check_nothing_spills, compile_launch

SMS = pytest.mark.parametrize("sm", [80, 89, 90, 100])
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(autouse=True)
def _empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def compiles(kernel: Any, arguments: dict[str, Any], sm: int, folder: Path) -> bytes:
    """The machine code, which fits and spills nothing."""
    compiled = compile_launch(kernel, arguments, sm)
    check(compiled, sm)
    check_nothing_spills(compiled, folder)
    return compiled.asm["cubin"]


def norm_arguments(x: torch.Tensor, rounding: Rounding = Rounding.TWICE) -> dict[str, Any]:
    weight = None if rounding is Rounding.NONE else x.new_empty(x.shape[-1])
    return rms_norm.launch(x.new_empty(x.shape), x, weight, 1e-6, rounding)[1]


def rotary_arguments(tokens: int, head_dim: int = 128, dtype: torch.dtype = torch.bfloat16) -> dict[str, Any]:
    q, k = (meta(1, tokens, heads, head_dim, dtype=dtype).transpose(1, 2) for heads in (32, 8))
    table = meta(1, tokens, head_dim, dtype=dtype)
    return rotary.launch(q.transpose(1, 2), k.transpose(1, 2), q, k, table, table)[1]


@SMS
@pytest.mark.parametrize("width", [128, 4096, rms_norm.WIDEST])
def test_norms_compile_without_spills(width: int, sm: int, tmp_path: Path) -> None:
    compiles(rms_norm.rms_norm_kernel, norm_arguments(meta(64, width)), sm, tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rounding", Rounding)
def test_norms_of_every_rounding_compile_without_spills(rounding: Rounding, dtype: torch.dtype, tmp_path: Path) -> None:
    compiles(rms_norm.rms_norm_kernel, norm_arguments(meta(64, 5120, dtype=dtype), rounding), 90, tmp_path)


@SMS
@pytest.mark.parametrize("activation", Activation)
def test_gates_compile_without_spills(activation: Activation, sm: int, tmp_path: Path) -> None:
    gate = meta(64, 14_336)
    compiles(silu_mul.act_mul_kernel, silu_mul.launch(gate, gate, gate, activation)[1], sm, tmp_path)


@SMS
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_rotation_compiles_without_spills(head_dim: int, sm: int, tmp_path: Path) -> None:
    compiles(rotary.rotary_kernel, rotary_arguments(64, head_dim), sm, tmp_path)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rotation_in_every_dtype_compiles_without_spills(dtype: torch.dtype, tmp_path: Path) -> None:
    compiles(rotary.rotary_kernel, rotary_arguments(64, 80, dtype), 90, tmp_path)


def compiled_for(kernel: Any, arguments: dict[str, Any]) -> list[Any]:
    """What a launch is compiled for: constants, types, and of numbers whether they are 1 or multiples of 16."""

    def kind(parameter: Any) -> Any:
        value = arguments[parameter.name]
        if isinstance(value, torch.Tensor):
            return value.dtype, value.storage_offset() * value.itemsize % 16
        if parameter.is_constexpr or value is None:
            return value
        if isinstance(value, float):
            return float
        return type(value), *(() if parameter.do_not_specialize else (value == 1, value % 16 == 0))

    return [*(kind(parameter) for parameter in kernel.params), arguments.get("num_warps")]


def test_the_number_of_tokens_compiles_nothing_anew() -> None:
    def launches(batch: int, tokens: int) -> list[list[Any]]:
        x, qkv = meta(batch, tokens, 4096), meta(batch, tokens, 48 * 128)
        heads = qkv.view(batch, tokens, 48, 128)
        q, k = heads[:, :, :32].transpose(1, 2), heads[:, :, 32:40].transpose(1, 2)
        q_out, k_out, tables = q.transpose(1, 2), k.transpose(1, 2), meta(batch, tokens, 128)
        gate, up = meta(batch, tokens, 2 * 14_336).chunk(2, dim=-1)
        return [
            compiled_for(rms_norm.rms_norm_kernel, norm_arguments(x)),
            compiled_for(rms_norm.rms_norm_kernel, norm_arguments(k)),
            compiled_for(silu_mul.act_mul_kernel, silu_mul.launch(gate, gate, up, Activation.SILU)[1]),
            compiled_for(rotary.rotary_kernel, rotary.launch(q_out, k_out, q, k, tables, tables)[1]),
        ]

    first = launches(1, 1)
    for batch, tokens in ((1, 2), (1, 16), (1, 17), (1, 1000), (3, 1), (3, 7), (16, 16)):
        assert launches(batch, tokens) == first, (batch, tokens)
