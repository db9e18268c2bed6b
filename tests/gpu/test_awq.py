"""The AWQ kernels agree with exact weights in float64 on the GPU that is here."""

import pytest
import torch

from engine.bench.rounding import round_to_nearest
from engine.kernels.products.awq_matmul import FUSED_ROWS, awq_matmul, awq_unpack
from engine.models.quantization.awq_layout import dequantize
from engine.models.quantization.awq_linear import AwqLinear, TiledAwqLinear, ready
from engine.models.quantization.awq_tiles import tiled
from tests.engine.kernels.awq_case import Product, check, make_weights

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

DTYPES = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
ROWS = (1, 3, 8, 16, 17, 32, 33, 64, 100, FUSED_ROWS, FUSED_ROWS + 1, 500)


@DTYPES
def test_products_of_random_sizes_agree_with_the_oracle(dtype: torch.dtype) -> None:
    fresh = torch.seed()
    for seed in range(fresh, fresh + 8):  # each is compiled anew
        random = torch.Generator().manual_seed(seed)

        def draw(low: int, high: int, random: torch.Generator = random) -> int:
            return int(torch.randint(low, high, (), generator=random))

        group = 16 * draw(1, 17)
        product = Product(
            ROWS[draw(0, len(ROWS))],
            group * draw(1, 20),
            8 * draw(1, 300),
            group,
            dtype,
            bool(draw(0, 2)),
            8 * draw(0, 3),
        )
        try:
            check(product, seed, "cuda")
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {product}") from error


@DTYPES
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(("inputs", "outputs"), [(4096, 4096), (4096, 1024), (4096, 14336), (14336, 4096)])
def test_products_of_a_real_models_size_agree_with_the_oracle(
    inputs: int, outputs: int, rows: int, dtype: torch.dtype
) -> None:
    check(Product(rows, inputs, outputs, 128, dtype, bias=True), torch.seed() % 2**32, "cuda")


@DTYPES
def test_unpacked_weights_equal_the_layouts_bit_for_bit(dtype: torch.dtype) -> None:
    weights = make_weights(Product(1, 512, 1032, 128, dtype), torch.Generator().manual_seed(0), "cuda")
    assert torch.equal(awq_unpack(*tiled(*weights), 512, dtype), dequantize(*weights, dtype))


@DTYPES
@pytest.mark.parametrize("rows", [8, 16, 32, 64])
def test_a_row_has_the_same_bits_whatever_the_rows_beside_it_hold(rows: int, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(rows)
    packed = tiled(*make_weights(Product(rows, 4096, 4096, 128, dtype), random, "cuda"))
    x = torch.randn(rows, 4096, generator=random).to("cuda", dtype)
    other = torch.cat([x[:1], 30 * torch.randn_like(x[1:])])
    assert torch.equal(awq_matmul(x, *packed)[0], awq_matmul(other, *packed)[0])


@DTYPES
def test_a_layer_stays_packed_and_is_captured_in_a_graph(dtype: torch.dtype) -> None:
    layer = AwqLinear(1024, 512, 128)
    layer.qweight, layer.qzeros, layer.scales = round_to_nearest(torch.randn(512, 1024), 128)
    run = ready(layer.cuda(), dtype)
    assert isinstance(run, TiledAwqLinear)
    x = torch.randn(5, 1024, device="cuda").to(dtype)
    with torch.inference_mode():
        expected = run(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = run(x)
        x.neg_()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(out, -expected)
