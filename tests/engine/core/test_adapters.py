"""Requests of several adapters in one step: each says what the model says with that one merged into its weights."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import resources
from engine import Engine, EngineConfig, InvalidInput, ModelSpec, Parallel, SamplingParams, Submission
from engine.config import COLOCATED_MODES, MODES, PAGED_MODES
from engine.trace import Kind, Trace
from tests.engine.adapters_case import ALL, linear_paths, merge, save_adapter
from tests.engine.tiny_models import random_prompts

pytestmark = pytest.mark.slow

NEW_TOKENS = 10
GREEDY = SamplingParams(max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True)
LAYERS = {
    "qwen2": ALL,
    "gemma3": ALL,
    "phi3": ("qkv_proj", "o_proj", "gate_up_proj", "down_proj"),
    "starcoder2": ("q_proj", "v_proj", "c_fc", "c_proj"),
    "gpt-neox": ("query_key_value", "dense_h_to_4h", "dense_4h_to_h"),
    "mixtral": ALL[:4],  # of what experts have none
}
RECORDED = {"qwen2", "gemma3", "phi3", "mixtral"}  # of the others torch computes what no kernel of ours does
PROMPTS = random_prompts((3, 19, 41, 8))


def said(spec: ModelSpec, config: EngineConfig, adapters: tuple[str, ...]) -> tuple[list[list[int]], Trace]:
    """What each prompt is answered, through the adapter at its place."""
    with Engine(spec, config, threads=1) as engine:
        return answers(engine, adapters), engine.trace


def answers(engine: Engine, adapters: tuple[str, ...]) -> list[list[int]]:
    streams = [engine.submit(p, GREEDY.with_(adapter=a)) for p, a in zip(PROMPTS, adapters, strict=True)]
    return [list(stream.result().token_ids) for stream in streams]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelSpec, dict[str, list[list[int]]]]:
    """The demo model with two random adapters, and what it answers with each of them merged, or none."""
    root, folder = tmp_path_factory.mktemp("adapters"), resources.path("models/stories-5m")
    sizes = linear_paths(folder, ALL)
    given, expected = [], {}
    for seed, (name, layers, rank) in enumerate((("wide", ALL, 12), ("narrow", ("q_proj", "v_proj"), 4)), 1):
        own = {path: size for path, size in sizes.items() if path.rpartition(".")[2] in layers}
        made = save_adapter(root / name, own, rank, seed, spread=0.03)
        given.append(str(made))
        merged = ModelSpec(str(merge(folder, made, root / f"merged-{name}")), dtype="float32", device="cpu")
        expected[name] = said(merged, EngineConfig(max_running=4), ("",) * 4)[0]
    expected[""] = said(ModelSpec("demo"), EngineConfig(max_running=4), ("",) * 4)[0]
    assert expected[""] != expected["wide"] != expected["narrow"] != expected[""]
    return ModelSpec("demo", device="cpu", adapters=tuple(given)), expected


MIXED = ("wide", "", "narrow", "wide")


def test_every_mode_answers_each_request_through_its_adapter(demo: tuple) -> None:
    spec, expected = demo
    wanted = [expected[adapter][i] for i, adapter in enumerate(MIXED)]
    with Engine(spec, threads=1) as engine:
        card = engine.trace.header.model
        assert (card.adapters, card.adapter_ranks) == (("wide", "narrow"), (12, 4))
        for mode in MODES:
            switches = [{}, {"cuda_graphs": False}, {"prefix_caching": True}] if mode in PAGED_MODES else [{}]
            switches += [{"speculation": "draft"}, {"depth": 1}] if mode in COLOCATED_MODES else []
            for switch in switches:
                engine.begin(EngineConfig(mode, 4, 32, block_size=16, longest_wait=0.01, **switch))
                assert answers(engine, MIXED) == wanted, (mode, switch)
                header = engine.trace.header
                replayed = mode in PAGED_MODES and switch != {"cuda_graphs": False}
                assert bool(header.graphs) == replayed, header.graphs_off


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel": Parallel(2)},
        {"parallel": Parallel(2, sequence=True)},
        {"parallel": Parallel(pipeline=2)},
        {"kv_heads": "all"},
    ],
    ids=["tensor", "sequence", "stages", "repeated heads"],
)
def test_what_is_cut_otherwise_has_its_part_of_each(changes: dict, demo: tuple) -> None:
    spec, expected = demo
    wanted = [expected[adapter][i] for i, adapter in enumerate(MIXED)]
    found, trace = said(replace(spec, **changes), EngineConfig(max_running=4, token_budget=32), MIXED)
    assert found == wanted
    assert trace.header.graphs, trace.header.graphs_off
    assert trace.header.model.adapters == ("wide", "narrow")


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_every_kind(name: str, tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    folder = tiny_folder(name)
    sizes = linear_paths(folder, LAYERS[name])
    adapters = [save_adapter(tmp_path / str(rank), sizes, rank, rank, spread=0.1) for rank in (3, 8)]
    spec = ModelSpec(str(folder), dtype="float32", device="cpu", adapters=tuple(map(str, adapters)))
    mixed = ("3", "8", "", "3")
    found, trace = said(spec, EngineConfig(max_running=4, token_budget=32), mixed)
    assert (trace.header.kernels is not None and "adapt" in trace.header.kernels.names) is (name in RECORDED)
    plain = ModelSpec(str(folder), dtype="float32", device="cpu")
    expected = {"": said(plain, EngineConfig(max_running=4), ("",) * 4)[0]}
    for adapter in adapters:
        merged = merge(folder, adapter, tmp_path / f"merged-{adapter.name}")
        spec = ModelSpec(str(merged), dtype="float32", device="cpu")
        expected[adapter.name] = said(spec, EngineConfig(max_running=4), ("",) * 4)[0]
    assert found == [expected[adapter][i] for i, adapter in enumerate(mixed)]
    assert expected["3"] != expected["8"] != expected[""], "an adapter changes nothing, which proves nothing"


def test_samples_and_beams_go_through_their_requests_adapter(demo: tuple, tmp_path: Path) -> None:
    spec, expected = demo
    searched = {}
    for name, adapter in zip(spec.adapter_names, spec.adapters):
        merged = merge(resources.path("models/stories-5m"), Path(adapter), tmp_path / name)
        with Engine(ModelSpec(str(merged), dtype="float32", device="cpu"), threads=1) as engine:
            search = engine.submit(PROMPTS[2], SamplingParams(max_tokens=6, beam_width=3))
            searched[name] = [each.token_ids for each in search.results()]
    with Engine(spec, EngineConfig(max_running=8, prefix_caching=True), threads=1) as engine:
        streams = [engine.submit(PROMPTS[2], GREEDY.with_(adapter=name, n=3)) for name in ("wide", "")]
        for name, stream in zip(("wide", ""), streams):
            assert [list(each.token_ids) for each in stream.results()] == [expected[name][2]] * 3
        searches = [
            engine.submit(PROMPTS[2], SamplingParams(max_tokens=6, beam_width=3, adapter=name)) for name in searched
        ]
        for name, stream in zip(searched, searches):
            assert [each.token_ids for each in stream.results()] == searched[name]


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_who_made_way_goes_on_through_its_adapter(preemption: str, demo: tuple) -> None:
    """Alone, mixed, and where they run one at a time."""
    spec, expected = demo
    long = GREEDY.with_(max_tokens=60)
    with Engine(spec, threads=1) as engine:

        def told(config: EngineConfig) -> list[tuple[int, ...]]:
            engine.begin(config)
            streams = [engine.submit(PROMPTS[2], long.with_(adapter=name)) for name in (*MIXED, *MIXED)]
            return [stream.result().token_ids for stream in streams]

        wanted = told(EngineConfig(max_running=8))
        assert [tokens[:NEW_TOKENS] for tokens in wanted] == [tuple(expected[name][2]) for name in (*MIXED, *MIXED)]
        small = 20 * 16 * engine.card.kv_token_bytes
        for mixed in (True, False):
            config = EngineConfig(max_running=8, kv_memory=small, preemption=preemption, mixed_adapters=mixed)
            assert told(config) == wanted
            preempted = sum(len(step.preempted) for step in engine.trace.steps)
            assert preempted or not mixed


def test_nobody_is_passed_over_for_ever(demo: tuple) -> None:
    """Requests of one adapter come without end; one of another has its turn, and by priority at once."""
    short = GREEDY.with_(max_tokens=6)
    with Engine(demo[0], threads=1) as engine:
        for admission, most in (("fcfs", 2 + 2 * 2), ("priority", 2)):
            engine.begin(EngineConfig(max_running=2, mixed_adapters=False, admission=admission))
            many = [Submission(PROMPTS[0], short.with_(adapter="wide")) for _ in range(30)]
            many.insert(2, Submission(PROMPTS[0], short.with_(adapter="narrow", priority=-1)))
            for stream in engine.submit_many(many):
                stream.result()
            ends = [view.request for view in sorted(engine.trace.requests.values(), key=lambda view: view.ended)]
            assert ends.index(2) <= most


def test_a_prefix_is_found_again_by_its_own_adapter_alone(demo: tuple) -> None:
    spec, expected = demo

    def reused(trace: Trace) -> list[int]:
        return [int(step.reused.sum()) for step in trace.steps if (step.kind == Kind.PREFILL).any()]

    with Engine(spec, EngineConfig(max_running=4, prefix_caching=True, block_size=16), threads=1) as engine:
        for name, found in (("wide", 0), ("", 0), ("narrow", 0), ("wide", 32), ("", 32)):
            before = len(reused(engine.trace))
            assert list(engine.submit(PROMPTS[2], GREEDY.with_(adapter=name)).result().token_ids) == expected[name][2]
            assert sum(reused(engine.trace)[before:]) == found


def test_apart_no_step_has_two_adapters(demo: tuple) -> None:
    spec, expected = demo
    wanted = [expected[adapter][i] for i, adapter in enumerate(MIXED)]
    with Engine(spec, threads=1) as engine:
        for mode in PAGED_MODES:
            engine.begin(EngineConfig(mode, 4, 32, mixed_adapters=False))
            assert answers(engine, MIXED) == wanted
            steps = [step for step in engine.trace.steps if len(step.request)]
            assert all(len({MIXED[request] for request in step.request.tolist()}) == 1 for step in steps)
            assert any("requests of another adapter run" in step.refused_reason for step in steps)
            together = [set(step.request.tolist()) for step in steps]
            assert {0, 3} in together, "who came later goes with the one of its adapter that runs, before others"
    with pytest.raises(InvalidInput, match="mixed_adapters=False: mode 'static'"):
        EngineConfig("static", mixed_adapters=False)


@pytest.mark.parametrize("quantization", ["int8", "nf4", "awq", "torchao-int8"])
def test_adapters_of_a_quantized_model(quantization: str, demo: tuple) -> None:
    """The tokens are the same in every mode and beside any mates; layer by layer they are checked in
    tests/engine/models/test_adapters.py."""
    spec = ModelSpec("demo", quantization, "float32", "cpu", adapters=demo[0].adapters)
    with Engine(spec, threads=1) as engine:
        alone = {name: answers(engine, (name,) * 4) for name in ("", "wide", "narrow")}
        assert alone[""] != alone["wide"] != alone["narrow"]
        for config in (EngineConfig("static", 4), EngineConfig("chunked", 4, 16), EngineConfig(cuda_graphs=False)):
            engine.begin(config)
            assert answers(engine, MIXED) == [alone[adapter][i] for i, adapter in enumerate(MIXED)], config


def test_a_name_that_is_not_there_is_refused(demo: tuple) -> None:
    for spec, says in (
        (demo[0], "adapter='wild': demo stories 5M has wide, narrow; name one of these"),
        (
            ModelSpec("demo"),
            "adapter='wild': demo stories 5M was loaded without any; load it with some, or leave it out",
        ),
    ):
        with Engine(spec, EngineConfig(max_running=2), threads=1) as engine, pytest.raises(InvalidInput, match=says):
            engine.submit("A fox", GREEDY.with_(adapter="wild"))
