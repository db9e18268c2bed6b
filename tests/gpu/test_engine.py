"""Engines on the GPU that is here: transformers' tokens, replayed graphs, no waits, nothing left behind.

With TRITON_INTERPRET=1 they walk, smaller, through the same on a CPU, where graphs are planned but not captured.
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine import Engine, EngineConfig, ModelSpec, SamplingParams, Submission, Trace
from engine.kernels.dependent_launch import SWITCH, can_depend
from engine.models.loading import load
from engine.runner import make_runner
from engine.scheduler.block_pool import BlockPool
from engine.scheduler.request import Emission
from engine.scheduler.scheduler import Scheduler
from engine.trace import FinishReason, Kind, Notice
from tests.engine.captured_logits import CapturedLogits
from tests.engine.requests import make_request
from tests.engine.tiny_models import VOCABULARY

pytest.importorskip("triton")
CUDA = torch.cuda.is_available()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not CUDA and os.environ.get("TRITON_INTERPRET") != "1", reason="no CUDA device"),
]

DEVICE = "cuda" if CUDA else "cpu"
TYPES = ("llama", "qwen3", "gemma2", "gemma3", "mistral", "gpt-oss", "qwen3 moe") if CUDA else ("gemma2", "gpt-oss")
LENGTHS, NEW = ((3, 17, 1, 41, 9, 26, 70), 20) if CUDA else ((3, 17, 1), 5)
GREEDY = SamplingParams(max_tokens=NEW, temperature=0, ignore_eos=True)
PATIENCE = 100  # seconds
Tokens = list[list[int]]

CONFIGS = {
    "continuous": EngineConfig("continuous", 8, 256, block_size=16, depth=0),
    "continuous, one step behind, prefixes kept": EngineConfig(
        "continuous", 8, 256, block_size=4, depth=1, prefix_caching=True
    ),
    "chunked": EngineConfig("chunked", 8, 24, block_size=16, depth=1),
    "chunked, prefixes kept": EngineConfig("chunked", 8, 24, block_size=4, depth=0, prefix_caching=True),
}


def prompts() -> Tokens:
    """Of lengths that fill no block and that fill some; the last begins as another does."""
    generator = torch.Generator().manual_seed(7)
    drawn = [torch.randint(3, VOCABULARY, (n,), generator=generator).tolist() for n in LENGTHS]
    return [*drawn, drawn[1][:16] + drawn[0]]


@pytest.fixture(scope="module")
def reference(tiny_folder: Callable[[str], Path]) -> Callable[[str], PreTrainedModel]:
    """transformers' own module in float32, with its simplest attention."""
    found: dict[str, PreTrainedModel] = {}

    def of(name: str) -> PreTrainedModel:
        if name not in found:
            module = AutoModelForCausalLM.from_pretrained(
                tiny_folder(name), dtype=torch.float32, attn_implementation="eager"
            )
            found[name] = module.eval().to(DEVICE)
        return found[name]

    return of


@pytest.fixture(scope="module")
def llama(tiny_folder: Callable[[str], Path]) -> Iterator[Engine]:
    with open_engine(tiny_folder("llama")) as engine:
        yield engine


def open_engine(folder: Path, config: EngineConfig | None = None, dtype: str = "float32") -> Engine:
    spec = ModelSpec(str(folder), dtype=dtype, device=DEVICE)
    return Engine(spec, config or CONFIGS["continuous"], threads=None if CUDA else 1)


@torch.inference_mode()
def generated(module: PreTrainedModel, prompt: list[int]) -> list[int]:
    ids = torch.tensor([prompt], device=DEVICE)
    out = module.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    return out[0, len(prompt) :].tolist()


def said(engine: Engine, config: EngineConfig, params: Sequence[SamplingParams]) -> tuple[Tokens, Trace]:
    """The tokens that a config gives to all prompts at once, one way of sampling after another."""
    trace = engine.begin(config)
    submissions = [Submission(prompt, params[i % len(params)]) for i, prompt in enumerate(prompts())]
    completions = [stream.result(PATIENCE) for stream in engine.submit_many(submissions)]
    assert [completion.error for completion in completions] == [""] * len(completions)
    assert all(completion.finish_reason is FinishReason.LENGTH for completion in completions)
    return [list(completion.token_ids) for completion in completions], trace


def assert_graphs(trace: Trace, captured: bool) -> None:
    """Every step, with prompts and without, was a replay of the smallest graph that holds it, or none was."""
    sizes = trace.header.graphs
    assert bool(sizes) == captured, trace.header.graphs_off
    decodes = [step for step in trace.steps if step.rows and (step.kind == Kind.DECODE).all()]
    assert len(decodes) >= 3
    for step in decodes:
        assert step.graph == (next(size for size in sizes if size >= step.rows) if captured else 0)
    sizes = trace.header.mixed_graphs
    assert bool(sizes) == captured, trace.header.mixed_off
    mixed = [step for step in trace.steps if step.rows and (step.kind == Kind.PREFILL).any()]
    assert len(mixed) >= 1
    for step in mixed:
        assert step.graph == (next(size for size in sizes if size >= step.count.sum()) if captured else 0)


@pytest.mark.parametrize("name", TYPES)
def test_in_float32_tokens_are_those_of_transformers(
    name: str, tiny_folder: Callable[[str], Path], reference: Callable[[str], PreTrainedModel]
) -> None:
    expected = [generated(reference(name), prompt) for prompt in prompts()]
    assert len({token for tokens in expected for token in tokens}) >= 10
    with open_engine(tiny_folder(name)) as engine:
        for words, config in CONFIGS.items():
            tokens, trace = said(engine, config, [GREEDY])
            assert tokens == expected, words
            assert trace.header.depth == config.depth
            if name != "gpt-oss":  # whose experts may wait for the GPU
                assert_graphs(trace, captured=True)
            reused = sum(int(step.reused.sum()) for step in trace.steps)
            assert (reused > 0) == config.prefix_caching, words


@pytest.mark.skipif(not CUDA, reason="the interpreter's bfloat16 products are wrong")
@pytest.mark.parametrize("name", TYPES)
def test_in_bfloat16_logits_are_as_near_to_float32_as_transformers_own(
    name: str, tiny_folder: Callable[[str], Path]
) -> None:
    rounded = AutoModelForCausalLM.from_pretrained(
        tiny_folder(name), dtype=torch.bfloat16, attn_implementation="eager"
    ).eval()
    with open_engine(tiny_folder(name), dtype="bfloat16") as engine:
        config = EngineConfig("continuous", 8, 256, cuda_graphs=False)  # a replay is no forward that a hook could see
        with CapturedLogits(engine, config) as captured:
            completions = [stream.result(PATIENCE) for stream in [engine.submit(p, GREEDY) for p in prompts()]]
            ours = captured.by_request()
    whole = [[*prompt, *completion.token_ids] for prompt, completion in zip(prompts(), completions)]
    theirs = all_logits(rounded.to(DEVICE), whole)
    exact = all_logits(rounded.float(), whole)  # the same module, in place
    for prompt, completion, of_theirs, right in zip(prompts(), completions, theirs, exact):
        chosen = slice(len(prompt) - 1, len(prompt) - 1 + NEW)
        own, of_theirs = errors(ours[completion.request], right[chosen]), errors(of_theirs[chosen], right[chosen])
        if name in ("gpt-oss", "qwen3 moe"):  # rounding may send a token to other experts, ours or theirs
            own, of_theirs = own.sort().values[: NEW // 2], of_theirs.sort().values[: NEW // 2]
        assert own.mean() < 1.5 * of_theirs.mean() + 2e-3
        assert own.mean() < 0.1


@torch.inference_mode()
def all_logits(module: PreTrainedModel, sequences: Tokens) -> list[Tensor]:
    return [module(torch.tensor([ids], device=DEVICE)).logits[0].float() for ids in sequences]


def errors(found: Tensor, right: Tensor) -> Tensor:
    """Of each token's logits, relative."""
    return (found.float().to(right.device) - right).norm(dim=-1) / right.norm(dim=-1)


def test_tokens_are_the_same_with_graphs_and_without(llama: Engine) -> None:
    ways = [
        GREEDY,
        GREEDY.with_(temperature=0.8, top_p=0.9, seed=5),
        GREEDY.with_(temperature=1.2, top_k=40, seed=6),
        GREEDY.with_(temperature=0.7, min_p=0.05, repetition_penalty=1.3, seed=7),
        GREEDY.with_(temperature=1.0, seed=8),
    ]
    ways = [way.with_(max_tokens=NEW - 2 * i if CUDA else NEW - i % 3) for i, way in enumerate(ways)]
    found = {}
    for graphs in (True, False):
        config = EngineConfig("continuous", 8, 256, block_size=16, depth=1, cuda_graphs=graphs)
        found[graphs], trace = said(engine=llama, config=config, params=ways)
        assert_graphs(trace, captured=graphs)
        assert trace.header.graphs_off == ("" if graphs else "switched off")
    assert found[True] == found[False]


@pytest.mark.parametrize("name", ["mixtral", "qwen3 moe"])
def test_a_mixture_tells_the_experts_of_its_tokens_replayed_or_not(
    name: str, tiny_folder: Callable[[str], Path]
) -> None:
    found = []
    with open_engine(tiny_folder(name)) as engine:
        card = engine.card
        for graphs in (True, False):
            config = EngineConfig("continuous", 8, 256, block_size=16, depth=1, cuda_graphs=graphs)
            tokens, trace = said(engine, config, [GREEDY])
            assert_graphs(trace, captured=graphs)
            steps = [step for step in trace.steps if step.rows]
            sent = [step.expert.reshape(len(card.expert_layers), card.experts) for step in steps]
            for step, each in zip(steps, sent):
                assert (each.sum(1) == step.count.sum() * card.active_experts).all()
            found.append((tokens, np.sum(sent, 0).tolist()))
    assert found[0] == found[1]


@pytest.mark.skipif(not CUDA, reason="kernels of the interpreter run one after another")
def test_tokens_are_the_same_with_dependent_launches(
    tiny_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that did not wait for the one before it would read what was there before: of one row, whose kernels are
    all of our own, and of several. They are those of captured steps."""
    if not can_depend(torch.device(DEVICE, 0)):
        pytest.skip("dependent launches need a GPU of compute capability 9.0 or newer")
    found = []
    for switch in ("0", ""):
        monkeypatch.setenv(SWITCH, switch)
        with open_engine(tiny_folder("qwen3"), dtype="bfloat16") as engine:
            several = said(engine, CONFIGS["continuous"], [GREEDY, GREEDY.with_(temperature=0.8, seed=5)])[0]
            engine.begin(CONFIGS["continuous"])
            alone = [list(engine.submit(prompt, GREEDY).result(PATIENCE).token_ids) for prompt in prompts()]
        found.append((several, alone))
    assert found[0] == found[1]


def test_alternatives_are_the_same_with_graphs_and_without(llama: Engine) -> None:
    """They are found in the logits that a replay leaves."""
    ways = [GREEDY.with_(logprobs=3), GREEDY.with_(temperature=0.8, top_p=0.9, seed=5, logprobs=1), GREEDY]
    found: list[dict[int, list[tuple[int, list[int], list[float]]]]] = []
    for graphs in (True, False):
        trace = llama.begin(EngineConfig("continuous", 8, 256, block_size=16, depth=1, cuda_graphs=graphs))
        submissions = [Submission(prompt, ways[i % len(ways)]) for i, prompt in enumerate(prompts())]
        for stream in llama.submit_many(submissions):
            assert not stream.result(PATIENCE).error
        found.append({})
        for step in trace.steps:
            for i, (row, token) in enumerate(zip(step.token_row.tolist(), step.token.tolist())):
                of_it = step.alt_token_index == i
                told = token, step.alt_token[of_it].tolist(), step.alt_logprob[of_it].tolist()
                found[-1].setdefault(int(step.request[row]), []).append(told)
    with_graphs, without = found
    assert with_graphs.keys() == without.keys()
    for request, tokens in with_graphs.items():
        assert len(tokens) == NEW
        for (token, others, theirs), (same, expected, right) in zip(tokens, without[request], strict=True):
            assert len(others) == ways[request % len(ways)].logprobs
            assert (token, others) == (same, expected)
            assert theirs == pytest.approx(right, abs=1e-4)


def test_a_seeded_request_gets_the_same_tokens_whatever_runs_beside_it(llama: Engine) -> None:
    params = SamplingParams(max_tokens=NEW, temperature=0.9, top_p=0.95, seed=11, ignore_eos=True)
    prompt = prompts()[1]
    llama.begin(CONFIGS["continuous, one step behind, prefixes kept"])
    alone = list(llama.submit(prompt, params).result(PATIENCE).token_ids)
    assert len(set(alone)) > 3
    others = [Submission(p, params.with_(seed=i, max_tokens=2 + i)) for i, p in enumerate(prompts())]
    for place in (0, len(others)):
        llama.begin(CONFIGS["chunked"])
        streams = llama.submit_many([*others[:place], Submission(prompt, params), *others[place:]])
        assert list(streams[place].result(PATIENCE).token_ids) == alone
        for stream in streams:
            stream.result(PATIENCE)


def test_requests_that_come_and_are_cancelled_at_random_leave_no_block_behind(llama: Engine) -> None:
    rng = random.Random(torch.seed())
    count, memory = (2000, 160) if CUDA else (10, 40)  # requests, and blocks of KV: too few for all that may run
    config = EngineConfig(
        "continuous", 32 if CUDA else 4, 1024, block_size=4, depth=1, prefix_caching=True,
        kv_memory=memory * 4 * llama.card.kv_token_bytes,
    )  # fmt: skip
    trace = llama.begin(config)
    beginnings = [[rng.randrange(3, VOCABULARY) for _ in range(12)] for _ in range(5)]
    streams = []
    for i in range(count):
        tail = [rng.randrange(3, VOCABULARY) for _ in range(rng.randint(1, 30 if CUDA else 4))]
        params = SamplingParams(
            max_tokens=rng.randint(1, 24 if CUDA else 5), temperature=rng.choice([0.0, 0.8]), seed=i, ignore_eos=True
        )
        streams.append(llama.submit(rng.choice(beginnings)[: rng.randint(0, 12)] + tail, params))
        if rng.random() < 0.3:
            llama.cancel([rng.choice(streams).request])
        if CUDA and rng.random() < 0.05:
            time.sleep(0.01)
    reasons = [stream.result(PATIENCE).finish_reason for stream in streams]
    assert set(reasons) <= {FinishReason.LENGTH, FinishReason.CANCELLED}, [s.result().error for s in streams][:3]
    assert reasons.count(FinishReason.LENGTH) > count // 4
    if CUDA:
        assert reasons.count(FinishReason.CANCELLED) > 20
        assert any(len(step.preempted) for step in trace.steps)
        assert any(step.graph for step in trace.steps)
    pool = llama.scheduler.ledger.pool
    deadline = time.monotonic() + 20
    while not (llama.scheduler.idle and not llama.in_flight) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert pool.free + pool.cached == pool.total
    assert not any(pool.references(block) for block in range(pool.total))


@pytest.mark.parametrize("graphs", [True, False], ids=["graphs", "no graphs"])
@pytest.mark.parametrize("name", ["llama", "gemma2"])
def test_a_steady_decode_step_is_launched_without_waiting_for_the_gpu(
    name: str, graphs: bool, tiny_folder: Callable[[str], Path]
) -> None:
    model = load(ModelSpec(str(tiny_folder(name)), dtype="float32", device=DEVICE))
    config = EngineConfig("continuous", 8, 256, block_size=16, cuda_graphs=graphs)
    runner = make_runner(model, config, 64)
    with torch.inference_mode():
        runner.capture(lambda done, total: None)
    scheduler = Scheduler(config, BlockPool(64, config.block_size))
    ways = [GREEDY, GREEDY.with_(temperature=0.8), GREEDY.with_(temperature=0.8, top_p=0.9, top_k=50)]
    for i, way in enumerate(ways):
        scheduler.add(make_request(model, i, 5 + i, way))
    steady = 0
    while (plan := scheduler.plan()) is not None:
        decodes = all(row.kind is Kind.DECODE for row in plan.rows)
        watched = decodes and steady >= 2  # the first ones compile kernels
        if watched and CUDA:
            torch.cuda.set_sync_debug_mode("error")
        try:
            launched = runner.launch(plan)
        finally:
            if CUDA:
                torch.cuda.set_sync_debug_mode("default")
        steady += decodes
        assert (launched.graph > 0) == graphs
        scheduler.commit(plan, [Emission(int(token)) for token in launched.read().tokens])
    assert steady == NEW - 1


@pytest.mark.skipif(not CUDA, reason="a CPU's memory is not made short on purpose")
def test_a_step_that_runs_out_of_memory_is_made_smaller_and_the_engine_goes_on(
    tiny_folder: Callable[[str], Path],
) -> None:
    budget, size = 32_768, 480
    config = EngineConfig("continuous", 64, budget, block_size=16, kv_memory=64 << 20)
    with open_engine(tiny_folder("llama"), config) as engine:
        trace = engine.trace
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (24 << 20)) / total)
        try:
            many = [Submission([3 + (7 * i + j) % 3000 for j in range(size)], GREEDY) for i in range(64)]
            completions = [stream.result(PATIENCE) for stream in engine.submit_many(many)]
            after = engine.submit(prompts()[0], GREEDY).result(PATIENCE)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        notices = [record.text for record in trace.records if isinstance(record, Notice)]
        assert any("out of memory" in text for text in notices), "the test leaves too much room"
        assert after.finish_reason is FinishReason.LENGTH, (after.error, notices)
        assert [c.finish_reason for c in completions].count(FinishReason.LENGTH) > 0, notices
        later = engine.submit(prompts()[0], GREEDY).result(PATIENCE)
        assert later.token_ids == after.token_ids
        pool = engine.scheduler.ledger.pool
        assert pool.free + pool.cached == pool.total
