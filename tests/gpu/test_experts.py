"""A mixture's kernels on the GPU that is here, against an oracle in float64."""

import pytest
import torch

from engine.kernels.products import expert_codes
from engine.kernels.products.experts import TILINGS, Tiling
from engine.kernels.routing import route
from engine.kernels.silu_mul import Activation
from tests.engine.kernels.experts_case import Layer

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("tokens", [1, 7, 300, 1500])
def test_experts_agree_with_the_oracle(tokens: int, dtype: torch.dtype) -> None:
    Layer(tokens, 16, 4, 256, 136).check(dtype, "cuda")
    Layer(tokens, 8, 2, 256, 136).check(dtype, "cuda", to_one=True)


@pytest.mark.parametrize("cut", TILINGS.values(), ids=str)
def test_every_tiling_agrees_with_the_oracle_at_a_models_widths(cut: Tiling) -> None:
    for tokens in (1, 64, 700):
        Layer(tokens, 32, 8, 2048, 768).check(torch.bfloat16, "cuda", cut)


@pytest.mark.parametrize("quantization", ["nf4", "nf4-double", "int8", "awq 64"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["fp32", "fp16", "bf16"])
def test_codes_are_multiplied_as_the_numbers_they_stand_for(dtype: torch.dtype, quantization: str) -> None:
    if not quantization.startswith("awq"):
        pytest.importorskip("bitsandbytes")
    for tokens in (1, 7, 300):
        Layer(tokens, 16, 4, 256, 192).check_codes(quantization, dtype, "cuda")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["fp32", "fp16", "bf16"])
def test_biases_are_added_and_gates_bounded_as_gpt_oss_does(dtype: torch.dtype) -> None:
    for tokens in (1, 7, 300, 1500):
        Layer(tokens, 16, 4, 256, 160).check_codes("mxfp4", dtype, "cuda", activation=Activation.CLAMPED)
    Layer(64, 32, 4, 2880, 2880).check_codes("mxfp4", dtype, "cuda", activation=Activation.CLAMPED)


@pytest.mark.parametrize("cut", [*expert_codes.TILINGS.values(), expert_codes.MANY], ids=str)
def test_every_tiling_of_codes_agrees_with_the_oracle_at_a_models_widths(cut: expert_codes.Tiling) -> None:
    for tokens in (1, 64, 700):
        Layer(tokens, 8, 2, 2048, 768).check_codes("awq 128", torch.bfloat16, "cuda", cut)
    pytest.importorskip("bitsandbytes")
    for tokens in (1, 64, 700):
        Layer(tokens, 8, 2, 2048, 768).check_codes("nf4", torch.bfloat16, "cuda", cut)


def test_the_likeliest_experts_are_kept() -> None:
    logits = torch.randn(513, 128, device="cuda").bfloat16()
    weights, ids = route(logits, 8, True, torch.float32)
    kept = logits.float().softmax(-1).topk(8).values
    torch.testing.assert_close(weights, kept / kept.sum(-1, keepdim=True))
    torch.testing.assert_close(logits.float().softmax(-1).gather(1, ids), kept)
    assert all(len(row.unique()) == 8 for row in ids)
