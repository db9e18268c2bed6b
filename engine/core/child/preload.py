"""What an engine needs is imported in two thirds of the time: by the server of `engine.jobs.spawn` before it forks, and
by commands that have an engine in their own process.

Left out is a third, which model code imports for what no engine does: torch.distributed.tensor and FSDP to shard
modules, torch._dynamo and flex attention to compile, torchao to save. transformers is told for good that torch has
neither distributed modules nor flex attention; marks for a compiler that is not there mark nothing; two functions
import their module once they are called. What transformers offers it reads from all its files once, not twice, since
it keeps that by the path it was asked about. Afterwards everything else can be imported as ever.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import transformers

ENGINE = "engine.core.engine"
NEEDED = (
    ENGINE,
    "engine.quality.measure",
    "engine.checkpoints.hub.client",
    "engine.checkpoints.hub.resumable_download",
)
CONTEXT = "original_max_position_embeddings"
ROPES: tuple[dict[str, Any], ...] = (  # what each computes in its own way would import the compiler at every load
    {"rope_type": "default"},
    {"rope_type": "yarn", "factor": 2.0},
    {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, CONTEXT: 64},
)
MARKS = ("allow_in_graph", "assume_constant_result", "disable")
LATER = {
    "torch._dynamo._trace_wrapped_higher_order_op": "TransformGetItemToIndex",
    "torchao.prototype.safetensors.safetensors_support": "flatten_tensor_state_dict",
}


def preload(needed: Iterable[str] = NEEDED) -> None:
    """Of the server, whatever cannot be imported is missed by the child that needs it."""
    offers = transformers.utils.import_utils
    for place in (transformers.utils, offers):
        vars(place).update(is_torch_distributed_available=lambda: False, is_torch_flex_attn_available=lambda: False)
    marks = dict.fromkeys(MARKS, _unmarked)
    dynamo, later = SimpleNamespace(**marks), {module: _later(module, name) for module, name in LATER.items()}
    with (
        _replaced(vars(torch.compiler), marks),
        _replaced(vars(torch), {"_dynamo": dynamo}),
        _replaced(sys.modules, {"torch._dynamo": dynamo, **later}),
        _replaced(vars(offers), {"define_import_structure": _of_folder(offers.define_import_structure)}),
    ):
        for module in needed:
            import_module(module)
        from engine.memory.live_bytes import LiveBytes

        with LiveBytes(), torch.device("meta"):  # a load makes its modules there, and counts bytes when they run
            for rope in ROPES:
                turned = rope | {"rope_theta": 10_000.0}
                transformers.LlamaForCausalLM(transformers.LlamaConfig(num_hidden_layers=1, rope_parameters=turned))


@contextmanager
def _replaced(space: dict[str, Any], replacements: Mapping[str, Any]) -> Iterator[None]:
    before = {name: space[name] for name in replacements if name in space}
    space.update(replacements)
    try:
        yield
    finally:
        for name in replacements:
            space.pop(name, None)
        space.update(before)


def _unmarked(function: Any = None, *_: Any, **__: Any) -> Any:
    return _unmarked if function is None else function


def _of_folder(structure: Callable[..., Any]) -> Callable[..., Any]:
    """Asked about a package's own file, it tells of the folder, which `import transformers` has read."""
    return lambda path, *of, **by: structure(Path(path).parent if str(path).endswith(".py") else path, *of, **by)


def _later(module: str, name: str) -> ModuleType:
    standing = ModuleType(module)
    setattr(standing, name, lambda *given: getattr(import_module(module), name)(*given))
    return standing
