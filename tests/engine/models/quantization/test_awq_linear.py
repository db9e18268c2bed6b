"""Each form an AWQ layer runs in gives what its exact weights give, whatever else is in the batch."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from engine.bench.rounding import round_to_nearest
from engine.config.schemes import quantized_bytes
from engine.memory.weight_bytes import awq_bytes
from engine.models.packed_linear import PackedLinear, pack_linears
from engine.models.quantization.awq_linear import (
    INT4_ROWS,
    AwqLinear,
    Int4Linear,
    TiledAwqLinear,
    make_ready,
    ready,
    stays_packed,
)
from engine.models.weight_count import held_bytes
from tests.engine.models.quantization.scalar_awq import decode

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def made_layer(inputs: int = 128, outputs: int = 48, group: int = 32, bias: torch.dtype | None = None) -> AwqLinear:
    random = torch.Generator().manual_seed(inputs + outputs)
    layer = AwqLinear(inputs, outputs, group, bias)
    layer.qweight, layer.qzeros, layer.scales = round_to_nearest(torch.randn(outputs, inputs, generator=random), group)
    if layer.bias is not None:
        layer.bias.data = torch.randn(outputs, generator=random).to(layer.bias)
    return layer


def rows(count: int, inputs: int = 128) -> torch.Tensor:
    return torch.randn(count, inputs, generator=torch.Generator().manual_seed(count))


def test_in_float32_it_becomes_a_dense_layer_with_the_exact_weights() -> None:
    layer = made_layer(bias=torch.float32)
    plain = ready(layer, torch.float32)
    assert type(plain) is nn.Linear
    assert torch.equal(plain.weight, decode(layer.qweight, layer.qzeros, layer.scales))
    assert plain.bias is layer.bias
    assert torch.equal(plain(rows(5)), layer(rows(5)))


def test_a_dense_layer_is_packed_like_any_other_in_float32() -> None:
    model = nn.Sequential(made_layer())
    make_ready(model, torch.float32)
    expected = model(rows(3))
    pack_linears(model)
    assert isinstance(model[0], PackedLinear)
    torch.testing.assert_close(model(rows(3)), expected)


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("count", [1, 3, 4, 17, INT4_ROWS, INT4_ROWS + 1, 200])
def test_the_int4_product_is_as_near_the_exact_one_as_dense_bfloat16(group: int, count: int) -> None:
    layer = made_layer(256, 192, group, torch.bfloat16)
    int4 = ready(layer, torch.bfloat16)
    assert isinstance(int4, Int4Linear)
    x = rows(count, 256).bfloat16()
    weight = decode(layer.qweight, layer.qzeros, layer.scales).double()
    exact = functional.linear(x.double(), weight, layer.bias.double())
    dense = functional.linear(x, weight.bfloat16(), layer.bias)
    assert (int4(x) - exact).norm() <= 2 * (dense - exact).norm()
    assert int4(x[:, None]).shape == (count, 1, 192)


def test_a_row_of_the_int4_product_does_not_depend_on_the_rows_beside_it() -> None:
    int4 = ready(made_layer(256, 64, 64), torch.bfloat16)
    x = rows(70, 256).bfloat16()
    together = int4(x)
    apart = torch.cat([int4(row[None]) for row in x])
    torch.testing.assert_close(together, apart, rtol=2**-7, atol=2**-7)  # a step of bfloat16
    assert torch.equal(int4(x[:5]), int4(torch.cat([x[:5], 1000 * x[5:9]]))[:5])


def test_many_rows_multiply_the_same_weights_unpacked() -> None:
    layer = made_layer(256, 128, 64)
    layer.scales[0] = 0
    int4 = ready(layer, torch.bfloat16)
    assert isinstance(int4, Int4Linear)
    assert int4.block, "torch lays int4 weights out in a way that is not known here: prefill is slow"
    layer.scales = layer.scales.bfloat16().half()  # the one thing that the form rounds; these are far from subnormal
    expected = rows(INT4_ROWS + 1, 256).bfloat16() @ layer.weight_in(torch.bfloat16).t()
    assert torch.equal(int4(rows(INT4_ROWS + 1, 256).bfloat16()), expected)


def test_sizes_that_fill_no_block_are_never_unpacked() -> None:
    int4 = ready(made_layer(256, 48, 64), torch.bfloat16)
    assert isinstance(int4, Int4Linear)
    assert int4.block == 0
    many = int4(rows(INT4_ROWS + 1, 256).bfloat16())
    torch.testing.assert_close(many[:5], int4(rows(INT4_ROWS + 1, 256).bfloat16()[:5]), rtol=2**-7, atol=2**-7)


@pytest.mark.parametrize(("inputs", "outputs", "group"), [(128, 24, 32), (96, 48, -1), (48, 48, 16)])
def test_sizes_that_the_int4_product_does_not_take_become_dense(inputs: int, outputs: int, group: int) -> None:
    layer = made_layer(inputs, outputs, group)
    assert not stays_packed(layer, CPU, torch.bfloat16)
    plain = ready(layer, torch.bfloat16)
    assert type(plain) is nn.Linear
    assert torch.equal(plain.weight, decode(layer.qweight, layer.qzeros, layer.scales).bfloat16())


def test_only_sixteen_bit_activations_keep_a_layer_packed() -> None:
    layer = made_layer()
    kept = {(d.type, t) for d in (CPU, GPU) for t in (torch.float32, torch.float16, torch.bfloat16)
            if stays_packed(layer, d, t)}  # fmt: skip
    assert kept == {("cpu", torch.bfloat16), ("cuda", torch.float16), ("cuda", torch.bfloat16)}


@pytest.mark.parametrize("group", [32, 128, -1])
def test_bytes_as_stored_are_those_of_the_formula(group: int) -> None:
    assert held_bytes(made_layer(group=group)) == quantized_bytes("awq", [(128, 48)], 2, group)


@pytest.mark.parametrize(("inputs", "outputs", "group"), [(128, 48, 32), (96, 40, -1), (1024, 256, 128)])
def test_bytes_of_the_form_for_a_gpu_are_those_of_its_bill(inputs: int, outputs: int, group: int) -> None:
    layer = made_layer(inputs, outputs, group)
    tiles = TiledAwqLinear(layer)
    assert held_bytes(tiles) == awq_bytes(inputs, outputs, group, "bfloat16", "cuda")
    assert torch.equal(tiles.weight_in(torch.float32), layer.weight_in(torch.float32))


def test_bytes_of_the_int4_form_are_those_it_holds() -> None:
    int4 = ready(made_layer(group=64), torch.bfloat16)
    assert isinstance(int4, Int4Linear)
    assert held_bytes(int4) == 128 * 48 // 2 + 4 * (128 // 64) * 48


def test_every_awq_layer_of_a_model_is_made_ready_and_told_before() -> None:
    model = nn.ModuleDict({"a": nn.Sequential(made_layer(), nn.Linear(48, 8)), "b": made_layer()})

    def made() -> int:
        return sum(isinstance(part, Int4Linear) for part in model.modules())

    told: list[int] = []
    make_ready(model, torch.bfloat16, lambda: told.append(made()))
    assert told == [0, 1]
    assert [type(part) for part in model.modules() if isinstance(part, AwqLinear)] == []
    assert made() == 2
