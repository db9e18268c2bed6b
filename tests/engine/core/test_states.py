"""Models of whose layers some keep a state of a sequence: the answers are transformers', whoever runs beside them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, SamplingParams, Submission
from engine.checkpoints import inspect_model
from engine.config.parallel import Parallel
from engine.kernels.cpu.library import native
from engine.memory import DeviceMemory, fits
from engine.models.loading import LoadedModel, load
from engine.scheduler.block_pool import BlockPool
from engine.scheduler.request import Emission, Life
from engine.scheduler.scheduler import Scheduler
from engine.trace.work import count_work
from tests.engine.hybrids import HYBRIDS, hybrid
from tests.engine.requests import make_request
from tests.engine.tiny_models import VOCABULARY, TinyModel, random_prompts, save_tiny_model

NEW = 10
GREEDY = SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)
PROMPTS = random_prompts((3, 21, 1, 9))
CHUNKED = EngineConfig(mode="chunked", max_running=3, token_budget=8, block_size=16)


def told(engine: Engine, config: EngineConfig, new: int = NEW) -> list[list[int]]:
    """What it says to prompts that are sent at once."""
    engine.begin(config)
    streams = engine.submit_many([Submission(prompt, GREEDY.with_(max_tokens=new)) for prompt in PROMPTS])
    return [list(stream.result().token_ids) for stream in streams]


def by_transformers(folder: Path) -> list[list[int]]:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    how = {"max_new_tokens": NEW, "min_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    return [model.generate(torch.tensor([prompt]), **how)[0, len(prompt) :].tolist() for prompt in PROMPTS]


@pytest.mark.parametrize("kind", HYBRIDS)
def test_every_kind_says_what_transformers_says(kind: str, tmp_path: Path) -> None:
    """Prompts in parts beside decoding rows, and whole ones with pads; what a request takes is told before the load."""
    save_tiny_model(hybrid(kind), tmp_path)
    expected, info = by_transformers(tmp_path), inspect_model(str(tmp_path))
    with Engine(ModelSpec(str(tmp_path), dtype="float32", device="cpu"), CHUNKED) as engine:
        assert told(engine, CHUNKED) == expected
        assert told(engine, EngineConfig(mode="continuous-padded", max_running=3)) == expected
        card = engine.card
    assert card.state_bytes == info.states.bytes(4) > 0
    assert (len(card.state_layers), card.kv_layers, card.layers) == (info.states.layers, info.kv_layers, info.layers)
    assert card.kv_token_bytes == info.kv_token_bytes("float32")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hybrid")
    save_tiny_model(hybrid("Qwen3_5Text"), path)
    return path


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[list[int]]:
    return by_transformers(folder)


@pytest.fixture(scope="module")
def model(folder: Path) -> LoadedModel:
    return load(ModelSpec(str(folder), dtype="float32", device="cpu"))


MODES = ["recompute", "sequential", "static", "dynamic", "continuous-padded", "continuous", "chunked"]


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_gives_the_same_tokens(mode: str, model: LoadedModel, expected: list[list[int]]) -> None:
    with Engine(model) as engine:
        assert told(engine, EngineConfig(mode=mode, max_running=3, token_budget=16)) == expected


def test_those_that_are_put_back_begin_their_states_anew(model: LoadedModel) -> None:
    memory = model.card.kv_memory(5 * 16, CHUNKED)
    with Engine(model) as engine:
        expected = told(engine, CHUNKED, 40)
        assert told(engine, replace(CHUNKED, kv_memory=memory), 40) == expected
        assert sum(len(step.preempted) for step in engine.trace.steps) > 0


def test_samples_of_one_prompt_compute_it_each_and_say_what_one_alone_says(model: LoadedModel) -> None:
    """A state is of one sequence: there is none to go on with from another's."""
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=6, ignore_eos=True)
    with Engine(model, EngineConfig(max_running=4)) as engine:
        stream = engine.submit(PROMPTS[1], params.with_(n=2))
        both = [completion.token_ids for completion in stream.results()]
        assert sum(int(step.reused.sum()) for step in engine.trace.steps) == 0
        alone = engine.submit(PROMPTS[1], params).result()
    assert both[0] == alone.token_ids != both[1]


@pytest.mark.parametrize("kind", ["Qwen3_5Text", "Qwen3_5MoeText", "Lfm2", "Lfm3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_step_is_replayed_as_it_is_computed(kind: str, dtype: str, tmp_path: Path) -> None:
    if native().library is None:
        pytest.skip(native().why)
    save_tiny_model(hybrid(kind), tmp_path)
    with Engine(ModelSpec(str(tmp_path), dtype=dtype, device="cpu"), CHUNKED) as engine:
        header = engine.trace.header
        assert (header.graphs_off, header.mixed_off) == ("", "")
        replayed = told(engine, CHUNKED)
        assert {step.graph > 0 for step in engine.trace.steps if step.rows} == {True}
        assert told(engine, replace(CHUNKED, cuda_graphs=False)) == replayed or dtype == "bfloat16"
    assert header.kernels is not None
    assert {"convolution", *["delta_rule"] * kind.startswith("Qwen")} <= set(header.kernels.names)


def test_what_no_kernel_serves_is_not_replayed_and_says_why(tmp_path: Path) -> None:
    save_tiny_model(hybrid("Bamba"), tmp_path)
    with Engine(ModelSpec(str(tmp_path), dtype="float32", device="cpu")) as engine:
        assert "keep a state of this kind" in engine.trace.header.graphs_off


def test_the_memory_of_a_run_is_for_states_and_blocks(model: LoadedModel) -> None:
    card, config = model.card, EngineConfig(max_running=5, block_size=16)
    states, block = 5 * card.state_bytes, 16 * card.kv_token_bytes
    with Engine(model, EngineConfig(max_running=5, kv_memory=states + 7 * block + 1)) as engine:
        header = engine.trace.header
        assert header.blocks == 7
        assert header.kv_memory == states + 7 * block == card.kv_memory(7 * 16, config)
        assert header.bill is not None
        assert header.bill.states == states
        with pytest.raises(InvalidInput, match=f"the states of 5 requests {states:,}; give at least"):
            engine.begin(EngineConfig(max_running=5, kv_memory=states))


def test_a_fit_counts_states_for_every_slot(folder: Path) -> None:
    info, memory = inspect_model(str(folder)), DeviceMemory("cpu", 64 << 20, 64 << 20)
    few, many = (fits(info, memory, dtype="float32", quantizations=["none"], max_running=n)[0] for n in (8, 128))
    assert few.states == many.states == info.states.bytes(4)
    assert (few.all_states, many.all_states) == (8 * few.states, 128 * few.states)
    assert many.fits
    tight = DeviceMemory("cpu", few.weights + few.activations + 100 * few.states, 64 << 20)
    assert not fits(info, tight, dtype="float32", quantizations=["none"], max_running=128)[0].fits


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prefix_caching": True}, "prefix_caching=True"),
        ({"speculation": "ngram"}, "speculation='ngram'"),
        ({"preemption": "swap"}, "preemption='swap'"),
        ({"mode": "disaggregated"}, "mode='disaggregated'"),
    ],
)
def test_what_would_have_a_state_go_back_is_refused_by_name(
    changes: dict[str, Any], words: str, model: LoadedModel
) -> None:
    with Engine(model) as engine:
        with pytest.raises(InvalidInput, match=f"{words}: 2 layers keep a state, and only the newest"):
            engine.begin(EngineConfig(**changes))
        assert engine.submit(PROMPTS[0], GREEDY).result().finish_reason == "length"


def test_beams_drafts_and_ranks_are_refused_too(model: LoadedModel, folder: Path) -> None:
    with Engine(model) as engine, pytest.raises(InvalidInput, match="beam_width=2: a beam search goes on"):
        engine.submit(PROMPTS[0], SamplingParams(beam_width=2))
    for parallel in (Parallel(tensor=2), Parallel(pipeline=2)):
        with pytest.raises(InvalidInput, match="keep a state of a sequence, which are not split; use 1"):
            load(ModelSpec(str(folder), device="cpu", parallel=parallel))
    drafts = EngineConfig(speculation="draft", draft=ModelSpec(str(folder)))
    with pytest.raises(InvalidInput, match="layers of it keep a state"):
        Engine(ModelSpec("demo", device="cpu"), drafts).close()


def test_a_model_that_keeps_no_keys_and_values_at_all_is_refused(tmp_path: Path) -> None:
    config = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8}
    save_tiny_model(TinyModel(lambda: transformers.MambaConfig(**config)), tmp_path)
    with pytest.raises(InvalidInput, match="model type 'mamba'"):
        load(ModelSpec(str(tmp_path), device="cpu"))


def test_a_step_that_is_taken_back_has_its_rows_begin_anew(model: LoadedModel) -> None:
    """It may have changed the states of some layers."""
    scheduler = Scheduler(EngineConfig(max_running=2), BlockPool(16, 16), states=True)
    request = make_request(model, 0, 5, GREEDY)
    scheduler.add(request)
    first = scheduler.plan()
    assert first is not None
    scheduler.commit(first, [Emission(7)])
    second = scheduler.plan()
    assert second is not None
    third = scheduler.plan()
    assert third is not None
    assert third.rows[0].fed, "what it begins with is still being sampled"
    for plan in (third, second):
        scheduler.retract(plan)
        (branch,) = request.branches
        assert (branch.life, branch.computed, branch.blocks) == (Life.PREEMPTED, 0, [])
        assert scheduler.ledger.waiting_count == 1
    again = scheduler.plan()
    assert again is not None
    assert [(row.first, row.count) for row in again.rows] == [(0, 6)]


def test_states_are_read_and_written_once_a_row(model: LoadedModel) -> None:
    with Engine(model, EngineConfig(max_running=2)) as engine:
        engine.submit(PROMPTS[0], GREEDY).result()
        header, steps = engine.trace.header, list(engine.trace.steps)
    work = count_work(header, steps)
    rows = [step.rows for step in steps]
    assert work.state_bytes.tolist() == [2 * model.card.state_bytes * count for count in rows]
    attending = 4 * model.card.heads * model.card.head_dim  # one layer's
    tokens = [int(step.first[0] + step.count[0]) for step in steps[1:]]
    assert (work.attention_operations - work.state_operations)[1:].tolist() == [attending * n for n in tokens]
