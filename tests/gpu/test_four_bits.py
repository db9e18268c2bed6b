"""The kernel for bitsandbytes' 4-bit weights agrees with exact weights in float64, and with bitsandbytes itself, on the
GPU that is here."""

from typing import Any

import pytest
import torch

from engine.kernels.products.four_bits import FEW_ROWS, four_bit_matmul, table_of
from tests.engine.kernels.four_bits_case import TABLES, Product, check, make_weights

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
ROWS = (1, 3, 8, 16, 17, 32, 33, FEW_ROWS)


@DTYPES
def test_products_of_random_sizes_agree_with_the_oracle(dtype: torch.dtype) -> None:
    fresh = torch.seed()
    for seed in range(fresh, fresh + 8):  # each is compiled anew
        random = torch.Generator().manual_seed(seed)

        def draw(low: int, high: int, random: torch.Generator = random) -> int:
            return int(torch.randint(low, high, (), generator=random))

        block = 64 * draw(1, 4)
        inputs, outputs = block * draw(1, 20), draw(1, 2000)
        kind, bias, gap = list(TABLES)[draw(0, 2)], bool(draw(0, 2)), 8 * draw(0, 3)
        product = Product(ROWS[draw(0, len(ROWS))], inputs, outputs, dtype, block, bias, gap, kind)
        try:
            check(product, seed, "cuda")
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {product}") from error


@DTYPES
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("inputs", "outputs"), [(4096, 6144), (4096, 4096), (4096, 28_672), (14_336, 4096)])
def test_products_of_a_real_models_size_agree_with_the_oracle(
    inputs: int, outputs: int, rows: int, dtype: torch.dtype
) -> None:
    check(Product(rows, inputs, outputs, dtype, bias=True), torch.seed() % 2**32, "cuda")


@DTYPES
@pytest.mark.parametrize("rows", [16, 32, FEW_ROWS])
def test_a_row_has_the_same_bits_whatever_the_rows_beside_it_hold(rows: int, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(rows)
    weights = make_weights(Product(rows, 4096, 4096, dtype), random, "cuda")
    x = torch.randn(rows, 4096, generator=random).to("cuda", dtype)
    other = torch.cat([x[:1], 30 * torch.randn_like(x[1:])])
    assert torch.equal(four_bit_matmul(x, *weights)[0], four_bit_matmul(other, *weights)[0])


@DTYPES
@pytest.mark.parametrize("kind", TABLES)
def test_what_bitsandbytes_packed_is_multiplied_as_it_would_and_captured_in_a_graph(
    kind: str, dtype: torch.dtype
) -> None:
    functional: Any = pytest.importorskip("bitsandbytes").functional
    weight = torch.randn(512, 1024, device="cuda").to(dtype)
    packed, state = functional.quantize_4bit(weight, blocksize=64, compress_statistics=False, quant_type=kind)
    table = table_of(tuple(state.code.tolist()), dtype, weight.device)
    x = torch.randn(5, 1024, device="cuda").to(dtype)
    expected = x.double() @ functional.dequantize_4bit(packed, state).double().t()
    four_bit_matmul(x, packed, state.absmax, table)  # compiled, which a capture forbids
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = four_bit_matmul(x, packed, state.absmax, table)
    for sign in (1, -1):
        graph.replay()
        torch.cuda.synchronize()
        assert float((out.double() - sign * expected).norm() / expected.norm()) < 1e-2
        x.neg_()
