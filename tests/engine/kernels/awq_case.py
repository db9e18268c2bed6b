"""Random products with packed weights, poisoned outputs, and their check against exact weights in float64."""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.products.awq_matmul import Tiling, awq_matmul
from engine.models.quantization.awq_layout import dequantize
from engine.models.quantization.awq_tiles import tiled

TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}  # of values near one


@dataclass(frozen=True)
class Product:
    """`rows` by `inputs` times `inputs` by `outputs`; x's rows lie `gap` elements further apart than they need."""

    rows: int
    inputs: int
    outputs: int
    group: int
    dtype: torch.dtype
    bias: bool = False
    gap: int = 0


def make_weights(product: Product, random: torch.Generator, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """As a checkpoint has them. Every bit random; scales that keep the products near one."""

    def words(rows: int) -> Tensor:
        return torch.randint(-(2**31), 2**31, (rows, product.outputs // 8), generator=random).to(torch.int32)

    groups = product.inputs // product.group
    scales = (0.5 + torch.rand(groups, product.outputs, generator=random)) * 0.15 / product.inputs**0.5
    return words(product.inputs).to(device), words(groups).to(device), scales.half().to(device)


def check(product: Product, seed: int, device: str = "cpu", cut: Tiling | None = None) -> None:
    """Fails unless the kernel agrees with the oracle in every element; twice the same bits, nothing left NaN."""
    random = torch.Generator().manual_seed(seed)
    weights = make_weights(product, random, device)
    tiles, scales = tiled(*weights)
    apart = torch.full((product.rows, product.inputs + product.gap), torch.nan)
    apart[:, : product.inputs] = torch.randn(product.rows, product.inputs, generator=random)
    x = apart.to(device, product.dtype)[:, : product.inputs]
    bias = torch.randn(product.outputs, generator=random).to(device, product.dtype) if product.bias else None

    out = torch.full((product.rows, product.outputs), torch.nan, dtype=product.dtype, device=device)
    assert awq_matmul(x, tiles, scales, bias, out=out, cut=cut) is out
    expected = x.double() @ dequantize(*weights, torch.float32).double().t()
    if bias is not None:
        expected += bias.double()
    tolerance = TOLERANCE[product.dtype]
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
    assert torch.equal(awq_matmul(x, tiles, scales, bias, cut=cut), out)
