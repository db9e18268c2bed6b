"""Products with weights that are unpacked for one call, on processors with and without products of bfloat16."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.models.quantization import passing_weight
from engine.models.quantization.passing_weight import multiply

PRODUCTS = ("mm", "addmm", "linear", "_linear_pointwise")


class Products(TorchDispatchMode):
    """Notes the dtypes that are multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.overloadpacket.__name__ in PRODUCTS:
            self.dtypes |= {x.dtype for x in args if isinstance(x, torch.Tensor)}
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("by_inputs", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("has_products", [False, True])
def test_a_product_is_rounded_once_and_of_a_dtype_that_the_processor_multiplies(
    has_products: bool, dtype: torch.dtype, biased: bool, by_inputs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passing_weight, "wanted", lambda dtype: dtype if has_products else torch.float32)
    random = torch.Generator().manual_seed(1)
    x, weight, bias = (torch.randn(*size, generator=random).to(dtype) for size in ((3, 5, 64), (48, 64), (48,)))
    exact = x.double() @ weight.double().t() + (bias.double() if biased else 0.0)
    weight = weight.t().contiguous().t() if by_inputs else weight
    with Products() as products:
        out = multiply(x, weight, bias if biased else None)
    assert products.dtypes == {dtype if has_products else torch.float32}
    assert out.dtype is dtype
    rounding = torch.finfo(dtype).eps / 2 + 1e-6
    torch.testing.assert_close(out.double(), exact, rtol=rounding, atol=1e-5)
