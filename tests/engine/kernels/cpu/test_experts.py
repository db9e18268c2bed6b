"""The kernels of a mixture of experts equal torch's operations, whatever tokens are beside a token."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from engine.kernels.cpu import library
from engine.kernels.cpu.experts import ExpertWeights, route
from engine.kernels.cpu.large_pages import LargePages
from engine.kernels.products.coding import Coding
from engine.kernels.silu_mul import Activation
from tests.engine.kernels.cpu.test_codes import made

DTYPES = {torch.float32: 2e-5, torch.bfloat16: 2e-2}
ACTIVATIONS = {Activation.SILU: silu, Activation.GELU_TANH: lambda x: gelu(x, approximate="tanh")}

pytestmark = pytest.mark.skipif(library.find_compiler() is None, reason="no C compiler")


def weights_of(experts: int, hidden: int, columns: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    gate_up = torch.randn(experts, 2 * columns, hidden) / hidden**0.5
    return gate_up.to(dtype), (torch.randn(experts, hidden, columns) / columns**0.5).to(dtype)


def expected_of(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, activation: Activation
) -> Tensor:
    """In float64, pair by pair."""
    out = torch.zeros(x.shape, dtype=torch.float64)
    for token, (values, to, by) in enumerate(zip(x.double(), ids, weights.double(), strict=True)):
        for expert, share in zip(to, by, strict=True):
            gate, up = (gate_up[expert].double() @ values).chunk(2)
            out[token] += share * (down[expert].double() @ (ACTIVATIONS[activation](gate) * up))
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("hidden", "columns", "activation"), [(96, 50, Activation.SILU), (70, 128, Activation.GELU_TANH)]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_experts_equal_torchs(dtype, hidden, columns, activation, threads) -> None:
    """Of tokens sent evenly, all to one expert, to some experts only, and of none; what they are counted as."""
    torch.manual_seed(hidden)
    experts, each = 9, 3
    plain = weights_of(experts, hidden, columns, dtype)
    packed = ExpertWeights.of(*plain, LargePages())
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for tokens, first, last in [(1, 0, 9), (2, 4, 7), (13, 0, 3), (40, 0, 9), (220, 0, 3), (0, 0, 9)]:
            x, weights = torch.randn(tokens, hidden).to(dtype), torch.rand(tokens, each)
            ids = torch.rand(tokens, last - first).argsort()[:, :each] + first
            tally = torch.ones(experts, dtype=torch.int32)
            out = packed(x, ids, weights, activation, tally)
            assert out.dtype is dtype
            torch.testing.assert_close(
                out.double(), expected_of(x, ids, weights, *plain, activation), rtol=DTYPES[dtype], atol=DTYPES[dtype]
            )
            assert tally.tolist() == [1 + int((ids == expert).sum()) for expert in range(experts)]
            halves = [(0, 4), (4, 9)]  # of which each knows of all tokens, and computes for its own
            parts = [ExpertWeights.of(*(one[begin:end] for one in plain), LargePages()) for begin, end in halves]
            summed = sum(
                part(x, ids, weights, activation, tally, begin).double() for part, (begin, _) in zip(parts, halves)
            )
            torch.testing.assert_close(summed, out.double(), rtol=DTYPES[dtype], atol=2 * DTYPES[dtype])
            assert tally.tolist() == [1 + 3 * int((ids == expert).sum()) for expert in range(experts)]
            alone = packed(x[-1:], ids[-1:], weights[-1:], activation)
            assert torch.equal(alone, out[-1:]), "whatever rows are beside it"
            rounded = packed(x, ids, weights.to(torch.bfloat16), activation)
            assert torch.equal(rounded, packed(x, ids, weights.to(torch.bfloat16).float(), activation))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("coding", Coding)
@pytest.mark.parametrize("threads", [1, 2])
def test_codes_are_multiplied_as_the_numbers_they_stand_for(coding, dtype, threads) -> None:
    """Of more and of fewer tokens than read codes without a copy of the numbers, and of widths that are no panels'."""
    torch.manual_seed(threads)
    experts, each = 5, 2
    sizes = {Coding.BYTES: (132, 52, 52), Coding.STEPS: (96, 72, 8)}  # of which panels are not made
    hidden, columns, group = sizes.get(coding, (96, 128, 32))
    gate_up = made(coding, experts * 2 * columns, hidden, hidden if coding is Coding.BYTES else group)
    down = made(coding, experts * hidden, columns, group, seed=1)
    plain = gate_up.numbers().view(experts, 2 * columns, hidden), down.numbers().view(experts, hidden, columns)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        packed = ExpertWeights.of_codes(gate_up, down, experts, LargePages())
        for tokens in (1, 9, 70, 300):
            x, weights = (torch.randn(tokens, hidden) / hidden**0.5).to(dtype), torch.rand(tokens, each)
            ids = torch.rand(tokens, experts - 1).argsort()[:, :each]  # the last one has none
            out = packed(x, ids, weights, Activation.SILU)
            expected = expected_of(x, ids, weights, *plain, Activation.SILU)
            assert (out - expected).abs().max() <= DTYPES[dtype] * expected.abs().max()
            assert torch.equal(packed(x[-1:], ids[-1:], weights[-1:], Activation.SILU), out[-1:])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("experts", "each"), [(4, 2), (61, 4), (128, 8), (3, 3)])
def test_tokens_go_where_torch_sends_them(dtype, experts, each) -> None:
    torch.manual_seed(experts)
    x, columns = torch.randn(71, 90).to(dtype), torch.randn(experts, 90).to(dtype) / 3
    for whole in (True, False):
        for of in (torch.float32, dtype):
            logits, weights, ids = route(x, columns, each, whole, of)
            torch.testing.assert_close(logits.double(), x.double() @ columns.double().T, rtol=1e-2, atol=DTYPES[dtype])
            chosen = logits.float().softmax(-1).topk(each)
            assert torch.equal(logits.gather(1, ids), logits.gather(1, chosen.indices)), "where no two are alike"
            expected = (chosen.values / (chosen.values.sum(-1, keepdim=True) if whole else 1)).to(of)
            torch.testing.assert_close(weights, expected, rtol=3e-6 if of is torch.float32 else 8e-3, atol=1e-7)
            for alone, together in zip(route(x[-3:-2], columns, each, whole, of), (logits, weights, ids)):
                assert torch.equal(alone, together[-3:-2]), "whatever rows are beside it"
    assert route(x, torch.zeros_like(columns), each, True, dtype)[2].tolist() == [[*range(each)]] * 71, "the first"
    x[0, 1] = float("nan")
    _, weights, ids = route(x, columns, each, False, torch.float32)
    assert weights[0].isnan().all()
    assert not weights[1:].isnan().any()
    assert len({*ids[0].tolist()}) == each
    assert 0 <= ids.min() <= ids.max() < experts
