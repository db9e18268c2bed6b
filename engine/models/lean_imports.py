"""Imported before transformers, keeps from its model code what an engine has no use for: two of five seconds.

That code draws in torch.distributed.tensor to shard models, torch._dynamo to mark functions for a compiler, and torchao
to save its weights. With this, nothing can be sharded, and the rest is imported once it is called. It changes
transformers for the whole process, so only the server of `engine.jobs.spawn` imports it, and with it its children.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
import transformers.utils


class Deferred(ModuleType):
    """Stands for a module until it is asked for what is not among the `known`."""

    def __init__(self, name: str, known: Mapping[str, Any], package: bool = False) -> None:
        super().__init__(name)
        vars(self).update(known)
        self._inside = "__path__" if package else ""  # asked for by imports of modules inside it
        sys.modules[name] = self

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__") and attribute != self._inside:
            raise AttributeError(attribute)
        return getattr(self.real(), attribute)

    def real(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return import_module(self.__name__)


def forward(module: str, name: str) -> None:
    """Stands for a module of which `name` alone is wanted, to be called later or never."""

    def call(*given: Any) -> Any:
        return getattr(standing.real(), name)(*given)

    standing = Deferred(module, {name: call})


def unmarked(function: Any = None, *_: Any, **__: Any) -> Any:
    return unmarked if function is None else function


for missing in ("is_torch_distributed_available", "is_torch_flex_attn_available"):
    for place in (transformers.utils, transformers.utils.import_utils):
        setattr(place, missing, lambda: False)
marks = dict.fromkeys(("allow_in_graph", "assume_constant_result", "disable"), unmarked)
vars(torch)["_dynamo"] = Deferred("torch._dynamo", marks, package=True)
forward("torch._dynamo._trace_wrapped_higher_order_op", "TransformGetItemToIndex")
forward("torchao.prototype.safetensors.safetensors_support", "flatten_tensor_state_dict")
import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("llama")  # which keeps all of them
