"""Each form an AWQ layer runs in gives what its exact weights give, whatever else is in the batch."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from engine.bench.rounding import round_to_nearest
from engine.config.schemes import quantized_bytes
from engine.kernels.cpu.library import native
from engine.memory.weight_bytes import awq_bytes
from engine.models.packed_linear import PackedLinear, pack_linears
from engine.models.quantization.awq_linear import AwqLinear, TiledAwqLinear, make_ready, ready, stays_packed
from engine.models.quantization.coded_linear import CodedLinear
from engine.models.weight_count import held_bytes
from tests.engine.models.quantization.scalar_awq import decode

compiled = pytest.mark.skipif(native().library is None, reason=native().why)
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


def test_in_float16_it_becomes_a_dense_layer_with_the_exact_weights() -> None:
    layer = made_layer(bias=torch.float16)
    plain = ready(layer, torch.float16)
    assert type(plain) is nn.Linear
    assert torch.equal(plain.weight, decode(layer.qweight, layer.qzeros, layer.scales).half())
    assert plain.bias is layer.bias


@compiled
@pytest.mark.parametrize("group", [32, 64, 128, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_on_a_cpu_its_codes_are_multiplied(group: int, dtype: torch.dtype) -> None:
    layer = made_layer(256, 192, group, dtype)
    model = nn.Sequential(ready(layer, dtype))
    assert isinstance(model[0], CodedLinear)
    pack_linears(model)
    weight = decode(layer.qweight, layer.qzeros, layer.scales)
    assert isinstance(model[0], PackedLinear)
    assert torch.equal(model[0].weight, weight)
    x = rows(17, 256).to(dtype)
    assert layer.bias is not None
    exact = functional.linear(x.double(), weight.double(), layer.bias.double())
    assert (model(x) - exact).norm() <= (2**-8 if dtype is torch.bfloat16 else 1e-6) * exact.norm()


@compiled
@pytest.mark.parametrize(("inputs", "outputs", "group"), [(132, 24, 33), (36, 48, -1)])
def test_sizes_whose_words_would_hold_codes_of_two_groups_become_dense(inputs: int, outputs: int, group: int) -> None:
    layer = made_layer(inputs, outputs, group)
    assert not stays_packed(layer, CPU, torch.bfloat16)
    plain = ready(layer, torch.bfloat16)
    assert type(plain) is nn.Linear
    assert torch.equal(plain.weight, decode(layer.qweight, layer.qzeros, layer.scales).bfloat16())


def test_only_dtypes_of_a_kernel_keep_a_layer_packed() -> None:
    layer = made_layer()
    kept = {(d.type, t) for d in (CPU, GPU) for t in (torch.float32, torch.float16, torch.bfloat16)
            if stays_packed(layer, d, t)}  # fmt: skip
    here = {("cpu", torch.float32), ("cpu", torch.bfloat16)} if native().library is not None else set()
    assert kept == {*here, ("cuda", torch.float16), ("cuda", torch.bfloat16)}


@pytest.mark.parametrize("group", [32, 128, -1])
def test_bytes_as_stored_are_those_of_the_formula(group: int) -> None:
    assert held_bytes(made_layer(group=group)) == quantized_bytes("awq", [(128, 48)], 2, group)


@pytest.mark.parametrize(("inputs", "outputs", "group"), [(128, 48, 32), (96, 40, -1), (1024, 256, 128)])
def test_bytes_of_the_form_for_a_gpu_are_those_of_its_bill(inputs: int, outputs: int, group: int) -> None:
    layer = made_layer(inputs, outputs, group)
    tiles = TiledAwqLinear(layer)
    assert held_bytes(tiles) == awq_bytes(inputs, outputs, group, "bfloat16", "cuda")
    assert torch.equal(tiles.weight_in(torch.float32), layer.weight_in(torch.float32))


@compiled
def test_bytes_of_the_form_for_a_cpu_are_those_of_its_bill() -> None:
    assert held_bytes(ready(made_layer(group=64), torch.bfloat16)) == awq_bytes(128, 48, 64, "bfloat16", "cpu")


def test_every_awq_layer_of_a_model_is_made_ready_and_told_before() -> None:
    model = nn.ModuleDict({"a": nn.Sequential(made_layer(), nn.Linear(48, 8)), "b": made_layer()})

    def made() -> int:
        return sum(not isinstance(part, AwqLinear) and hasattr(part, "in_features") for part in model.modules())

    told: list[int] = []
    make_ready(model, torch.bfloat16, lambda: told.append(made()))
    assert told == [1, 2]
    assert [type(part) for part in model.modules() if isinstance(part, AwqLinear)] == []
    assert made() == 3
