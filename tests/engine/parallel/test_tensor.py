"""A model split over two ranks gives the tokens of one device, whatever happens to its requests meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from transformers import Qwen2MoeConfig

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, Parallel, SamplingParams
from engine.trace import Step, load_trace, save_trace
from tests.engine.parallel.plans import EVERY_PLAN
from tests.engine.tiny_models import VOCABULARY, TinyModel, random_prompts, save_tiny_model

TINY = ["llama", "qwen2", "qwen3", "gemma2", "phi3", "mixtral", "qwen3 moe", "starcoder2", "gpt-oss"]
NEW_TOKENS = 16
GREEDY = SamplingParams(max_tokens=NEW_TOKENS, temperature=0, ignore_eos=True)
PLAIN = EngineConfig(max_running=8, token_budget=64, block_size=16)


def spec(folder: Path, ranks: int, **parallel: object) -> ModelSpec:
    return ModelSpec(str(folder), dtype="float32", device="cpu", parallel=Parallel(ranks, **parallel))  # type: ignore[arg-type]


def drawn(engine: Engine, params: SamplingParams = GREEDY) -> list[list[tuple[list[int], list[float]]]]:
    """Of some prompts, two of which begin alike, the tokens of each sample and their log-probabilities."""
    shared = random_prompts((33,), seed=1)[0]
    prompts = [*random_prompts((3, 17, 1, 41)), shared, shared[:32] + [5, 6]]
    streams = [engine.submit(prompt, params) for prompt in prompts]
    streams[3].cancel()  # whose tokens nobody looks at
    return [[(list(c.token_ids), list(c.logprobs)) for c in s.results()] for i, s in enumerate(streams) if i != 3]


def tokens(found: list[list[tuple[list[int], list[float]]]]) -> list[list[list[int]]]:
    return [[ids for ids, _ in samples] for samples in found]


def said(engine: Engine, params: SamplingParams = GREEDY) -> list[list[list[int]]]:
    """The tokens alone."""
    return tokens(drawn(engine, params))


WAYS = [(1, False), (2, False), (2, True)]  # ranks, and whether they share rows too


def all_alike(found: list[list[list[tuple[list[int], list[float]]]]]) -> bool:
    """The tokens of one device, two ranks and two that share rows; of the latter two each number to the bit."""
    one, two, sharing = found
    return tokens(one) == tokens(two) and two == sharing


@pytest.mark.parametrize("name", TINY)
def test_two_ranks_give_the_tokens_of_one(name: str, tiny_folder: Callable[[str], Path]) -> None:
    found = []
    for ranks, sequence in WAYS:
        with Engine(spec(tiny_folder(name), ranks, sequence=sequence), PLAIN, threads=1) as engine:
            found.append(drawn(engine))
            assert (
                engine.card.kv_token_bytes == 2 * engine.card.layers * engine.card.kv_heads * engine.card.head_dim * 4
            )
    assert all_alike(found)


@dataclass
class Ways:
    one: Engine
    two: Engine
    sharing: Engine


@pytest.fixture(scope="module")
def ways(tiny_folder: Callable[[str], Path]) -> Iterator[Ways]:
    folder = tiny_folder("llama")
    with ExitStack() as open_:
        made = (Engine(spec(folder, ranks, sequence=sequence), PLAIN, threads=1) for ranks, sequence in WAYS)
        yield Ways(*(open_.enter_context(engine) for engine in made))


@EVERY_PLAN
def test_two_ranks_follow_whatever_rank_0_plans(ways: Ways, changes: dict, params: dict) -> None:
    config = EngineConfig(**{"max_running": 8, "token_budget": 64, "block_size": 16, **changes})
    asked = GREEDY.with_(**params)
    found = []
    for engine in (ways.one, ways.two, ways.sharing):
        engine.begin(config)
        found.append(drawn(engine, asked))
    assert all_alike(found)
    if "swap_memory" in changes:
        assert {engine.trace.header.host_blocks for engine in (ways.one, ways.two, ways.sharing)} == {36}
    if "kv_memory" in changes:
        steps = [record for record in ways.two.trace.records if isinstance(record, Step)]
        assert any(len(step.preempted) for step in steps), "nothing was preempted, which the case is for"
        moves = "swap_memory" in changes or "offload_prefixes" in changes
        assert any(step.moved_blocks for step in steps) is moves


def experts_beside_experts(folder: Path) -> Path:
    """A model whose layers add up the ranks' parts of routed experts and of shared ones."""
    values = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    values |= {"intermediate_size": 64, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
    save_tiny_model(TinyModel(lambda: Qwen2MoeConfig(**values, num_key_value_heads=2, num_experts=4)), folder / "moe")
    return folder / "moe"


def test_what_cannot_be_split_is_refused_by_name(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    for name, ranks, words in [
        ("llama", 3, "4 attention heads and 2 key and value heads .* use 2, or 1"),
        ("llama wide heads", 2, "1 key and value heads do not divide by it; use 1"),
        ("olmo2", 2, "norms all its heads together"),
        ("gpt2", 2, "cannot split model type 'gpt2'"),
        ("gpt-neox", 2, "not known well enough"),
    ]:
        with pytest.raises(InvalidInput, match=words):
            Engine(spec(tiny_folder(name), ranks), threads=1)
    with pytest.raises(InvalidInput, match=r"'qwen2_moe' cannot share its rows: its 'mlp' adds up .* more than once"):
        Engine(spec(experts_beside_experts(tmp_path), 2, sequence=True), threads=1)


def test_modes_that_are_padded_are_refused(ways: Ways) -> None:
    for config in (EngineConfig("static"), EngineConfig(depth=1)):
        with pytest.raises(InvalidInput, match="ranks"):
            ways.two.begin(config)
    ways.two.begin(PLAIN)


def test_gloo_gives_the_same_tokens(ways: Ways, tiny_folder: Callable[[str], Path]) -> None:
    ways.one.begin(PLAIN)
    with Engine(spec(tiny_folder("llama"), 2, backend="gloo", sequence=True), PLAIN, threads=1) as engine:
        assert "gloo" in engine.trace.header.graphs_off
        assert (engine.trace.header.interconnect or pytest.fail("not measured")).way == "loopback"
        assert said(engine) == said(ways.one)


@pytest.mark.parametrize("sequence", [False, True])
def test_each_step_tells_what_every_rank_did(ways: Ways, tmp_path: Path, sequence: bool) -> None:
    engine = ways.sharing if sequence else ways.two
    engine.begin(PLAIN)
    said(engine)
    path = tmp_path / "split.bsrun"
    save_trace(engine.trace, path)
    trace = load_trace(path)
    header, steps = trace.header, [step for step in trace.steps if step.rows]
    assert header.rank_devices == ("cpu", "cpu")
    assert sum(header.rank_weights) == header.model.weight_bytes
    assert header.ranks_meet == "shared memory"
    assert header.sequence_parallel is sequence
    assert header.rank_kv == (header.blocks * 16 * header.model.kv_token_bytes // 2,) * 2
    between = header.interconnect
    assert between is not None
    assert between.way == "shared memory"
    assert between.rate_at(1 << 20) > between.rate_at(4096) > 0, "a small message is slower than its bytes"
    assert ways.one.trace.header.interconnect is None
    told = [step for step in steps if len(step.rank_bytes)]
    assert len(told) > len(steps) / 2, "a rank may be late to tell now and then"
    for step in told:
        spent = step.rank_computing + step.rank_communicating + step.rank_waiting
        assert (step.rank_computing > 0).all()
        assert (spent <= step.ended - step.started + 0.05).all()
        rows, row, vocabulary = int(step.count.sum()), header.model.hidden * 4, header.model.vocabulary
        sums = 2 * header.model.layers * rows * row
        drawn = len(step.token) * vocabulary // 2 * 4
        shares = [rows // 2 * row, (rows + 1) // 2 * row] if sequence else [0, 0]  # which the last norm's reader needs
        assert step.rank_bytes.tolist() == [sums + drawn + share for share in shares]
    assert {int(step.count.sum()) % 2 for step in told} == {0, 1}, "some do not divide"
