"""Checks of the fused small kernels that `test_interpreted.py` runs with TRITON_INTERPRET=1, in a process of their own.

float32 and float16 only: the interpreter's bfloat16 is wrong (Triton 3.9).
"""

import os

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from engine.kernels.place_kv import HeadNorms, place_kv
from engine.kernels.products.gemv import gemv
from engine.kernels.rms_norm import WIDEST, Rounding, add_norm, rms_norm
from engine.kernels.rotary import rotate
from engine.kernels.silu_mul import Activation, act_mul
from engine.kernels.store_kv import store_kv
from tests.engine.kernels.fused_case import LAYOUTS, acted, check, normed, rotated

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
LAID = pytest.mark.parametrize("layout", LAYOUTS)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def draw(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


@DTYPES
@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("width", [1, 64, 80, 200, 1000, WIDEST])
def test_rows_of_every_width_are_normed(width: int, rounding: Rounding, dtype: torch.dtype) -> None:
    weight = None if rounding is Rounding.NONE else draw(width, seed=1).to(dtype)
    for rows in (1, 17) if width <= 256 else (2,):
        for scale in (1e-3, 100.0):
            x = draw(rows, width, seed=rows, scale=scale).to(dtype)
            check(rms_norm(x, weight, 1e-6, rounding), normed(x, weight, 1e-6, rounding))


@pytest.mark.parametrize(
    ("inputs", "outputs"), [(1, 1), (64, 40), (1000, 300), (1024, 256), (2048, 64), (300, 136), (256, 272)]
)
def test_a_row_is_multiplied_with_weights_of_every_shape(inputs: int, outputs: int) -> None:
    x, weight = draw(1, 1, inputs).half(), draw(outputs, inputs, seed=1, scale=inputs**-0.5).half()
    between = torch.cat([torch.full_like(weight, torch.nan), weight], dim=1)[:, inputs:]  # rows that lie apart
    bias = draw(outputs, seed=2).half()
    expected = x.double() @ weight.double().T
    check(gemv(x, weight), expected)
    check(gemv(x, between, bias), expected + bias.double())
    assert torch.equal(gemv(x, between, bias), gemv(x, weight, bias))


@DTYPES
def test_a_row_of_zeros_stays_zero(dtype: torch.dtype) -> None:
    assert not rms_norm(torch.zeros(3, 64, dtype=dtype), torch.ones(64, dtype=dtype), 1e-6, Rounding.TWICE).any()


def test_each_rounding_is_that_of_torch_bit_for_bit_where_sums_are_exact() -> None:
    x = torch.cat([torch.ones(5, 32), -torch.ones(5, 32)], dim=-1).half() * torch.tensor([[0.5], [1], [2], [4], [8]])
    x, weight = x.half(), draw(64).half()
    unit = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 0.3)
    assert torch.equal(rms_norm(x, weight, 0.3, Rounding.TWICE), weight * unit.half())
    assert torch.equal(rms_norm(x, weight, 0.3, Rounding.ONCE), (weight * unit).half())
    assert torch.equal(rms_norm(x, weight, 0.3, Rounding.ONE_PLUS), (unit * (1 + weight.float())).half())
    assert torch.equal(rms_norm(x, None, 0.3, Rounding.NONE), unit.half())
    assert not torch.equal(weight * unit.half(), (weight * unit).half())


@DTYPES
@pytest.mark.parametrize("rounding", [Rounding.TWICE, Rounding.ONCE, Rounding.ONE_PLUS])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("width", [64, 200, 1152])
def test_a_sum_and_its_norm_are_those_of_torch_and_the_norm(
    width: int, wide: bool, rounding: Rounding, dtype: torch.dtype
) -> None:
    for rows in (1, 17):
        x, residual = (draw(1, rows, width, seed=seed).to(dtype) for seed in (rows, rows + 50))
        weight, before = (draw(width, seed=seed).to(dtype) for seed in (1, 2))
        total, out = add_norm(x, residual, before if wide else None, weight, 1e-6, rounding)
        expected = residual + (rms_norm(x, before, 1e-6, rounding) if wide else x)
        assert torch.equal(total, expected)
        assert torch.equal(out, rms_norm(expected, weight, 1e-6, rounding))


@DTYPES
@pytest.mark.parametrize("rounding", [None, Rounding.TWICE, Rounding.ONCE, Rounding.ONE_PLUS])
@pytest.mark.parametrize(("tokens", "heads", "kv_heads", "dim"), [(1, 4, 2, 32), (9, 7, 1, 80), (20, 3, 3, 64)])
def test_heads_are_normed_turned_and_placed_as_by_the_kernels_of_each(
    tokens: int, heads: int, kv_heads: int, dim: int, rounding: Rounding | None, dtype: torch.dtype
) -> None:
    q, k, v = draw(tokens, heads + 2 * kv_heads, dim).to(dtype).split((heads, kv_heads, kv_heads), dim=1)
    slots = torch.randperm(48, generator=torch.Generator().manual_seed(2))[:tokens]
    slots[tokens // 2] = -1 if tokens > 1 else 7
    norms = None if rounding is None else HeadNorms(*draw(2, dim, seed=4).to(dtype), 1e-6, rounding)
    for width, table in ((dim, dtype), (dim // 2, torch.float32)):
        tables = draw(2, 1, tokens, width, seed=5).to(table)
        made, expected = (torch.zeros(2, 3, 16, kv_heads, dim, dtype=dtype) for _ in range(2))
        out = place_kv(q, k, v, (tables[0, 0], tables[1, 0]), norms, (made[0], made[1]), slots)
        a, b = (q, k) if norms is None else (rms_norm(x, norms[i], 1e-6, norms.rounding) for i, x in enumerate((q, k)))
        turned = rotate(*(x.transpose(0, 1)[None] for x in (a, b)), *tables)
        q_turned, k_turned = (x[0].transpose(0, 1) for x in turned)
        store_kv(k_turned, v, *expected, slots)
        near = 4e-3 if dtype is torch.float16 else 1e-5
        torch.testing.assert_close(out, q_turned, rtol=near, atol=near)
        torch.testing.assert_close(made, expected, rtol=near, atol=near)
        assert torch.equal(made[1], expected[1])
        assert made.any()


@DTYPES
@LAID
@pytest.mark.parametrize("shape", [(1, 5, 3, 64), (2, 4, 3, 80), (1, 1, 8, 128), (3, 2, 1, 16)])
def test_rows_are_normed_where_they_lie(shape: tuple[int, ...], layout: str, dtype: torch.dtype) -> None:
    x, weight = LAYOUTS[layout](draw(*shape).to(dtype)), draw(shape[-1], seed=1).to(dtype)
    out = rms_norm(x, weight, 1e-6, Rounding.TWICE)
    check(out, normed(x, weight, 1e-6, Rounding.TWICE))
    assert out.shape == x.shape


@DTYPES
@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 1024), (3, 100), (2, 2500)])
def test_gates_of_every_size_are_acted_on(rows: int, columns: int, activation: Activation, dtype: torch.dtype) -> None:
    for scale in (1e-3, 1.0, 20.0):
        gate = draw(rows, columns, scale=scale).to(dtype)
        up = draw(rows, columns, seed=1).to(dtype)
        check(act_mul(gate, up, activation), acted(gate, up, activation))


@DTYPES
@LAID
def test_gates_are_read_where_they_lie(layout: str, dtype: torch.dtype) -> None:
    gate, up = LAYOUTS[layout](draw(2, 3, 4, 48).to(dtype)), draw(2, 3, 4, 48, seed=1).to(dtype)
    check(act_mul(gate, up, Activation.SILU), acted(gate, up, Activation.SILU))
    check(act_mul(up, gate, Activation.SILU), acted(up, gate, Activation.SILU))


def test_the_activation_is_rounded_before_the_product_as_torch_does() -> None:
    gate, up = draw(4, 1000).half(), draw(4, 1000, seed=1).half()
    apart = torch.nn.functional.silu(gate) * up
    assert (act_mul(gate, up, Activation.SILU) != apart).float().mean() < 0.01
    assert (acted(gate, up, Activation.SILU).half() != apart).float().mean() > 0.1


def test_neighbours_are_turned_and_parted() -> None:
    q, k = draw(2, 5, 3, 48).transpose(1, 2), draw(2, 5, 1, 48, seed=1).transpose(1, 2)
    tables = draw(2, 5, 24, seed=2), draw(2, 5, 24, seed=3)
    for out, x in zip(rotate(q, k, *tables, neighbours=True), (q, k)):
        check(out, rotated(torch.cat([x[..., ::2], x[..., 1::2]], dim=-1), *tables))


def check_turned(shape: tuple[int, int, int, int, int], layout: str, half_tables: bool, dtype: torch.dtype) -> None:
    batch, tokens, q_heads, k_heads, head_dim = shape
    q = LAYOUTS[layout](draw(batch, tokens, q_heads, head_dim).to(dtype)).transpose(1, 2)
    k = draw(batch, tokens, k_heads, head_dim, seed=1).to(dtype).transpose(1, 2)
    wide = head_dim // 2 if half_tables else head_dim
    for tables in {dtype, torch.float32}:
        cos, sin = draw(batch, tokens, wide, seed=2).to(tables), draw(batch, tokens, wide, seed=3).to(tables)
        if layout == "contiguous":  # one table for all of the batch
            cos, sin = (x[:1].expand(batch, -1, -1) for x in (cos, sin))
        for out, x in zip(rotate(q, k, cos, sin), (q, k)):
            check(out, rotated(x, cos, sin))
            assert out.dtype == dtype
            assert out.transpose(1, 2).is_contiguous()


@DTYPES
@pytest.mark.parametrize("half_tables", [False, True])
@pytest.mark.parametrize(
    "shape", [(1, 7, 4, 2, 64), (1, 1, 32, 8, 128), (1, 4, 40, 40, 32), (2, 1, 3, 3, 256), (1, 2, 1, 1, 2)]
)
def test_queries_and_keys_of_every_shape_are_turned(
    shape: tuple[int, int, int, int, int], half_tables: bool, dtype: torch.dtype
) -> None:
    check_turned(shape, "contiguous", half_tables, dtype)


@LAID
def test_queries_are_turned_where_they_lie(layout: str) -> None:
    check_turned((2, 3, 5, 1, 80), layout, False, torch.float16)


def test_turned_heads_have_torchs_bits() -> None:
    q, k, cos, sin = (draw(1, 6, *heads, 64, seed=seed).half() for seed, heads in enumerate(((4,), (2,), (), ())))
    q, k = q.transpose(1, 2), k.transpose(1, 2)
    low, high = q.chunk(2, dim=-1)
    expected = q * cos[:, None] + torch.cat([-high, low], dim=-1) * sin[:, None]
    assert torch.equal(rotate(q, k, cos, sin)[0], expected)


def test_what_is_empty_needs_no_launch() -> None:
    assert rms_norm(torch.zeros(0, 64), None, 1e-6, Rounding.NONE).shape == (0, 64)
    assert act_mul(torch.zeros(2, 0, 64), torch.zeros(2, 0, 64), Activation.SILU).shape == (2, 0, 64)
    q, tables = torch.zeros(1, 4, 0, 64), torch.zeros(1, 0, 64)
    assert rotate(q, q[:, :2], tables, tables)[1].shape == (1, 2, 0, 64)
