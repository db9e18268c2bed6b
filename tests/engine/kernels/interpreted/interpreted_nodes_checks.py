"""Counts the nodes of captured steps, which `test_interpreted.py` runs with TRITON_INTERPRET=1: every launch of
ours, and every operation of torch that computes or copies. What adds a node has to be wanted here."""

import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoTokenizer

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

import resources
from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig
from engine.kernels.jit import launched
from engine.models.loading import wrap
from engine.runner.paged_gpu import GpuRunner
from engine.scheduler.block_pool import BlockPool
from engine.scheduler.request import Emission
from engine.scheduler.scheduler import Scheduler
from tests.engine.requests import make_request
from tests.engine.tiny_models import TinyModel, _llama_like, make_tiny_model

ROWS, TOKENS = 4, 32
SHALLOW = {"Llama": 1, "Qwen3": 1, "Gemma3Text": 2, "Mixtral": 1}  # layers, of every kind; as many more are counted
MODELS = {
    "Llama": _llama_like,
    "Qwen3": lambda name, **changes: _llama_like(name, head_dim=32, **changes),
    "Gemma3Text": lambda name, **changes: _llama_like(
        name, head_dim=32, sliding_window=8, sliding_window_pattern=2, **changes
    ),
    "Mixtral": lambda name, **changes: _llama_like(name, num_local_experts=4, num_experts_per_tok=2, **changes),
}
GATED = [name for name in MODELS if name != "Mixtral"]  # whose gates are launched apart where rows are many
# A layer's; and those of a step beside its layers, of which three sample.
MOST = {"Llama": (9, 14), "Qwen3": (9, 14), "Gemma3Text": (9, 22), "Mixtral": (12, 14)}


class Computed(TorchDispatchMode):
    """Notes torch's operations that are nodes of a graph: all but views and the taking of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.embedding.default:
            args = args[0], torch.zeros_like(args[1]), *args[2:]  # no kernel has written the ids
        out = func(*args, **(kwargs or {}))
        returned = func._schema.returns
        view = any(each.alias_info is not None and not each.alias_info.is_write for each in returned)
        if not view and "empty" not in func.__name__:
            self.names.append(func.__name__)
        return out


def runner_of(tiny: TinyModel) -> GpuRunner:
    tokenizer = AutoTokenizer.from_pretrained(resources.path("models/stories-5m"))
    model = wrap(make_tiny_model(tiny).half(), tokenizer, "tiny")  # a CPU packs no float16: layers are as on a GPU
    return GpuRunner(model, EngineConfig(max_running=ROWS, token_budget=64), blocks=64)


def counted(call: Callable[..., object], *values: Any) -> Counter[str]:
    """The nodes of what a call computes, none of which is launched."""
    with torch.inference_mode(), Computed() as computed:
        launches = launched(call, *values)
    return Counter([launch.kernel.fn.__name__ for launch in launches] + computed.names)


# Of a step with prompts attention is launched for short and for long rows, each with a plan.
MOST_MIXED = {"Llama": (10, 16), "Qwen3": (10, 16), "Gemma3Text": (10, 25), "Mixtral": (13, 16)}


@cache
def runner_with(name: str, layers: int) -> GpuRunner:
    """Whose steps are only counted."""
    return runner_of(MODELS[name](name, num_hidden_layers=layers))


def nodes(name: str, layers: int, mixed: bool) -> Counter[str]:
    runner = runner_with(name, layers)
    return counted(runner._mixed_and_draw, TOKENS) if mixed else counted(runner._decode_and_draw, ROWS)


@pytest.mark.parametrize("mixed", [False, True], ids=["decode", "mixed"])
@pytest.mark.parametrize("name", MODELS)
def test_a_captured_step_has_no_more_nodes_than_these(name: str, mixed: bool) -> None:
    layers = SHALLOW[name]
    few, more = nodes(name, layers, mixed), nodes(name, 2 * layers, mixed)
    of_layers = more - few
    beside = few - of_layers
    assert of_layers.total() == more.total() - few.total()
    most = (MOST_MIXED if mixed else MOST)[name]
    assert of_layers.total() / layers <= most[0], of_layers
    assert beside.total() <= most[1], beside


@pytest.mark.parametrize("name", GATED)
def test_a_captured_step_of_one_row_ends_its_product_of_gate_and_up_with_the_gate(name: str) -> None:
    layers = SHALLOW[name]
    few, more = (counted(runner_with(name, each)._decode_and_draw, 1) for each in (layers, 2 * layers))
    of_layers = more - few
    assert not of_layers["act_mul_kernel"]
    assert of_layers.total() / layers <= MOST[name][0] - 1, of_layers


def test_a_steady_step_computes_nothing_beside_its_graph() -> None:
    config = EngineConfig(max_running=ROWS, token_budget=64)
    runner, scheduler = runner_of(MODELS["Llama"]("Llama")), Scheduler(config, BlockPool(64, config.block_size))
    ways = [SamplingParams(temperature=0), SamplingParams(top_p=0.9), SamplingParams(repetition_penalty=1.2)]
    for i, way in enumerate(ways):
        scheduler.add(make_request(runner.model, i, 3, way.with_(max_tokens=6, ignore_eos=True)))
    for _ in range(2):  # the prompts, and the first step that decodes: the device learns of its rows
        plan = scheduler.plan()
        assert plan is not None
        runner.launch(plan)
        scheduler.commit(plan, [Emission(5)] * len(plan.rows))
    steady = 0
    while (plan := scheduler.plan()) is not None:
        assert counted(runner.launch, plan) == counted(runner._decode_and_draw, ROWS)
        scheduler.commit(plan, [Emission(5)] * len(plan.rows))
        steady += 1
    assert steady == 4
