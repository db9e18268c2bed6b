"""Checks that a run on a GPU launches nothing that its load has not met, told by the launches of whole runs, which
`test_pretend_gpu.py` runs on a pretend GPU. `tests.engine.kernels.offline.test_census` asks it of large models' shapes.

Kernels are noted and not computed, but for those that say which tokens are where: what the others leave is arbitrary,
and all that is drawn is token 0.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("run by test_pretend_gpu.py", allow_module_level=True)

from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Submission
from engine.core.setup import roof
from engine.core.setup.drafts import Drafts
from engine.core.setup.runner_factory import RunnerFactory
from engine.kernels import step_inputs
from engine.kernels.jit import Launch
from engine.kernels.offline.specialization import specialization
from tests.engine.tiny_models import TINY_MODELS, random_prompts, save_tiny_model

pytestmark = pytest.mark.timeout(400)
LENGTHS = 5, 1, 19, 33, 140, 200
WAYS = [
    SamplingParams(temperature=0, max_tokens=5, ignore_eos=True),
    SamplingParams(top_k=4, n=2, logprobs=2, seed=1, max_tokens=5, ignore_eos=True),
]
SHORT = {"max_running": 20, "token_budget": 160}
CONFIGS = {
    "a draft": EngineConfig("chunked", **SHORT, speculation="draft", cuda_graphs=False),
    "KV in int8": EngineConfig("chunked", **SHORT, kv_dtype="int8", cuda_graphs=False),
    "decode graphs, KV in fp8": EngineConfig("chunked", **SHORT, kv_dtype="fp8", mixed_graphs=False),
    "swapped": EngineConfig(**SHORT, block_size=4, kv_memory=56 << 10, cuda_graphs=False, preemption="swap"),
}


class Census:
    """What was launched since a load began to rehearse, and what of it was launched after the load alone."""

    def __init__(self) -> None:
        self.noting = self.loading = False  # before it is asked for, kernels are computed
        self.met: set[Any] = set()
        self.late: set[Any] = set()

    def note(self, kernel: InterpretedFunction[Any], grid: tuple[int, ...], arguments: dict[str, Any]) -> None:
        _, *compiled_for = specialization(Launch(as_compiled(kernel), grid, arguments))
        key = kernel.fn.__name__, *compiled_for
        if self.loading:
            self.met.add(key)
        elif key not in self.met:
            self.late.add(key)


@cache
def as_compiled(kernel: InterpretedFunction[Any]) -> JITFunction[Any]:
    return JITFunction(kernel.fn, do_not_specialize=kernel.kwargs["do_not_specialize"])


@pytest.fixture(scope="module")
def census() -> Iterator[Census]:
    told = Census()
    compute, prepare, load_draft = InterpretedFunction.run, RunnerFactory.__call__, Drafts.__call__

    def run(self: InterpretedFunction[Any], *args: Any, grid: Any, warmup: bool, **arguments: Any) -> None:
        if told.noting:
            told.note(self, grid, arguments)
        if not told.noting or self.fn.__module__ == step_inputs.__name__:
            compute(self, *args, grid=grid, warmup=warmup, **arguments)
        elif self.fn.__name__ == "pick_kernel":
            for name in ("tokens", "logprobs", "last_tokens"):
                arguments[name].zero_()

    def prepared(self: RunnerFactory, *given: Any) -> Any:
        told.noting = told.loading = True
        told.met.clear()
        try:
            return prepare(self, *given)
        finally:
            told.loading = False

    def loaded(self: Drafts, *given: Any) -> Any:
        told.noting = False  # its fused layers are proved
        return load_draft(self, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InterpretedFunction, "run", run)
        patch.setattr(RunnerFactory, "__call__", prepared)
        patch.setattr(Drafts, "__call__", loaded)
        patch.setattr(roof, "GPU_SETS", (1 << 20, 2 << 20))
        yield told


def spec(folder: Path, name: str) -> ModelSpec:
    save_tiny_model(TINY_MODELS[name], folder, layers=1)
    return ModelSpec(str(folder), dtype="float32", device="cuda:1")  # as all checks of this process


@pytest.fixture(scope="module")
def draft(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return spec(tmp_path_factory.mktemp("draft"), "llama wide heads")


@pytest.fixture(scope="module")
def engine(census: Census, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    model = spec(tmp_path_factory.mktemp("model"), "mistral")
    with Engine(model, EngineConfig("continuous-padded", kv_memory=1 << 20), threads=1) as engine:
        yield engine


@pytest.mark.parametrize("name", CONFIGS)
def test_a_run_launches_nothing_that_its_load_has_not_met(
    name: str, engine: Engine, draft: ModelSpec, census: Census
) -> None:
    config = CONFIGS[name]
    engine.begin(replace(config, draft=draft) if config.speculation else config)
    census.late.clear()
    for params in WAYS:
        streams = engine.submit_many([Submission(prompt, params) for prompt in random_prompts(LENGTHS)])
        assert [stream.result(100).error for stream in streams] == [""] * len(streams)
    swapped = sum(len(step.swap_event) for step in engine.trace.steps)
    assert bool(swapped) == (name == "swapped")
    assert len(census.met) > 8
    assert not census.late
