"""How a view lies in memory, for kernels that read rows with gaps between them."""

from torch import Tensor


def spread(x: Tensor) -> tuple[int, int] | None:
    """A tensor as rows of values side by side, so many values apart: (values of a row, from row to row), the rows as
    long as can be but for the first dimensions. None where it is not so."""
    shape = [(size, stride) for size, stride in zip(x.shape, x.stride()) if size != 1]
    columns = 1
    while shape and shape[-1][1] == columns:
        columns *= shape.pop()[0]
    if not shape:
        last = x.shape[-1] if x.dim() else 1
        return last, last
    step, rows = shape[-1][1], 1
    for size, stride in reversed(shape):
        if stride != step * rows:
            return None
        rows *= size
    return columns, step
