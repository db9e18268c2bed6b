"""A step that one rank has no memory for is tried again by all, in smaller parts; every token is right all the same."""

import resource
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch
from transformers import LlamaConfig

from engine import Engine, EngineConfig, ModelSpec, Parallel, SamplingParams
from engine.trace import Notice
from tests.engine.forwards import Watched
from tests.engine.tiny_models import VOCABULARY, TinyModel, random_prompts, save_tiny_model

WIDE = 32_768  # columns of its MLP: half of them, gate and up, are 128 KiB a token
ROOM = 40 << 20  # bytes beyond what a rank has: for some 300 tokens
ABSURD = 1 << 44  # floats: no allocator gives 64 TiB
CONFIG = EngineConfig(max_running=2, token_budget=512, cuda_graphs=False)  # a recorded step has its memory already
GREEDY = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module", params=[Parallel(2, sequence=True), Parallel(pipeline=2)], ids=["heads", "stages"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder: Path = tmp_path_factory.mktemp("wide") / "llama"
    values = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": WIDE,
        "num_hidden_layers": request.param.pipeline,
    }
    values |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
    save_tiny_model(TinyModel(lambda: LlamaConfig(**values)), folder)
    with Engine(
        ModelSpec(str(folder), dtype="float32", device="cpu", parallel=request.param), CONFIG, threads=1
    ) as engine:
        yield engine


def said(engine: Engine) -> list[tuple[int, ...]]:
    engine.begin(CONFIG)
    streams = [engine.submit(prompt, GREEDY) for prompt in random_prompts((400, 5))]
    return [stream.result(timeout=60).token_ids for stream in streams]


def short_on_rank_0(engine: Engine) -> Callable[[], None]:
    def take(ids: torch.Tensor) -> None:
        if ids.numel() > 250:
            torch.empty(ABSURD)

    return Watched(engine, take).remove


def short_on_rank_1(engine: Engine) -> Callable[[], object]:
    assert engine.model.ranks is not None
    pid = engine.model.ranks.others[0].child.pid
    before = resource.prlimit(pid, resource.RLIMIT_AS)
    resource.prlimit(pid, resource.RLIMIT_AS, (psutil.Process(pid).memory_info().vms + ROOM, before[1]))
    return partial(resource.prlimit, pid, resource.RLIMIT_AS, before)


@pytest.mark.parametrize(("make_short", "who"), [(short_on_rank_0, "64.0 TiB"), (short_on_rank_1, "rank 1: ")])
def test_all_ranks_try_again_with_fewer_tokens(
    engine: Engine, make_short: Callable[[Engine], Callable[[], object]], who: str
) -> None:
    expected = said(engine)
    undo = make_short(engine)
    try:
        assert said(engine) == expected
    finally:
        undo()
    [notice] = [record for record in engine.trace.records if isinstance(record, Notice)]
    assert notice.level == "warning"
    assert notice.text.startswith(f"a step of 405 tokens ran out of memory ({who}")
    assert "more was asked for); prompts now go " in notice.text
    assert said(engine) == expected
