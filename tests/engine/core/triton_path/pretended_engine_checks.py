"""Checks of an engine whose device is "cuda", which `test_pretend_gpu.py` runs on a pretend GPU."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import groupby
from pathlib import Path
from random import Random

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("run by test_pretend_gpu.py", allow_module_level=True)

from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Submission
from engine.core.setup import roof
from engine.core.setup.rehearsal import Rehearsal
from engine.jobs import LoadProgress
from engine.trace import Kind
from tests.engine.tiny_models import TINY_MODELS, random_prompts, save_tiny_model
from tests.pretend_gpu import streams, tensor

pytestmark = pytest.mark.timeout(400)  # an interpreted load is slow
DEVICE = "cuda:1"  # the second: what is not where the model is meets the first one
MEMORY = 200 << 10
WAYS = [
    SamplingParams(max_tokens=6, temperature=0, ignore_eos=True),
    SamplingParams(max_tokens=5, temperature=0.8, top_p=0.9, seed=5, ignore_eos=True, logprobs=2),
    SamplingParams(max_tokens=7, temperature=1.1, top_k=40, seed=6, ignore_eos=True, repetition_penalty=1.2),
]
CONFIGS = {
    "continuous": EngineConfig("continuous", 8, 64, block_size=4, depth=1, kv_memory=MEMORY),
    "chunked": EngineConfig("chunked", 8, 16, block_size=4, depth=1, kv_memory=MEMORY, prefix_caching=True),
    "no graphs": EngineConfig("continuous", 8, 64, block_size=4, depth=0, kv_memory=MEMORY, cuda_graphs=False),
    "padded": EngineConfig("continuous-padded", 4, 64, kv_memory=MEMORY),
}


met: list[Rehearsal] = []


def meet_few(self: Rehearsal, glance: Callable[[], None]) -> None:
    met.append(self)
    glance()
    self.play(2, 2)


@pytest.fixture(scope="module", autouse=True)
def _soon() -> Iterator[None]:
    """Nothing is compiled here that a run could wait for, and copies for a roof of it are no measurement."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rehearsal, "meet_all_kernels", meet_few)
        patch.setattr(roof, "GPU_SETS", (1 << 20, 2 << 20))
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "llama"
    save_tiny_model(TINY_MODELS["llama"], path)
    return path


@pytest.fixture(scope="module")
def engine(folder: Path) -> Iterator[Engine]:
    spec = ModelSpec(str(folder), dtype="float32", device=DEVICE)
    with Engine(spec, CONFIGS["continuous"], progress=stages.append, threads=1) as engine:
        yield engine


stages: list[LoadProgress] = []


def said(engine: Engine, config: EngineConfig) -> list[tuple[int, ...]]:
    engine.begin(config)
    tensor.waits.clear()
    submissions = [Submission(prompt, WAYS[i % 3]) for i, prompt in enumerate(random_prompts((5, 1, 19, 9), seed=3))]
    completions = [stream.result(100) for stream in engine.submit_many(submissions)]
    assert [each.error for each in completions] == [""] * len(completions)
    return [tuple(each.token_ids) for each in completions]


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[tuple[int, ...]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "0")
        with Engine(ModelSpec(str(folder), dtype="float32", device="cpu"), CONFIGS["continuous"], threads=1) as engine:
            return said(engine, CONFIGS["continuous"])


@pytest.mark.parametrize("name", CONFIGS)
def test_tokens_are_those_of_the_cpu(name: str, engine: Engine, expected: list[tuple[int, ...]]) -> None:
    config = CONFIGS[name]
    assert said(engine, config) == expected
    assert tensor.waits == [] or not config.paged, "the host waits for a step's tokens alone"
    header = engine.trace.header
    assert bool(header.graphs) == (config.paged and config.cuda_graphs), header.graphs_off
    decoded = [step for step in engine.trace.steps if step.rows and (step.kind == Kind.DECODE).all()]
    assert len(decoded) > 3
    assert all(bool(step.graph) == bool(header.graphs) for step in decoded)


def test_nothing_hangs_on_when_the_gpu_does_its_work(
    engine: Engine, expected: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams.pace, "pace", Random(7))
    assert said(engine, CONFIGS["continuous"]) == expected


def test_a_load_says_what_it_does_all_the_while(engine: Engine) -> None:
    told = [stage for stage, _ in groupby(each.stage for each in stages)]
    after = told[told.index("fusing small operations") + 1 :]
    assert after == ["measuring this machine", "compiling kernels for this GPU, once", "capturing graphs", "warming up"]
    assert met, "and is rehearsed what compiles every kernel"


def test_everything_of_a_model_is_on_its_gpu(engine: Engine) -> None:
    model = engine.model
    assert model.fusion is not None
    assert not model.fusion.undone
    assert not model.fusion.left
    held = [*model.module.named_parameters(), *model.module.named_buffers()]
    assert {str(each.device) for _, each in held} == {DEVICE}
    assert len(held) > 10
    assert tensor.cards[1].allocated > 0
    assert tensor.cards[0].most_allocated == 0


def test_what_the_engines_thread_asks_of_no_gpu_in_particular_is_asked_of_its_own(engine: Engine) -> None:
    """A capture waits so: on another GPU it would take memory there."""
    found: Future[int] = Future()
    engine._inbox.post(lambda: found.set_result(torch.cuda.current_device()))
    assert found.result(20) == torch.device(DEVICE).index
