"""A quantized model on several devices: codes that a checkpoint holds, or that line up with what each rank has, give
the tokens of one device; others are made by each rank of its part."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

import pytest

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, Parallel, SamplingParams
from engine.bench.cpu.rounded_awq import save_rounded_awq
from engine.checkpoints import local_info
from engine.memory import DeviceMemory, fits, rank_counts, why_whole
from engine.parallel.split import Split
from tests.engine.models.quantization.make_mxfp4 import save_rounded_mxfp4
from tests.engine.tiny_models import random_prompts

GREEDY = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)
CONFIG = EngineConfig(max_running=8, token_budget=64)
ONE, HEADS, ROWS, EXPERTS, STAGES = (
    Parallel(),
    *(Parallel(2), Parallel(2, sequence=True), Parallel(2, experts=True), Parallel(pipeline=2)),
)
LARGE = DeviceMemory("cpu", 1 << 36, 1 << 36)
Stored = Callable[[str], str]


@pytest.fixture
def stored(tiny_folder: Callable[[str], Path], tmp_path: Path) -> Stored:
    """A model whose checkpoint holds codes."""

    def made(name: str) -> str:
        if name.startswith("demo"):
            return name
        make = save_rounded_mxfp4 if name == "gpt-oss" else partial(save_rounded_awq, group=16)
        return str(make(tiny_folder(name), tmp_path / "stored"))

    return made


def said(engine: Engine, params: SamplingParams = GREEDY) -> list[tuple[int, ...]]:
    streams = [engine.submit(prompt, params) for prompt in random_prompts((3, 17, 1, 41))]
    return [stream.result(60).token_ids for stream in streams]


@pytest.mark.parametrize(
    ("name", "quantization", "ways"),
    [
        ("llama", "awq", [HEADS, ROWS, STAGES]),
        ("phi3", "awq", [HEADS]),  # q, k and v as one layer, gate and up as another
        ("qwen3 moe", "awq", [HEADS, EXPERTS, STAGES]),
        ("gpt-oss", "mxfp4", [HEADS, EXPERTS, STAGES]),
        ("demo", "nf4", [HEADS]),
        ("demo-moe", "nf4", [EXPERTS]),
    ],
)
def test_ranks_that_have_the_codes_of_one_device_give_its_tokens(
    name: str, quantization: str, ways: Sequence[Parallel], stored: Stored
) -> None:
    """What one device records, ranks do; each holds what its bill says."""
    spec = ModelSpec(stored(name), quantization, "float32", "cpu")
    with Engine(spec, CONFIG, threads=1) as engine:
        expected, recorded = said(engine), not engine.trace.header.graphs_off
        assert recorded is (name != "gpt-oss"), engine.trace.header.graphs_off
    (bill,) = fits(local_info(spec), LARGE, dtype="float32", quantizations=[quantization], ranks=2)
    for parallel in ways:
        with Engine(replace(spec, parallel=parallel), CONFIG, threads=1) as two:
            header = two.trace.header
            assert said(two) == expected, parallel
            assert header.model.quantization == quantization
            assert bool(header.graphs_off) is not recorded, header.graphs_off
            assert sum(header.rank_weights) == header.model.weight_bytes
            if parallel.pipeline == 1:
                assert header.rank_weights == pytest.approx((bill.weights,) * 2, rel=0.02 if "demo" in name else 0.04)


@pytest.mark.parametrize("quantization", ["int8", "nf4-double", "torchao-int8"])
def test_parts_that_are_quantized_by_themselves_are_as_near(quantization: str) -> None:
    """Scales of rows, and of scales, are those of a rank's own part: other codes than one device has, and no worse."""
    asked, found = GREEDY.with_(prompt_logprobs=0, max_tokens=1), []
    text = "Once upon a time there was a little fox who found a red kite in the tree, and a bird that sang."
    for how in ("none", quantization):
        for parallel in (ONE, HEADS) if how != "none" else (ONE,):
            with Engine(ModelSpec("demo", how, "float32", "cpu", parallel=parallel), CONFIG, threads=1) as engine:
                told = engine.submit(text, asked).result(60).prompt_logprobs or ()
                found.append([each.logprob for each in told if each is not None])
    plain, one, two = found
    assert one != two, "nothing was quantized by itself, which this is for"
    off = [fmean(abs(a - b) for a, b in zip(each, plain)) for each in (one, two)]
    assert max(off) < 0.5
    assert off[1] < 1.5 * off[0]


def test_groups_that_ranks_do_not_divide_are_refused_with_what_would(
    tiny_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = save_rounded_awq(tiny_folder("llama"), tmp_path / "llama", 64)
    spec = ModelSpec(str(folder), "awq", device="cpu", parallel=HEADS)
    words = r"inputs of model\.layers\.0\.self_attn\.o_proj\.q\w+ share a scale in groups, .* number, 1; use 1, or"
    with pytest.raises(InvalidInput, match=words):
        Engine(spec, threads=1)
    assert rank_counts(local_info(spec)) == [1]
    assert why_whole(local_info(spec)) == (
        "no number of ranks divides its 4 heads and 2 of keys and values in AWQ's groups"
    )
    split = Split(0, 4, 8, 4, 8, "gpt_oss")
    with pytest.raises(InvalidInput, match="do not divide their number, 90; use expert_parallel"):
        split.part("model.layers.0.mlp.experts.down_proj_blocks", (32, 2880, 90, 16))
    with pytest.raises(InvalidInput, match=r"the 80 outputs of .*q_proj are AWQ, 8 of them in a number"):
        split.part("model.layers.0.self_attn.q_proj.qweight", (64, 10))
