"""Parameters laid side by side in one tensor, of which they become views."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def join_parameters(parts: Sequence[Tensor], widths: Sequence[int]) -> Tensor:
    """Rows below rows; each parameter keeps its own."""
    joined = torch.cat([part.detach() for part in parts])
    for part, view in zip(parts, joined.split(list(widths)), strict=True):
        part.data = view
    return joined


def join_biases(linears: Sequence[Any]) -> Tensor | None:
    """Of linear layers that all have one, or none."""
    biases = [linear.bias for linear in linears if linear.bias is not None]
    return join_parameters(biases, [len(bias) for bias in biases]) if biases else None
