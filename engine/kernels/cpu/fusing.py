"""What a recorded step does to a product's result is done by the product itself, where nobody else reads that."""

from collections.abc import Sequence

from engine.kernels.cpu.library import function
from engine.kernels.cpu.recorder import SUM, Made, place_of
from engine.kernels.cpu.structures import Gate, Pointwise, Product, Structure


def fused(calls: Sequence[Structure], made: Sequence[Made], results: Sequence[int]) -> list[Structure]:
    """The calls in their order, fewer where two became one. `results` are the places that are read afterwards."""
    readers: dict[int, list[int]] = {}
    for i, call in enumerate(calls):
        for name in call.places():
            place = place_of(made, getattr(call, name))
            if place is not None:
                readers.setdefault(place, []).append(i)
    told: dict[int, Structure] = dict(enumerate(calls))
    for i, call in enumerate(calls):
        place = place_of(made, call.out) if isinstance(call, Product) else None
        others = sorted(set(readers.get(-1 if place is None else place, ())) - {i})
        if isinstance(call, Product) and len(others) == 1 and place not in results and others[0] > i:
            whole = _whole(call, calls[others[0]])
            if whole is not None:  # when its other operand is there
                del told[i]
                told[others[0]] = whole
    return [told[i] for i in sorted(told)]


def _whole(product: Product, then: Structure) -> Product | None:
    """The product that does what is done to its result, too."""
    if product.residual or product.gate or then.part.rows != product.part.rows:
        return None
    whole, itemsize = Product.from_buffer_copy(product), 2 if product.part.half else 4
    if isinstance(then, Gate):
        beside = then.up == then.gate + then.columns * itemsize and then.gate_stride == then.up_stride
        halves = product.columns == 2 * then.columns == then.gate_stride and then.gate == product.out
        if not (beside and halves) or then.columns % function("panel_width")():
            return None
        whole.gate, whole.out_stride = 1 + then.tanh, then.columns
    elif isinstance(then, Pointwise) and then.kind == SUM and then.columns == product.columns:
        first = then.a == product.out and then.a_stride == product.columns
        if then.a == then.b or not (first or then.b == product.out):
            return None
        whole.residual, whole.residual_stride = (then.b, then.columns) if first else (then.a, then.a_stride)
    else:
        return None
    whole.out = then.out
    return whole
