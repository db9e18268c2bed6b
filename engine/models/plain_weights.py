"""Which weights are nothing but their numbers."""

from torch import Tensor, nn

PLAIN: set[type] = {nn.Parameter}


def is_plain(weight: Tensor) -> bool:
    """A quantizer may leave a layer as it is and put a tensor of its own kind in the place of its weight."""
    return type(weight) in PLAIN
