"""Random products with weights packed as bitsandbytes does, poisoned outputs, and their check against exact weights in
float64."""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.kernels.products.four_bits import Tiling, four_bit_matmul, table_of

# As bitsandbytes has them; code 0 is the first.
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
FP4 = (0.0, 0.005208333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
TABLES = {"nf4": NF4, "fp4": (*FP4, *(-number for number in FP4))}
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}  # of values near one


@dataclass(frozen=True)
class Product:
    """`rows` by `inputs` times `inputs` by `outputs`; x's rows lie `gap` elements further apart than they need."""

    rows: int
    inputs: int
    outputs: int
    dtype: torch.dtype
    block: int = 64
    bias: bool = False
    gap: int = 0
    kind: str = "nf4"


def make_weights(product: Product, random: torch.Generator, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """Every code random; scales that keep the products near one."""
    weights = product.inputs * product.outputs
    packed = torch.randint(0, 256, (weights // 2, 1), generator=random, dtype=torch.uint8)
    scales = (0.5 + torch.rand(weights // product.block, generator=random)) / product.inputs**0.5
    table = table_of(TABLES[product.kind], product.dtype, torch.device(device))
    return packed.to(device), scales.to(device), table


def floats_of(kind: str, dtype: torch.dtype) -> Tensor:
    """The 16 codes' numbers as a table rounds them."""
    return torch.tensor(TABLES[kind]).to(dtype)


def dequantize(packed: Tensor, scales: Tensor, floats: Tensor, inputs: int) -> Tensor:
    """The weights [outputs, inputs] in float64."""
    codes = torch.stack([packed.flatten() >> 4, packed.flatten() & 15], -1).flatten().long()
    return (floats.double()[codes].view(len(scales), -1) * scales.double()[:, None]).view(-1, inputs)


def check(product: Product, seed: int, device: str = "cpu", tiles: Tiling | None = None) -> None:
    """Fails unless the kernel agrees with the oracle in every element; twice the same bits, nothing left NaN."""
    random = torch.Generator().manual_seed(seed)
    weights = make_weights(product, random, device)
    apart = torch.full((product.rows, product.inputs + product.gap), torch.nan)
    apart[:, : product.inputs] = torch.randn(product.rows, product.inputs, generator=random)
    x = apart.to(device, product.dtype)[:, : product.inputs]
    bias = torch.randn(product.outputs, generator=random).to(device, product.dtype) if product.bias else None

    out = torch.full((product.rows, product.outputs), torch.nan, dtype=product.dtype, device=device)
    assert four_bit_matmul(x, *weights, bias, out=out, tiles=tiles) is out
    floats = floats_of(product.kind, product.dtype).to(device)
    expected = x.double() @ dequantize(*weights[:2], floats, product.inputs).t()
    if bias is not None:
        expected += bias.double()
    tolerance = TOLERANCE[product.dtype]
    torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=tolerance)
    assert torch.equal(four_bit_matmul(x, *weights, bias, tiles=tiles), out)
