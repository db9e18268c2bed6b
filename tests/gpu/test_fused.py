"""The fused small kernels, and the models that they are put into, on the GPU that is here."""

from functools import partial

import pytest
import torch

from engine.bench.rounding import round_to_nearest
from engine.kernels.products.awq_matmul import FUSED_ROWS, awq_matmul
from engine.kernels.products.four_bits import FEW_ROWS, four_bit_matmul, table_of
from engine.kernels.products.gemv import gemv
from engine.kernels.rms_norm import WIDEST, Rounding, rms_norm
from engine.kernels.rotary import rotate
from engine.kernels.silu_mul import Activation, act_mul
from engine.models.fusion.fuse import Causal, fuse
from engine.models.quantization.awq_tiles import tiled
from tests.engine.fusing_case import FUSED, check_fused, served
from tests.engine.kernels.fused_case import LAYOUTS, acted, check, normed, rotated, tables_of

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["fp32", "fp16", "bf16"])
LAID = pytest.mark.parametrize("layout", LAYOUTS)


def draw(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(*shape, device="cuda")


@DTYPES
@pytest.mark.parametrize("rounding", Rounding)
@pytest.mark.parametrize("width", [64, 80, 128, 256, 1000, 1024, 4096, 5120, WIDEST])
def test_rows_of_every_width_are_normed(width: int, rounding: Rounding, dtype: torch.dtype) -> None:
    weight = None if rounding is Rounding.NONE else draw(width).to(dtype)
    for rows in (1, 17, 300):
        for scale in (1e-3, 1.0, 100.0):
            x = draw(rows, width, scale=scale).to(dtype)
            check(rms_norm(x, weight, 1e-6, rounding), normed(x, weight, 1e-6, rounding))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("inputs", [64, 1000, 1024, 4096, 14_336])
@pytest.mark.parametrize("outputs", [8, 1000, 1024, 4096, 28_672])
def test_a_row_is_multiplied_with_weights_of_every_shape(outputs: int, inputs: int, dtype: torch.dtype) -> None:
    x, weight, bias = (draw(*shape).to(dtype) for shape in ((1, inputs), (outputs, inputs), (outputs,)))
    weight /= inputs**0.5
    expected = x.double() @ weight.double().T
    check(gemv(x, weight), expected)
    check(gemv(x, weight, bias), expected + bias.double())
    assert torch.equal(gemv(x, weight), gemv(x, weight))


@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
def test_products_of_few_rows_end_with_their_gate(dtype: torch.dtype, activation: Activation) -> None:
    inputs, outputs, numbers = 1024, 2 * 3072, tuple(torch.linspace(-1, 1, 16).tolist())
    weight, bias = draw(outputs, inputs).to(dtype) / inputs**0.5, draw(outputs).to(dtype)
    packed = tiled(*round_to_nearest(weight.float(), 128))
    codes = torch.randint(256, (outputs * inputs // 2, 1), dtype=torch.uint8, device="cuda")
    scales, table = draw(outputs * inputs // 64).abs() / inputs**0.5, table_of(numbers, dtype, weight.device)
    for rows in (1, 5, 16, 32, FEW_ROWS, FUSED_ROWS):
        x = draw(rows, inputs).to(dtype)
        products = [partial(awq_matmul, x, *packed, bias)]
        products += [partial(four_bit_matmul, x, codes, scales, table, bias)] if rows <= FEW_ROWS else []
        products += [partial(gemv, x, weight, bias)] if rows == 1 else []
        for product in products:
            gate, up = product().chunk(2, -1)
            check(product(gate=activation), acted(gate, up, activation))


@DTYPES
@LAID
def test_inputs_are_read_where_they_lie(layout: str, dtype: torch.dtype) -> None:
    x, up, weight = LAYOUTS[layout](draw(2, 9, 5, 128).to(dtype)), draw(2, 9, 5, 128).to(dtype), draw(128).to(dtype)
    check(rms_norm(x, weight, 1e-6, Rounding.TWICE), normed(x, weight, 1e-6, Rounding.TWICE))
    check(act_mul(x, up, Activation.SILU), acted(x, up, Activation.SILU))
    cos, sin = tables_of(draw(2, 9, 128, scale=3), dtype)
    q, k = x.transpose(1, 2), up.transpose(1, 2)
    for out, whole in zip(rotate(q, k, cos, sin), (q, k)):
        check(out, rotated(whole, cos, sin))


@DTYPES
@pytest.mark.parametrize("activation", Activation)
@pytest.mark.parametrize("columns", [100, 3072, 14_336])
def test_gates_of_every_size_are_acted_on(columns: int, activation: Activation, dtype: torch.dtype) -> None:
    for rows in (1, 7, 300):
        gate, up = draw(rows, columns, scale=4).to(dtype), draw(rows, columns).to(dtype)
        check(act_mul(gate, up, activation), acted(gate, up, activation))


@DTYPES
@pytest.mark.parametrize(("q_heads", "k_heads", "head_dim"), [(32, 8, 128), (16, 8, 64), (4, 1, 256), (40, 40, 80)])
@pytest.mark.parametrize("half_tables", [False, True])
def test_queries_and_keys_of_real_models_are_turned(
    q_heads: int, k_heads: int, head_dim: int, half_tables: bool, dtype: torch.dtype
) -> None:
    wide = head_dim // 2 if half_tables else head_dim
    for tokens in (1, 64, 333):
        q, k = (draw(1, tokens, heads, head_dim).to(dtype).transpose(1, 2) for heads in (q_heads, k_heads))
        for tables in {dtype, torch.float32}:
            cos, sin = tables_of(draw(1, tokens, wide, scale=3), tables)
            for out, x in zip(rotate(q, k, cos, sin), (q, k)):
                check(out, rotated(x, cos, sin))


@DTYPES
@pytest.mark.parametrize("name", FUSED)
def test_a_fused_model_differs_by_rounding_and_can_be_undone(name: str, dtype: torch.dtype) -> None:
    check_fused(name, dtype, "cuda")


def test_a_fused_model_is_captured_and_replayed_with_other_tokens() -> None:
    module = served("qwen3", torch.float16, "cuda")
    assert fuse(module).fused
    ids, positions = torch.zeros(1, 6, dtype=torch.long, device="cuda"), torch.arange(6, device="cuda")[None]

    def forward() -> torch.Tensor:
        return module(input_ids=ids, position_ids=positions, use_cache=False, batch=Causal()).logits

    with torch.inference_mode():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            forward()
        side.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = forward()
        ids.copy_(torch.arange(6, device="cuda")[None] * 7)
        graph.replay()
        torch.testing.assert_close(out, forward(), rtol=1e-3, atol=1e-2)


def test_fusing_waits_for_no_more_than_the_proof_and_keeps_no_memory() -> None:
    module = served("llama", torch.bfloat16, "cuda")
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    assert fuse(module).fused
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before + (1 << 16)
    ids = torch.arange(6, device="cuda")[None]
    with torch.inference_mode():
        torch.cuda.set_sync_debug_mode("error")
        try:
            module(input_ids=ids, position_ids=ids, use_cache=False, batch=Causal())
        finally:
            torch.cuda.set_sync_debug_mode("default")
