"""A model whose layers are split over stages gives the tokens of one device, and tells when each stage did what."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, Parallel, SamplingParams
from engine.parallel.board import Board
from engine.parallel.stages import Anatomy, micro_batches, split, stage_of
from engine.scheduler.plan import Row, StepPlan
from engine.trace import Kind, Step, load_trace, save_trace
from engine.trace.records.check import RecordCheck
from tests.engine.parallel.plans import EVERY_PLAN
from tests.engine.parallel.test_tensor import GREEDY, PLAIN, said
from tests.engine.tiny_models import TINY_MODELS, TinyModel, random_prompts, save_tiny_model

TINY = ["llama", "qwen3", "gemma2", "gemma3", "phi3", "mixtral", "gpt2", "gpt-neox", "olmo2"]


def spec(folder: Path, stages: int, **parallel: Any) -> ModelSpec:
    split = Parallel(pipeline=stages, **parallel)
    return ModelSpec(str(folder), dtype="float32", device="cpu", parallel=split)


@pytest.mark.parametrize("name", TINY)
def test_stages_give_the_tokens_of_one_device(name: str, tiny_folder: Callable[[str], Path]) -> None:
    """Of three layers in three stages, one of them between two."""
    found, cards = [], []
    for stages in (1, 3 if name == "gemma3" else 2):
        with Engine(spec(tiny_folder(name), stages), PLAIN, threads=1) as engine:
            found.append(said(engine))
            cards.append(engine.card)
            assert engine.trace.header.rank_layers == (() if stages == 1 else (1,) * stages)
    assert found[0] == found[1]
    of = "layers windows kv_token_bytes kv_layers parameters body_parameters head_parameters experts".split()
    assert [getattr(cards[0], name) for name in of] == [getattr(cards[1], name) for name in of]


def test_what_is_tied_is_held_by_both_ends(tmp_path: Path) -> None:
    plain = TINY_MODELS["llama"].config

    def config() -> Any:
        made = plain()
        made.tie_word_embeddings, made.num_hidden_layers = True, 5
        return made

    save_tiny_model(TinyModel(config), tmp_path)
    found = []
    for stages in (1, 2):
        with Engine(spec(tmp_path, stages), PLAIN, threads=1) as engine:
            found.append(said(engine))
            header = engine.trace.header
    assert found[0] == found[1]
    assert sorted(header.rank_layers) == [2, 3]
    assert min(header.rank_weights) > 3072 * 64 * 4, "each has the embedding's weight"


@dataclass
class Both:
    one: Engine
    two: Engine


@pytest.fixture(scope="module")
def both(tiny_folder: Callable[[str], Path]) -> Iterator[Both]:
    folder = tiny_folder("llama")
    with Engine(spec(folder, 1), PLAIN, threads=1) as one, Engine(spec(folder, 2), PLAIN, threads=1) as two:
        yield Both(one, two)


@EVERY_PLAN
def test_stages_follow_whatever_rank_0_plans(both: Both, changes: dict, params: dict) -> None:
    config = EngineConfig(**{"max_running": 8, "token_budget": 64, "block_size": 16, **changes})
    asked, found, scores = GREEDY.with_(**params), [], []
    for engine in (both.one, both.two):
        engine.begin(config)
        found.append(said(engine, asked))
        if "prompt_logprobs" in params:
            told = engine.submit(random_prompts((40,))[0], asked).result().prompt_logprobs or ()
            scores.append([one.logprob for one in told if one is not None])
            assert len(scores[-1]) == 39
    assert found[0] == found[1]
    if scores:
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    if "kv_memory" in changes:
        steps = [record for record in both.two.trace.records if isinstance(record, Step)]
        assert any(len(step.preempted) for step in steps), "nothing was preempted, which the case is for"


def test_each_step_tells_when_every_stage_did_what(both: Both, tmp_path: Path) -> None:
    both.two.begin(PLAIN)
    said(both.two)
    path = tmp_path / "stages.bsrun"
    save_trace(both.two.trace, path)
    trace = load_trace(path)
    header, steps = trace.header, [step for step in trace.steps if step.rows]
    assert (header.rank_layers, header.ranks_meet) == ((1, 1), "shared memory")
    assert sum(header.rank_weights) == header.model.weight_bytes
    for step in steps:
        begun, ended = (getattr(step, name).reshape(2, -1) for name in ("micro_begun", "micro_ended"))
        assert begun.shape[1] == min(2, step.rows)
        assert (begun[1] >= ended[0]).all(), "a stage computes what the one before has computed"
        assert (begun[:, 1:] >= ended[:, :-1]).all(), "one after another"
        assert (ended <= step.ended - step.started + 1e-4).all()
        assert step.rank_computing == pytest.approx((ended - begun).sum(axis=1), abs=1e-5)
        whole = step.rank_computing + step.rank_communicating + step.rank_waiting
        assert whole[0] == pytest.approx(whole[1], abs=1e-5), "all had the same time"
        tokens, drawn = int(step.count.sum()), len(step.token)
        assert step.rank_bytes.tolist() == [tokens * header.model.hidden * 4, drawn * header.model.vocabulary * 4]
    check = RecordCheck()
    check(header)
    with pytest.raises(ValueError, match="span"):
        check(replace(steps[0], micro_begun=steps[0].micro_ended + 1))
    with pytest.raises(ValueError, match="of each rank"):
        check(replace(steps[0], micro_begun=np.zeros(3, np.float32), micro_ended=np.zeros(3, np.float32)))


def test_what_cannot_be_in_stages_is_refused_by_name(both: Both, tiny_folder: Callable[[str], Path]) -> None:
    with pytest.raises(InvalidInput, match=r"pipeline_parallel=3: the model has 2 layers, .* use at most 2"):
        Engine(spec(tiny_folder("llama"), 3), threads=1)
    for wrong, words in [
        ({"tensor": 2, "pipeline": 2}, "by its heads or by its layers, not by both"),
        ({"micro_batches": 4}, "give pipeline_parallel too"),
        ({"pipeline": 65}, "65"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            Parallel(**wrong)  # type: ignore[arg-type]
    for backend in ("gloo", "nccl"):
        with pytest.raises(InvalidInput, match=f"parallel_backend='{backend}': .*; use auto"):
            Engine(spec(tiny_folder("llama"), 2, backend=backend), threads=1)
    with pytest.raises(InvalidInput, match="ranks"):
        both.two.begin(EngineConfig("static"))
    both.two.begin(PLAIN)
    with pytest.raises(InvalidInput, match=r"attention=True: each rank .* on one device, or leave it out"):
        both.two.submit("A fox", GREEDY.with_(attention=True))


@pytest.mark.parametrize("signalled", [signal.SIGKILL, signal.SIGSTOP])
def test_a_stage_that_dies_or_hangs_ends_the_engine_by_its_name(
    signalled: signal.Signals, tiny_folder: Callable[[str], Path]
) -> None:
    with Engine(spec(tiny_folder("llama"), 2, timeout=0.5), PLAIN, threads=1) as engine:
        assert engine.model.ranks is not None
        pid = engine.model.ranks.others[0].child.pid
        stream = engine.submit([5, 6, 7], SamplingParams(max_tokens=400, temperature=0, ignore_eos=True))
        next(iter(stream))
        os.kill(pid, signalled)
        said = stream.result().error
        how = "was killed by SIGKILL" if signalled == signal.SIGKILL else "did not come within 0.5 s"
        assert f"rank 1 (process {pid}) {how}" in said
    assert not psutil.pid_exists(pid)


def test_the_stage_that_hangs_is_told_from_those_that_wait_for_it() -> None:
    board, now = Board(3), time.monotonic()
    try:
        for rank, since in enumerate((now - 3, now - 3.5, 0)):  # rank 0 for logits, rank 1 for the next step
            board.begin(rank, 5)
            board.waits(rank, since)
        assert board.late() == [2], "it computes for ever"
        board.waits(2, now - 9)
        assert not board.late()
        assert board.stuck(2.5) == [2], "what it waits for has come"
        assert board.stuck(5) == [], "rank 0 failed for another reason"
        board.waits(0, 0)
        assert board.stuck(2.5) == [], "rank 0 itself does not wait"
    finally:
        board.close()


def test_stages_are_even_in_bytes_with_embedding_and_head() -> None:
    assert split([1] * 8, 2) == [0, 4, 8]
    assert split([1] * 8, 2, first=4, last=0) == [0, 2, 8]
    assert split([1] * 8, 4, first=9, last=9) == [0, 1, 4, 7, 8]
    assert split([5, 1, 1, 1], 2) == [0, 1, 4]
    assert split([1, 1, 1], 3) == [0, 1, 2, 3]
    anatomy = Anatomy("model.layers", 2, "model.embed_tokens", "lm_head", tied=True)
    sizes = {
        "model.embed_tokens.weight": 10,
        "model.layers.0.w.weight": 1,
        "model.layers.1.w.weight": 1,
        "norm.weight": 1,
    }
    first, last = (stage_of(rank, 2, anatomy, sizes) for rank in range(2))
    held = [{name: stage.held_as(name) for name in sizes} for stage in (first, last)]
    assert held[0]["model.embed_tokens.weight"] == ["model.embed_tokens.weight"]
    assert held[1]["model.embed_tokens.weight"] == ["lm_head.weight"]
    assert [names["model.layers.0.w.weight"] for names in held] == [["model.layers.0.w.weight"], []]
    assert all(names["norm.weight"] for names in held)


def test_micro_batches_are_whole_rows_of_about_as_many_tokens() -> None:
    branch: Any = SimpleNamespace()

    def plan(*counts: int) -> StepPlan:
        return StepPlan(
            tuple(Row(branch, i, 0, n, Kind.DECODE, 1, False) for i, n in enumerate(counts)), copies=((1, 2),)
        )

    def parts(most: int, *counts: int) -> list[list[int]]:
        found = micro_batches(plan(*counts), most)
        assert all(not part.copies for part in found), "they are made once, before"
        return [[row.count for row in part.rows] for part in found]

    assert parts(2, 1, 1, 1, 1) == [[1, 1], [1, 1]]
    assert parts(4, 1, 1, 1) == [[1], [1], [1]]
    assert parts(2, 1, 1, 1, 60) == [[1, 1, 1], [60]]
    assert parts(3, 60, 1, 1) == [[60], [1], [1]]
    assert parts(1, 3, 4) == [[3, 4]]
