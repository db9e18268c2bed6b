"""Counts the nodes of a captured decode step, which `test_interpreted.py` runs with TRITON_INTERPRET=1: every launch of
ours, and every operation of torch that computes or copies. What adds a node has to be wanted here."""

import os
from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoTokenizer

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

import resources
from engine.config.specs import EngineConfig
from engine.kernels.jit import launched
from engine.models.loading import wrap
from engine.runner.paged_gpu import GpuRunner
from tests.engine.tiny_models import TinyModel, _llama_like, make_tiny_model

ROWS = 4
MODELS = {
    "Llama": _llama_like,
    "Qwen3": lambda name, **changes: _llama_like(name, head_dim=32, **changes),
    "Gemma3Text": lambda name, **changes: _llama_like(
        name, head_dim=32, sliding_window=8, sliding_window_pattern=2, **changes
    ),
}
# A layer's; and those of a step beside its layers.
MOST = {"Llama": (9, 11), "Qwen3": (9, 11), "Gemma3Text": (9, 19)}


class Computed(TorchDispatchMode):
    """Notes torch's operations that are nodes of a graph: all but views and the taking of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        returned = func._schema.returns
        view = any(each.alias_info is not None and not each.alias_info.is_write for each in returned)
        if not view and "empty" not in func.__name__:
            self.names.append(func.__name__)
        return out


def nodes(tiny: TinyModel) -> Counter[str]:
    tokenizer = AutoTokenizer.from_pretrained(resources.path("models/stories-5m"))
    model = wrap(make_tiny_model(tiny).half(), tokenizer, "tiny")  # a CPU packs no float16: layers are as on a GPU
    runner = GpuRunner(model, EngineConfig(max_running=ROWS, token_budget=64), blocks=64)
    with torch.inference_mode(), Computed() as computed:
        launches = launched(runner._decode, ROWS)
    return Counter([launch.kernel.fn.__name__ for launch in launches] + computed.names)


@pytest.mark.parametrize("name", MODELS)
def test_a_decode_step_has_no_more_nodes_than_these(name: str) -> None:
    few, more = (nodes(MODELS[name](name, num_hidden_layers=layers)) for layers in (2, 4))
    of_layers = more - few  # two of them
    beside = few - of_layers
    assert of_layers.total() == more.total() - few.total()
    assert of_layers.total() / 2 <= MOST[name][0], of_layers
    assert beside.total() <= MOST[name][1], beside
