"""Gated MLPs whose gates and what these gate are one product: of few rows it ends with the gate, in one launch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from engine.models.fusion.parts import ACTIVATION, TOLERANCE, FusedPart, Setting, Use, subclass
from engine.models.fusion.products import PRODUCT
from engine.models.packed_linear import HeldByLayers, JoinedProduct

KERNEL = "gated product"
ROWS = (1, 3, 40)  # of a proof: few rows may have tiles of their own


def gated_mlps(module: nn.Module, setting: Setting) -> Iterator[tuple[nn.Module, FusedPart]]:
    """The fused MLPs whose product can end with the gate at some number of rows, and computes the same then."""
    for part in module.modules():
        product = _product(part)
        if product is not None and _proved(part, product.packed, setting):
            yield part, _gated(part, product, setting)


def _layers(mlp: Any) -> list[Any]:
    """Of gates and up: one of both, or each one's."""
    return [mlp.gate_up_proj] if hasattr(mlp, "gate_up_proj") else [mlp.gate_proj, mlp.up_proj]


def _product(mlp: Any) -> JoinedProduct | None:
    """That of gates and ups, which has nothing beside them."""
    if getattr(type(mlp), ACTIVATION, None) is None:
        return None
    products = {getattr(type(layer), PRODUCT, None) for layer in _layers(mlp)}
    (product,) = products if len(products) == 1 else (None,)
    return product if product is not None and isinstance(product.packed, HeldByLayers) else None


def _proved(mlp: Any, packed: Any, setting: Setting) -> bool:
    activation, tried = getattr(type(mlp), ACTIVATION), 0
    for rows in ROWS:
        x = setting.draw(1, rows, _layers(mlp)[0].in_features)
        made = packed.gated(x, activation)
        if made is not None:
            gate, up = packed.multiply(x).chunk(2, dim=-1)
            expected = setting.kernels.act_mul(gate, up, activation)
            off = (made.float() - expected.float()).abs().max()
            if made.shape != expected.shape or not off <= TOLERANCE[setting.dtype] * expected.float().abs().max():
                return False
            tried += 1
    return tried > 0


def _gated(mlp: Any, product: JoinedProduct, setting: Setting) -> FusedPart:
    own: Callable[..., Tensor] = type(mlp).forward
    activation, use, packed = getattr(type(mlp), ACTIVATION), Use(), product.packed
    assert isinstance(packed, HeldByLayers)

    def forward(self: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        serves = (
            setting.serves(x) and not (args or kwargs) and product.adapted is None
        )  # what adapters add comes before
        acted = packed.gated(x, activation) if serves else None
        if acted is None:
            return own(self, x, *args, **kwargs)
        use.served = True
        down: Tensor = self.down_proj(acted)
        return down

    return subclass(mlp, forward, KERNEL, use)
