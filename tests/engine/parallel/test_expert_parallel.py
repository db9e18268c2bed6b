"""Ranks that share a mixture's experts out, each whole, give the tokens of one device, and tell who was asked."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from transformers import Qwen2MoeConfig

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, Parallel, SamplingParams, measure
from engine.trace import Step, imbalance, load_trace, rank_loads, save_trace
from tests.engine.tiny_models import TINY_MODELS, VOCABULARY, TinyModel, random_prompts, save_tiny_model

GREEDY = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
CONFIG = EngineConfig(max_running=8, token_budget=64, block_size=16)


def beside_a_shared_one(folder: Path, experts: int = 4) -> Path:
    """A model whose every token is computed by a shared expert too, of which each rank has a part."""
    values = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    values |= {"intermediate_size": 64, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}
    config = Qwen2MoeConfig(**values, num_key_value_heads=2, num_experts=experts, num_experts_per_tok=2)
    save_tiny_model(TinyModel(lambda: config), folder / "moe")
    return folder / "moe"


def spec(folder: Path, ranks: int = 2, **parallel: object) -> ModelSpec:
    split = Parallel(ranks, **({"experts": ranks > 1} | parallel))  # type: ignore[arg-type]
    return ModelSpec(str(folder), dtype="float32", device="cpu", parallel=split)


def said(engine: Engine) -> list[list[int]]:
    streams = [engine.submit(prompt, GREEDY) for prompt in random_prompts((3, 17, 1, 41, 26))]
    return [list(stream.result(timeout=60).token_ids) for stream in streams]


def sent(engine: Engine) -> list[Step]:
    return [step for step in engine.trace.steps if step.expert.any()]


@pytest.mark.parametrize("name", ["mixtral", "qwen3 moe", "gpt-oss", "beside a shared one"])
def test_ranks_with_experts_of_their_own_give_the_tokens_of_one_device(
    name: str, tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """What others' experts get of a token is none of a rank's sum, whatever computes it."""
    folder = tiny_folder(name) if name in TINY_MODELS else beside_a_shared_one(tmp_path)
    found, asked, held, off = [], [], [], []
    for ranks in (1, 2):
        with Engine(spec(folder, ranks), CONFIG, threads=1) as engine:
            found.append(said(engine))
            asked.append(np.sum([step.expert for step in sent(engine)], 0).tolist())
            held.append(engine.trace.header.rank_weights or (engine.card.weight_bytes,))
            off.append(engine.trace.header.graphs_off)
            assert bool(off[-1]) != any(step.graph for step in engine.trace.steps)
    assert bool(off[0]) == bool(off[1]), "what one device records, ranks do"
    assert found[0] == found[1]
    assert asked[0] == asked[1], "each rank routes all tokens, and counts them for all experts"
    assert max(held[1]) < 0.9 * held[0][0]


def test_a_run_tells_how_evenly_the_ranks_were_asked(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    with Engine(spec(tiny_folder("mixtral")), CONFIG, threads=1) as engine:
        said(engine)
        trace = engine.trace
    save_trace(trace, tmp_path / "run.bsrun")
    trace = load_trace(tmp_path / "run.bsrun")
    header = trace.header
    assert header.expert_parallel
    assert header.rank_experts == ((0, 2), (2, 4))
    factors = []
    for step in (step for step in trace.steps if step.expert.any()):
        each = step.expert.reshape(2, 4)
        loads = rank_loads(header, each)
        assert loads.tolist() == [[a + b, c + d] for a, b, c, d in each.tolist()]
        factors.append(sum(max(row) for row in loads.tolist()) / (each.sum() / 2))
        assert imbalance(loads) == pytest.approx(factors[-1])
    assert 1 < max(factors) <= 2
    assert measure(trace).expert_imbalance == pytest.approx(np.mean(factors))


def test_loads_of_nothing_and_of_one_rank_alone() -> None:
    assert imbalance(np.zeros((3, 2), np.int64)) == 1
    assert imbalance(np.array([[8, 0, 0, 0], [0, 0, 8, 0]])) == 4
    assert imbalance(np.array([[2, 2], [5, 5]])) == 1


def test_where_experts_are_not_shared_out_nothing_is_told_of_it(tiny_folder: Callable[[str], Path]) -> None:
    with Engine(spec(tiny_folder("mixtral"), experts=False), CONFIG, threads=1) as engine:
        said(engine)
        assert engine.trace.header.rank_experts == ()
        assert rank_loads(engine.trace.header, sent(engine)[0].expert.reshape(2, 4)).shape == (2, 0)
        assert measure(engine.trace).expert_imbalance is None


def test_what_cannot_be_shared_out_is_refused_by_name(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"expert_parallel=True: it shares experts out .* use tensor_parallel 2"):
        Parallel(experts=True)
    with pytest.raises(InvalidInput, match=r"expert_parallel=True with sequence_parallel=True: .* use one of both"):
        Parallel(2, sequence=True, experts=True)
    with pytest.raises(InvalidInput, match="model type 'llama' has no experts to share out; leave it out"):
        Engine(spec(tiny_folder("llama")), threads=1)
    with pytest.raises(InvalidInput, match="3 experts do not divide by it; use 1"):
        Engine(spec(beside_a_shared_one(tmp_path, 3)), threads=1)
