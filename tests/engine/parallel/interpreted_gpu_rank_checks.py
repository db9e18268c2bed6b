"""Checks of a model that is split over GPUs, which `test_gpu_ranks.py` runs with TRITON_INTERPRET=1: two processes,
each with the GPU's runner on CPU tensors, that meet over gloo as GPUs do over NCCL."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_gpu_ranks.py", allow_module_level=True)

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, Parallel, SamplingParams, Submission
from engine.jobs import spawn
from engine.memory.rules import bucket_sizes
from engine.runner.paged_gpu import GpuRunner
from engine.runner.staged_gpu import StagedGpuRunner
from engine.trace import Kind, Step
from tests.engine.models.quantization.make_mxfp4 import save_rounded_mxfp4
from tests.engine.tiny_models import TINY_MODELS, VOCABULARY, TinyModel, random_prompts, save_tiny_model

LENGTHS, LAYERS = (5, 1, 9), 2
KV = LAYERS * 2 * 2 * 8 * 4  # bytes of a token


@pytest.fixture(scope="module", autouse=True)
def _quick_ranks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The interpreter of the other ranks' processes is as quick as the one here, and checks as much."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("site")
    (folder / "sitecustomize.py").write_text("import tests.quick_interpreter, tests.sanitizer.interpreter\n")
    spawn.assume({"PYTHONPATH": os.pathsep.join((str(folder), *filter(None, sys.path)))})


@pytest.fixture(autouse=True)
def _quick_collecting() -> None:
    """Each load and each config collects, and would look at all that is imported by now."""
    gc.freeze()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "llama"
    values = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": LAYERS}
    values |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256}
    save_tiny_model(TinyModel(lambda: LlamaConfig(**values)), path)
    return path


def spec(folder: Path, **parallel: object) -> ModelSpec:
    return ModelSpec(str(folder), dtype="float32", device="cpu", parallel=Parallel(**parallel))  # type: ignore[arg-type]


CONFIG = EngineConfig(max_running=4, token_budget=32, block_size=4)


@pytest.fixture(scope="module")
def one(folder: Path) -> Iterator[Engine]:
    """One device, on the CPU's path."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "0")
        engine = Engine(spec(folder), CONFIG, threads=1)
    with engine:
        yield engine


@pytest.fixture(scope="module")
def two(folder: Path) -> Iterator[Engine]:
    with Engine(spec(folder, tensor=2), CONFIG, threads=1) as engine:
        assert isinstance(engine.runner, GpuRunner)
        yield engine


@pytest.fixture(scope="module")
def staged(folder: Path) -> Iterator[Engine]:
    with Engine(spec(folder, pipeline=2), CONFIG, threads=1) as engine:
        assert isinstance(engine.runner, StagedGpuRunner)
        yield engine


def said(engine: Engine, config: EngineConfig, ways: list[SamplingParams], path: str) -> list[list[list[int]]]:
    """Each sample's tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", path)
        engine.begin(config)
        prompts = random_prompts(LENGTHS, seed=3)
        prompts.append(prompts[2] + prompts[0])
        how = [ways[i % len(ways)] for i in range(len(prompts))]
        streams = engine.submit_many([Submission(*each) for each in zip(prompts, how)])
        found = [stream.results(100) for stream in streams]
    assert not [sample.error for samples in found for sample in samples if sample.error]
    return [[list(sample.token_ids) for sample in samples] for samples in found]


GREEDY = SamplingParams(max_tokens=5, temperature=0, ignore_eos=True)
WAYS = {
    "greedy": [GREEDY],
    "longer": [GREEDY.with_(max_tokens=6)],
    "drawn again after a replay": [
        GREEDY.with_(frequency_penalty=1.5),
        GREEDY.with_(temperature=1.0, seed=5, n=2),
        GREEDY.with_(temperature=0.9, seed=3, top_k=20, repetition_penalty=1.3),
        GREEDY.with_(prompt_logprobs=2, logprobs=2, max_tokens=4),
    ],
    "beams": [GREEDY.with_(beam_width=2, max_tokens=3), GREEDY],
}
CASES = {
    "beams": ({}, "beams"),  # this and the next over the runner that there is
    "one step behind": ({"depth": 1, "prefix_caching": True}, "greedy"),
    "chunked": ({"mode": "chunked", "token_budget": 8, "depth": 1}, "drawn again after a replay"),
    "swapped, of codes": (
        {"mode": "chunked", "max_running": 3, "token_budget": 16, "depth": 1, "mixed_graphs": False}
        | {"kv_memory": 8 * 4 * LAYERS * 36, "preemption": "swap", "kv_dtype": "int8"},
        "longer",
    ),
    "drafted": ({"speculation": "draft", "speculated": 2, "cuda_graphs": False}, "greedy"),
}


def test_what_ranks_on_gpus_do_not_do_is_refused_by_name(folder: Path) -> None:
    for parallel, words in [
        ({"pipeline": 2, "backend": "shared"}, "parallel_backend='shared': it is for a CPU's ranks"),
        ({"tensor": 2, "backend": "shared"}, "parallel_backend='shared': it is for a CPU's ranks"),
        ({"tensor": 2, "backend": "nccl"}, "parallel_backend='nccl': it is between GPUs"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            Engine(spec(folder, **parallel), CONFIG, threads=1)


def test_a_trace_tells_of_two_gpus_what_it_tells_of_two_processors(two: Engine) -> None:
    said(two, CONFIG, [GREEDY], "1")
    header, steps = two.trace.header, [step for step in two.trace.steps if step.rows]
    assert header.ranks_meet == "gloo"
    assert header.depth == 0
    assert header.rank_devices == ("cpu", "cpu")
    assert sum(header.rank_weights) == header.model.weight_bytes
    assert header.rank_kv == (header.blocks * 4 * KV // 2,) * 2
    told: list[Step] = [step for step in steps if len(step.rank_bytes)]
    assert len(told) > len(steps) / 2, "a rank may be late to tell now and then"
    longer = 0
    for step in told:
        assert (step.rank_computing > 0).all()
        spent = step.rank_computing + step.rank_communicating + step.rank_waiting
        longer += bool((spent > step.ended - step.started + 0.05).any())
    assert longer <= len(told) / 10, "a busy machine may stop a rank that is about to tell, now and then"
    decodes = [step for step in told if (step.kind == Kind.DECODE).all()]
    assert decodes
    for step in decodes:  # a replay has as many rows as its graph
        sums, logits = LAYERS * 2 * step.graph * 32 * 4, step.graph * VOCABULARY // 2 * 4
        tokens = 8 * (CONFIG.max_running + 1)
        assert step.rank_bytes.tolist() == [sums + logits + tokens, sums + logits], "rank 0 tells its last tokens"


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_give_the_tokens_of_one_device(name: str, one: Engine, two: Engine, folder: Path) -> None:
    changes, ways = CASES[name]
    values = {"max_running": 4, "token_budget": 32, "block_size": 4} | changes
    if name == "drafted":  # by the model itself: most are kept
        values["draft"] = ModelSpec(str(folder))
    config = EngineConfig(**values)  # type: ignore[arg-type]
    alone = EngineConfig(**values | {"depth": 0})  # type: ignore[arg-type]
    expected = said(one, alone, WAYS[ways], "0")
    assert said(two, config, WAYS[ways], "1") == expected
    assert len({token for samples in expected for tokens in samples for token in tokens}) > 5
    steps = [step for step in two.trace.steps if step.rows]
    if name.startswith("swapped"):
        assert any(len(step.swap_event) for step in steps), "nothing was swapped, which the case is for"
    decodes = [step for step in steps if (step.kind == Kind.DECODE).all() and not step.drafted.any()]
    sizes = bucket_sizes(config.max_running) if config.cuda_graphs else ()
    assert two.trace.header.graphs == sizes
    if name in ("one step behind", "swapped, of codes"):
        assert {step.graph for step in decodes} <= {*sizes}, "tokens are on all devices, and need not be sent"


def test_two_stages_say_what_one_device_says_and_tell_of_their_micro_batches(one: Engine, staged: Engine) -> None:
    config = replace(CONFIG, depth=1, prefix_caching=True)
    assert said(staged, config, [GREEDY], "1") == said(one, CONFIG, [GREEDY], "0")
    header, steps = staged.trace.header, [step for step in staged.trace.steps if step.rows]
    assert (header.ranks_meet, header.rank_layers) == ("gloo", (1, 1))
    assert header.graphs == bucket_sizes(CONFIG.max_running)
    assert header.rank_kv == (header.blocks * 4 * KV // 2,) * 2
    told = [step for step in steps if len(step.rank_bytes)]
    assert len(told) > len(steps) / 2, "a rank may be late to tell now and then"
    for step in told:
        begun, ended = (getattr(step, name).reshape(2, -1) for name in ("micro_begun", "micro_ended"))
        assert begun.shape[1] == min(2, step.rows)
        assert (begun[1] >= ended[0]).all(), "a stage computes what the one before has computed"
        assert (begun[:, 1:] >= ended[:, :-1]).all(), "one after another"
        assert begun.min() > 0
        assert ended.max() < step.ended - step.started
        assert step.rank_computing == pytest.approx((ended - begun).sum(axis=1), abs=1e-5)
        whole = step.rank_computing + step.rank_communicating + step.rank_waiting
        assert whole[0] == pytest.approx(whole[1], abs=1e-5), "all had the same time"
        tokens, drawn = int(step.count.sum()), len(step.token)
        assert step.rank_bytes.tolist() == [tokens * 32 * 4, drawn * VOCABULARY * 4]
        if (step.kind == Kind.DECODE).all():
            assert step.graph == 4, "two rows in each of two graphs"


def test_stages_follow_chunks_penalties_samples_and_scores(one: Engine, staged: Engine) -> None:
    """Of steps that draw nothing too; what is scored comes behind what is drawn, whatever the micro-batch."""
    config, ways = EngineConfig("chunked", 4, 8, block_size=4), WAYS["drawn again after a replay"]
    assert said(staged, config, ways, "1") == said(one, config, ways, "0")
    prompts, asked, found = random_prompts((3, 4, 12), seed=5), GREEDY.with_(prompt_logprobs=1, max_tokens=1), []
    for engine, path in ((one, "0"), (staged, "1")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRITON_INTERPRET", path)
            streams = engine.submit_many([Submission(prompt, asked) for prompt in prompts[:2]])
            told = [stream.result(100).prompt_logprobs or () for stream in streams]
            last = engine.submit(prompts[2], GREEDY.with_(max_tokens=2)).result(100).token_ids
        found.append(([each.logprob for prompt in told for each in prompt if each is not None], last))
    (scores, last), (theirs, same) = found
    assert len(scores) == 2 + 3
    assert theirs == pytest.approx(scores, abs=1e-4)
    assert same == last
    assert any(len(step.token) == 0 for step in staged.trace.steps if step.rows), "its first step draws nothing"


def test_a_stage_that_is_killed_is_named(staged: Engine) -> None:
    assert staged.model.ranks is not None
    pid = staged.model.ranks.others[0].child.pid
    stream = staged.submit([5, 6, 7], GREEDY.with_(max_tokens=50))
    next(iter(stream))
    os.kill(pid, signal.SIGKILL)
    assert f"rank 1 (process {pid}) was killed by SIGKILL" in stream.result(30).error


def test_sinks_and_whole_experts_are_split_too_which_are_codes(tmp_path: Path) -> None:
    """Sums over ranks stand between the same fused kernels that one device has."""
    save_tiny_model(TINY_MODELS["gpt-oss"], tmp_path / "plain")
    stored, few = save_rounded_mxfp4(tmp_path / "plain", tmp_path / "stored"), GREEDY.with_(max_tokens=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "0")
        with Engine(spec(stored), CONFIG, threads=1) as engine:
            expected = said(engine, CONFIG, [few], "0")
    config = replace(CONFIG, depth=1)
    with Engine(spec(stored, tensor=2, experts=True), config, threads=1) as engine:
        assert said(engine, config, [few], "1") == expected
        assert engine.card.quantization == "mxfp4"
        assert engine.model.fusion is not None
        assert engine.model.fusion.fused["CodedExperts", "experts"] == LAYERS


def test_rows_are_shared(folder: Path, one: Engine) -> None:
    config = EngineConfig(max_running=4, token_budget=32, block_size=4, depth=1)
    with Engine(spec(folder, tensor=2, sequence=True), config, threads=1) as engine:
        assert said(engine, config, [GREEDY], "1") == said(one, CONFIG, [GREEDY], "0")
        assert engine.model.ranks is not None
        ((free, display),) = engine.model.ranks.room()  # it has no runner then, until the next is made
        assert free > 1 << 20
        assert not display
