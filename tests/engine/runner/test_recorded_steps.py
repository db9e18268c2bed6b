"""Decode steps that are recorded and replayed give what the model gives, or it is said why there are none."""

import time
from collections import Counter

import pytest
import torch
from torch import Tensor

from engine import Engine, SamplingParams, Submission
from engine.bench.cpu.alone import alone
from engine.bench.subject import plain_tokenizer
from engine.config.specs import EngineConfig
from engine.core.machine import usable_cores
from engine.kernels.cpu import calls
from engine.kernels.cpu.large_pages import LargePages
from engine.kernels.cpu.library import native
from engine.kernels.cpu.program import Program
from engine.kernels.cpu.recorder import Unrecordable, recording
from engine.kernels.silu_mul import Activation
from engine.models.loading import LoadedModel, wrap
from engine.runner import paged_cpu, recorded_steps
from engine.runner.paged_cpu import PagedRunner
from engine.runner.recorded_steps import StepInputs, rows_to_record
from engine.trace import measure
from engine.workloads import Arrival, Workload
from tests.engine.tiny_models import TINY_MODELS, VOCABULARY, make_tiny_model

pytestmark = pytest.mark.skipif(native().library is None, reason=native().why)
LONG = SamplingParams(max_tokens=6, temperature=0, ignore_eos=True)
DTYPES = [torch.float32, torch.bfloat16]
# What torch computes, and no kernel of ours: experts that lie otherwise, norms that subtract the mean, other rotations,
# other layers.
LEFT = {
    "gpt-oss": "aten.", "starcoder2": "aten.native_layer_norm",
    "cohere": "aten.", "glm4": "aten.", "deepseek-v3": "aten.",
    "gpt2": "aten.addmm", "gpt-neox": "aten.native_layer_norm", "opt": "aten.",
}  # fmt: skip


def loaded(name: str, dtype: torch.dtype = torch.float32) -> LoadedModel:
    return wrap(make_tiny_model(TINY_MODELS[name]).to(dtype), plain_tokenizer(VOCABULARY), name)


def captured(model: LoadedModel, rows: int = 7, **config: object) -> PagedRunner:
    runner = PagedRunner(model, EngineConfig(max_running=rows, **config), 20)
    runner.capture(lambda done, of: None)
    return runner


@pytest.mark.parametrize("name", TINY_MODELS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_families_of_llama_are_recorded_and_others_say_what_is_in_the_way(name, dtype) -> None:
    runner = captured(loaded(name, dtype))  # proved against the model as it is recorded
    if name in LEFT:
        assert runner.graphs == ()
        assert runner.graphs_off.startswith(LEFT[name])
        assert runner.graphs_off.endswith("has no compiled kernel")
    else:
        assert runner.graphs == tuple(range(1, 8)), runner.graphs_off


def test_a_model_that_cannot_bear_to_be_heard_runs_all_the_same() -> None:
    model = loaded("llama")

    def refuse(module: torch.nn.Module, args: object) -> None:
        if recording.get() is not None:
            raise RuntimeError("not under a mode\nand more")

    model.module.register_forward_pre_hook(refuse)
    runner = captured(model)
    assert (runner.graphs, runner.graphs_off) == ((), "recording failed: RuntimeError: not under a mode")


def test_switched_off_nothing_is_recorded() -> None:
    runner = captured(loaded("llama"), cuda_graphs=False)
    assert (runner.graphs, runner.graphs_off) == ((), "switched off")


def test_rows_whose_logits_would_take_too_much_are_not_recorded() -> None:
    assert rows_to_record(64, 8192, torch.float32) == 64
    assert rows_to_record(1000, 8192, torch.bfloat16) == 256
    assert rows_to_record(64, 262_144, torch.float32) == 64
    assert rows_to_record(1000, 262_144, torch.float32) == 64


def test_a_program_runs_over_fewer_tokens_and_sees_what_its_inputs_hold_now() -> None:
    model = loaded("llama")
    part = model.module.model.layers[0]
    x = torch.randn(5, 64)
    with torch.inference_mode():
        program = Program(lambda: [part.input_layernorm(x) + part.mlp(x) * 3.0], [x], 5)
        for tokens in (5, 2):
            x.copy_(torch.randn(5, 64))
            expected = part.input_layernorm(x) + part.mlp(x) * 3.0
            assert torch.equal(*program(tokens), expected[:tokens])
    assert Counter(call.work for call in program._parts) == {"rms_norm": 1, "product": 2, "pointwise": 2}
    assert program.bytes < 5 * (64 + 256 + 128 + 64) * 4 + 1000, "memory is used again"


@pytest.mark.skipif(usable_cores() < 2, reason="one core")
def test_what_the_calling_thread_does_meanwhile_holds_up_no_other() -> None:
    model, x, done = loaded("llama"), torch.randn(5, 64), list[bool]()
    part = model.module.model.layers[0]

    def work() -> None:
        torch.set_num_threads(2)
        program = Program(lambda: [part.mlp(x) * 3.0], [x], 5)
        expected = program(5)[0].clone()
        result = program(5)[0].zero_()

        def meanwhile() -> None:
            until = time.monotonic() + 20
            while not (same := bool((result.numpy() == expected.numpy()).all())) and time.monotonic() < until:
                time.sleep(0.001)
            done.append(same)

        assert program(5, None, meanwhile)[0] is not None
        torch.set_num_threads(1)
        assert torch.equal(program(5, None, lambda: done.append(True))[0], expected)
        program(5)

    before = torch.get_num_threads()
    with torch.inference_mode():
        alone(work)
    torch.set_num_threads(before)
    assert done == [True, True], "all of it was computed by the other thread; called once a run"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("depth", "activation"), [(96, Activation.SILU), (4500, Activation.GELU_TANH)])
def test_what_is_done_to_a_product_is_done_by_it(dtype: torch.dtype, depth: int, activation: Activation) -> None:
    """Gates and residuals: the same to the last bit, in one call; not where somebody else reads the product."""
    torch.manual_seed(0)
    room, rows, inner = LargePages(), 103, 128
    both = calls.pack(torch.randn(2 * inner, depth).to(dtype) / 8, room)
    down = calls.pack(torch.randn(70, inner).to(dtype) / 8, room)
    bias = torch.randn(2 * inner)
    x, y = torch.randn(rows, depth).to(dtype) / 8, torch.randn(rows, 2 * 70).to(dtype)[:, 70:]

    def forward() -> list[Tensor]:
        gates = calls.product(x, both, bias, 2 * inner)
        lower = calls.product(calls.act_mul(gates[:, :inner], gates[:, inner:], activation), down, None, 70)
        return [y + lower]

    def twice_read() -> list[Tensor]:
        lower = calls.product(calls.product(x, both, bias, 2 * inner)[:, :inner].contiguous(), down, None, 70)
        return [y + lower, lower]

    with torch.no_grad():
        program = Program(forward, [x, y], rows)
        assert [part.work for part in program._parts] == ["product", "product"]
        for count in (rows, 13, 1):
            assert torch.equal(program(count)[0], forward()[0][:count])
        whole = Program(twice_read, [x, y], rows)
        assert [part.work for part in whole._parts][-2:] == ["product", "pointwise"]
        assert all(torch.equal(*each) for each in zip(whole(rows), twice_read(), strict=True))


def test_what_depends_on_values_or_on_unknown_operations_is_refused() -> None:
    x = torch.randn(4, 8)
    with (
        pytest.raises(Unrecordable, match=r"aten.sin.default has no compiled kernel|made by aten.sin"),
        torch.no_grad(),
    ):
        Program(lambda: [x.sin() + x], [x], 4)
    with pytest.raises(Unrecordable, match=r"aten.mul.Tensor has no compiled kernel|made by aten.mul"), torch.no_grad():
        Program(lambda: [x * x.norm()], [x], 4)
    for mode in (torch.no_grad, torch.inference_mode):
        with pytest.raises(Unrecordable, match="reads a value"), mode():
            Program(lambda: [x + float(x.sum())], [x], 4)


def test_tables_are_sent_as_they_change() -> None:
    inputs = StepInputs(3, 2, 4, 5, 16)
    assert [*inputs.fill([5, 6], [17, 3], [1, 1], [[9, 2], [7]], [3, 0], [0, 1])] == [(2, 2)]
    assert inputs.seen.tables[3, :2].tolist() == [9, 2]
    assert inputs.seen.starts[:2].tolist() == [15, 0]
    assert inputs.seen.lengths[:2].tolist() == [18, 4]
    assert (inputs.blocks[:2].tolist(), inputs.offsets[:2].tolist()) == ([2, 7], [1, 3])
    table = [9, 2]
    table[1] = 4  # copied on write
    assert [*inputs.fill([1], [18], [1], [table], [3], [0])] == [(1, 1)]
    assert inputs.seen.tables[3, :2].tolist() == [9, 4]
    assert inputs.blocks[0] == 4


def test_a_step_of_more_tokens_than_there_is_room_for_is_filled_in_run_by_run() -> None:
    inputs, filled = StepInputs(4, 3, 2, 5, 16), []
    runs = inputs.fill(range(20, 30), [17, 30], [1, 9], [[9, 2], [7, 1, 3]], [1, 0], [0, 9])
    for count, kept in runs:
        places = inputs.ids, inputs.positions, inputs.blocks, inputs.seen.starts, inputs.seen.lengths
        filled.append([x[:count].tolist() for x in places] + [inputs.kept[:kept].tolist()])
    assert filled == [
        [[20, 21, 22], [17, 30, 31], [2, 1, 1], [5, 0, 0], [18, 31, 32], [0]],
        [[23, 24, 25], [32, 33, 34], [3, 3, 3], [0, 0, 0], [33, 34, 35], []],
        [[26, 27, 28, 29], [35, 36, 37, 38], [3, 3, 3, 3], [0, 0, 0, 0], [36, 37, 38, 39], [3]],
    ]


@pytest.mark.parametrize(
    ("name", "most"), [("qwen3", 9), ("gemma3", 512), ("granite", 20), ("olmo2", 31), ("mixtral", 9)]
)
def test_an_engine_gives_the_same_tokens_with_and_without(name: str, most: int, monkeypatch) -> None:
    """Among requests that come and go, preempted in a small pool, sharing prefixes, several samples of one, a step
    ahead or not, greedy and drawn; steps with prompts in one run or several."""
    monkeypatch.setattr(paged_cpu, "MOST_TOKENS", most)
    model, told = loaded(name), []
    pool = 8 * 16 * model.card.kv_token_bytes
    drawn = SamplingParams(max_tokens=30, seed=4, ignore_eos=True)
    changes = [{"temperature": i % 2, "n": 1 + (i == 3), "max_tokens": 9 * i + 2} for i in range(6)]
    work = [Submission([5 + i % 2, *range(20, 44), 60 + i], drawn.with_(**change)) for i, change in enumerate(changes)]
    for graphs in (True, False):
        for depth in (0, 1):
            config = EngineConfig(max_running=5, kv_memory=pool, prefix_caching=True, depth=depth, cuda_graphs=graphs)
            with Engine(model, config, threads=1) as engine:
                trace = engine.begin(config)
                streams = engine.submit_many(work)
                told.append([[c.token_ids for c in stream.results(timeout=60)] for stream in streams])
                steps = [step for step in trace.steps if len(step.kind)]
                assert {len(step.kind) < step.count.sum() for step in steps} == {True, False}
                assert all(step.graph == (step.count.sum() if graphs else 0) for step in steps)
                assert trace.header.graphs == (tuple(range(1, 6)) if graphs else ())
                assert measure(trace).preemptions > 0
    assert told[0] == told[1] == told[2] == told[3]


@pytest.mark.parametrize(("threads", "dtype"), [(1, torch.float32), (2, torch.bfloat16)])
def test_a_replayed_step_tells_what_its_kernels_took(threads: int, dtype: torch.dtype) -> None:
    model = loaded("llama", dtype)
    card = model.card
    with Engine(model, EngineConfig(max_running=4), threads=threads) as engine:
        trace = engine.run(Workload("two", tuple(Arrival(0.0, [3, 4, 5] * 9, LONG) for _ in range(2)))).result()
    kernels = trace.header.kernels
    assert kernels is not None
    known = dict(zip(kernels.names, zip(kernels.calls, kernels.weights, kernels.bytes, kernels.drawn)))
    layers = {"q_proj, k_proj, v_proj", "o_proj", "gate_proj, up_proj", "down_proj"}
    assert {name for name, (_, weights, _, _) in known.items() if weights} == {*layers, "lm_head"}
    assert sum(known[name][1] for name in layers) == card.body_parameters
    assert known["lm_head"][1] == card.head_parameters
    assert all(size == weights * dtype.itemsize for _, weights, size, _ in known.values())
    assert {name for name, (*_, drawn) in known.items() if drawn} == {"lm_head"}
    assert {known[name][0] for name in (*layers, "decode_attention")} == {card.layers}
    for step in trace.steps:
        assert len(step.kernel) == len(kernels.names)
        assert (step.kernel >= 0).all()
        assert 0 < step.kernel.sum() <= step.seconds["forward"] + 1e-6
        assert step.attention == pytest.approx(step.kernel[kernels.names.index("decode_attention")], rel=1e-5)
    without = EngineConfig(max_running=4, cuda_graphs=False)
    with Engine(model, without, threads=threads) as engine:
        trace = engine.run(Workload("one", (Arrival(0.0, [3, 4, 5], LONG),))).result()
    assert trace.header.kernels is None
    assert not any(len(step.kernel) for step in trace.steps)


@pytest.mark.parametrize("name", ["mixtral", "qwen3 moe"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_replayed_step_counts_the_tokens_of_each_expert(name: str, dtype: torch.dtype) -> None:
    """As the same step does kernel by kernel."""
    model, told = loaded(name, dtype), []
    work = Workload("two", (Arrival(0.0, [3, 4, 5] * 9, LONG.with_(n=2, temperature=1.0, seed=4)),))
    for graphs in (True, False):
        config = EngineConfig(max_running=2, depth=0, cuda_graphs=graphs)
        with Engine(model, config, threads=1) as engine:
            trace = engine.run(work).result()
        told.append([step.expert.tolist() for step in trace.steps])
        assert all(step.graph == (step.count.sum() if graphs else 0) for step in trace.steps if len(step.kind))
        assert all(step.expert.sum() == 2 * model.card.layers * step.count.sum() for step in trace.steps)
        if graphs:
            assert {"route", "experts gate_up", "experts down"} < {*trace.header.kernels.names}
    assert told[0] == told[1]


def test_a_long_prompt_is_answered_as_a_short_one_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some rows of a step by torch, because their contexts are long, the others by the compiled kernel."""
    model = loaded("mistral")
    prompts = [[7, *range(30, 30 + n)] for n in (3, 40, 100, 17)]
    told, greedy = [], SamplingParams(max_tokens=9, temperature=0)
    for longest in (paged_cpu.LONG_CONTEXT, 30, 1):
        monkeypatch.setattr(paged_cpu, "LONG_CONTEXT", longest)
        with Engine(model, EngineConfig(mode="chunked", token_budget=50, max_running=4), threads=1) as engine:
            streams = engine.submit_many([Submission(ids, greedy) for ids in prompts])
            told.append([stream.result(timeout=60).token_ids for stream in streams])
    assert told[0] == told[1] == told[2]


def test_of_a_slow_model_only_decode_rows_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_steps, "SHORT", 0.0)
    with Engine(loaded("llama"), EngineConfig(max_running=3), threads=1) as engine:
        trace = engine.begin(EngineConfig(max_running=3))
        engine.submit([7, 8, 9], SamplingParams(max_tokens=3, temperature=0)).result(timeout=60)
    assert [step.graph for step in trace.steps if len(step.kind)] == [0, 1, 1]
    assert (trace.header.mixed_graphs, trace.header.mixed_off) == ((), "a step is long, and gains nothing by it")


def test_steps_with_prompts_have_a_switch_of_their_own() -> None:
    with Engine(loaded("llama"), EngineConfig(max_running=3), threads=1) as engine:
        for mixed, most, first in ((True, (512,), 3), (False, (), 0)):
            trace = engine.begin(EngineConfig(max_running=3, mixed_graphs=mixed))
            engine.submit([7, 8, 9], SamplingParams(max_tokens=3, temperature=0)).result(timeout=60)
            assert [step.graph for step in trace.steps if len(step.kind)] == [first, 1, 1]
            assert (trace.header.mixed_graphs, trace.header.mixed_off) == (most, "" if mixed else "switched off")
