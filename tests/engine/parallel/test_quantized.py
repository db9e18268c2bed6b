"""A quantized model on several devices: codes that a checkpoint holds, or that line up with what each rank has, give
the tokens of one device; others are made by each rank of its part."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

import pytest
from safetensors.torch import load_file, save_file
from transformers import PreTrainedConfig

from engine import Engine, EngineConfig, InvalidInput, ModelSpec, Parallel, SamplingParams
from engine.bench.cpu.rounded_awq import save_rounded_awq
from engine.bench.rounding import round_to_nearest
from engine.checkpoints import local_info
from engine.checkpoints.inspect import inspect_model
from engine.memory import DeviceMemory, fits, rank_counts, why_whole
from engine.memory.weight_bytes import layers_share
from engine.parallel.split import Split
from tests.engine.models.quantization.make_mxfp4 import save_rounded_mxfp4
from tests.engine.tiny_models import TINY_MODELS, TinyModel, change_config, random_prompts, save_tiny_model

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
        ("demo", "int8", [STAGES]),
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
        "no number of ranks divides its 4 heads and 2 of keys and values in groups that share a scale"
    )
    split = Split(0, 4, 8, 4, 8, "gpt_oss")
    with pytest.raises(InvalidInput, match="do not divide their number, 90; use expert_parallel"):
        split.part("model.layers.0.mlp.experts.down_proj_blocks", (32, 2880, 90, 16))
    with pytest.raises(InvalidInput, match=r"the 80 outputs of .*q_proj are AWQ, 8 of them in a number"):
        split.part("model.layers.0.self_attn.q_proj.qweight", (64, 10))


def test_an_output_layer_that_is_packed_is_left_whole(tiny_folder: Callable[[str], Path], tmp_path: Path) -> None:
    folder = save_rounded_awq(tiny_folder("llama"), tmp_path / "llama", 16)
    state = load_file(folder / "model.safetensors")
    packed = round_to_nearest(state.pop("lm_head.weight"), 16)
    state |= dict(zip(("lm_head.qweight", "lm_head.qzeros", "lm_head.scales"), packed))
    save_file(state, folder / "model.safetensors", {"format": "pt"})
    change_config(folder, quantization_config={"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm"})
    spec, found = ModelSpec(str(folder), "awq", "float32", "cpu"), []
    for parallel in (ONE, STAGES):
        with Engine(replace(spec, parallel=parallel), CONFIG, threads=1) as engine:
            found.append(said(engine))
    assert found[0] == found[1]
    with pytest.raises(InvalidInput, match=r"tensor_parallel=2: this checkpoint's output layer is quantized"):
        Engine(replace(spec, parallel=HEADS), CONFIG, threads=1)


def test_experts_whose_parts_would_stay_as_they_are_are_refused_with_what_would_do(tmp_path: Path) -> None:
    """Of 192 columns there are three groups of 64: a part of each expert would be 16 bits, where its bill says four."""
    save_tiny_model(TinyModel(lambda: mixture_of(192)), tmp_path)
    spec = ModelSpec(str(tmp_path), "nf4", "bfloat16", "cpu")
    with pytest.raises(InvalidInput, match=r"the 3 groups of columns that share a scale .* use expert_parallel"):
        Engine(replace(spec, parallel=HEADS), CONFIG, threads=1)
    with Engine(replace(spec, parallel=EXPERTS), CONFIG, threads=1) as engine:
        (bill,) = fits(local_info(spec), LARGE, quantizations=["nf4"], ranks=2)
        assert engine.trace.header.rank_weights == pytest.approx((bill.weights,) * 2, rel=0.04)


def mixture_of(columns: int) -> PreTrainedConfig:
    config = TINY_MODELS["qwen3 moe"].config()
    config.moe_intermediate_size = columns
    return config


def test_stages_are_even_in_the_bytes_that_their_layers_are_held_in() -> None:
    info = inspect_model(ModelSpec("demo"))
    for quantization, least, most in [("none", 1, 1), ("int8", 0.25, 0.3), ("nf4", 0.13, 0.2)]:
        assert least <= layers_share(info, quantization, "float32", "cpu") <= most
