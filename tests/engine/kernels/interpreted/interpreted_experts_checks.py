"""Checks of a mixture's kernels, which `test_interpreted.py` runs with TRITON_INTERPRET=1, against an oracle.

float32 and float16: the interpreter's bfloat16 is wrong (Triton 3.9).
"""

import os

import pytest
import torch

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_interpreted.py", allow_module_level=True)

from engine.kernels.products import expert_codes
from engine.kernels.products.experts import TILINGS, Tiling, experts, tiling
from engine.kernels.routing import route
from engine.kernels.silu_mul import Activation
from engine.models.fusion.fuse import fuse
from tests.engine.fusing_case import served
from tests.engine.kernels.experts_case import Layer

LAYERS = [
    Layer(1, 4, 2, 32, 16),  # a token by itself
    Layer(5, 8, 3, 48, 40),  # widths that no tile divides
    Layer(40, 3, 2, 32, 32),  # more pairs than a tile has
    Layer(3, 1, 1, 32, 16),  # one expert, which everybody asks
]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
def test_experts_agree_with_the_oracle(layer: Layer, dtype: torch.dtype) -> None:
    layer.check(dtype, "cpu")


@pytest.mark.parametrize("cut", TILINGS.values(), ids=str)
def test_every_tiling_agrees_with_the_oracle(cut: Tiling) -> None:
    """At one token, where most tiles have none, and where all tokens go to two of the experts."""
    Layer(1, 4, 2, 32, 32).check(torch.float16, "cpu", cut)
    Layer(150, 4, 2, 32, 32).check(torch.float16, "cpu", cut, to_one=True)


CODED = [
    Layer(1, 4, 2, 64, 64),
    Layer(5, 8, 3, 192, 128),  # blocks that warps do not divide
    Layer(40, 3, 2, 128, 64),
    Layer(3, 1, 1, 64, 64),
]


@pytest.mark.parametrize("quantization", ["nf4", "nf4-double", "int8", "awq 64"])
def test_codes_are_multiplied_as_the_numbers_they_stand_for(quantization: str) -> None:
    for layer in CODED if quantization == "nf4" else CODED[:2]:
        layer.check_codes(quantization, torch.float16, "cpu")
    CODED[0].check_codes(quantization, torch.float32, "cpu")


@pytest.mark.parametrize("quantization", ["mxfp4", "int8", "awq 32"])
def test_biases_are_added_and_gates_bounded_as_gpt_oss_does(quantization: str) -> None:
    """Of 32 inputs that share a scale, of which some tilings take two at once, and some one."""
    for layer in (Layer(1, 4, 2, 96, 64), Layer(5, 8, 3, 160, 96), Layer(60, 3, 2, 64, 32)):
        layer.check_codes(quantization, torch.float16, "cpu", activation=Activation.CLAMPED)
    CODED[0].check_codes(quantization, torch.float32, "cpu", activation=Activation.CLAMPED)


@pytest.mark.parametrize("cut", [*expert_codes.TILINGS.values(), expert_codes.MANY], ids=str)
def test_every_tiling_of_codes_agrees_with_the_oracle(cut: expert_codes.Tiling) -> None:
    Layer(1, 4, 2, 64, 64).check_codes("nf4", torch.float16, "cpu", cut)
    more = 2 * cut.block_m + 6  # tokens: of an expert's pairs there are more than a tile has
    Layer(more, 4, 2, 320, 64).check_codes("nf4-double", torch.float16, "cpu", cut)
    Layer(30, 4, 2, 384, 128).check_codes("awq 128", torch.float16, "cpu", cut)
    Layer(30, 4, 2, 96, 64).check_codes("mxfp4", torch.float16, "cpu", cut, Activation.CLAMPED)


def test_more_pairs_are_cut_into_larger_tiles() -> None:
    sizes = [tiling(pairs, 64, torch.bfloat16).block_m for pairs in (8, 512, 513, 3072, 3073, 100_000)]
    assert sizes == [16, 16, 64, 64, 128, 128]
    coded = [expert_codes.tiling(pairs, 64, torch.bfloat16).block_m for pairs in (8, 512, 513, 3072, 3073)]
    assert coded == [8, 8, 32, 32, 64]


def test_no_tokens_are_no_launch() -> None:
    x, ids, *rest = Layer(2, 4, 2, 32, 16).draw(torch.float32, "cpu")
    assert experts(x[:0], ids[:0], *rest, Activation.SILU).shape == (0, 32)


@pytest.mark.parametrize("whole", [True, False])
def test_the_likeliest_experts_are_kept_of_equals_the_first(whole: bool) -> None:
    logits = torch.randn(9, 6, generator=torch.Generator().manual_seed(0)).half()
    logits[0] = 1.0
    logits[1, 2:] = float("-inf")  # no more than two are possible
    weights, ids = route(logits, 2, whole, torch.float32)
    shares = logits.float().softmax(-1)
    expected, _ = shares.topk(2)
    expected = expected / expected.sum(-1, keepdim=True) if whole else expected
    torch.testing.assert_close(weights, expected)
    assert ids[0].tolist() == [0, 1]
    torch.testing.assert_close(shares.gather(1, ids), shares.topk(2).values)
    assert (weights.dtype, ids.dtype) == (torch.float32, torch.int64)


def test_a_row_of_no_numbers_is_sent_to_experts_that_there_are() -> None:
    """As of tokens that fill a captured step up: what is made of them nobody reads, but programs do."""
    logits = torch.full((2, 6), float("nan"))
    logits[1] = torch.arange(6.0)
    _, ids = route(logits, 2, True, torch.float32)
    assert ids.tolist() == [[0, 1], [5, 4]]


def test_experts_that_are_laid_out_otherwise_stay_with_the_reason() -> None:
    fusion = fuse(served("gpt-oss", torch.float32))
    left = {why for (name, why) in fusion.left if "Experts" in name or "Router" in name}
    assert left == {"its weights are not laid out as ours"}
