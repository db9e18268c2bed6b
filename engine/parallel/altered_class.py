"""An architecture's class whose modules are another's from the beginning: before a weight is read."""

from collections.abc import Callable
from typing import Any

from transformers import PreTrainedModel


def altered(cls: type[PreTrainedModel], alter: Callable[[PreTrainedModel], None]) -> type[PreTrainedModel]:
    """The class, each of whose modules is altered once it is made; `plain_again` makes them of their own class."""

    def __init__(self: Any, config: Any, *args: Any, **given: Any) -> None:
        cls.__init__(self, config, *args, **given)
        alter(self)

    return type(cls.__name__, (cls,), {"__init__": __init__, "__module__": cls.__module__})


def plain_again(module: PreTrainedModel) -> None:
    """After its weights are read: it is one of its architecture's class."""
    module.__class__ = type(module).__bases__[0]
