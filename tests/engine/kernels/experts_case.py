"""Layers of experts of random weights, what an oracle in float64 makes of them, and how it compares."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import silu

from engine.bench.rounding import rounded_codes
from engine.kernels.products import expert_codes
from engine.kernels.products.codes import Codes, joined
from engine.kernels.products.expert_codes import ExpertCodes, serves, table_for
from engine.kernels.products.experts import Tiling, experts
from engine.kernels.silu_mul import Activation
from engine.models.quantization.bitsandbytes import eight_bit_codes, four_bit_codes
from engine.models.quantization.mxfp4 import mxfp4_codes

CLOSE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}  # of the largest number


@dataclass(frozen=True)
class Layer:
    """`tokens` are sent to `each` of so many experts of so many columns, the last of which gets none, if it can."""

    tokens: int
    experts: int
    each: int
    hidden: int
    columns: int

    def draw(self, dtype: torch.dtype, device: str, to_one: bool = False) -> tuple[Tensor, ...]:
        """As `experts` takes them; `to_one`: all tokens go to the same experts."""
        generator = torch.Generator().manual_seed(sum((self.tokens, self.experts, self.each, self.hidden)))

        def noise(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator)

        order = torch.rand(self.tokens, self.experts, generator=generator)
        order[:, -1] = 2.0
        order = order[:1].expand_as(order) if to_one else order
        ids, weights = order.argsort()[:, : self.each], noise(self.tokens, self.each).softmax(-1)
        x, gate_up = noise(self.tokens, self.hidden), noise(self.experts, 2 * self.columns, self.hidden)
        down = noise(self.experts, self.hidden, self.columns) / self.columns**0.5
        made = x, ids, weights, gate_up / self.hidden**0.5, down
        return tuple(one.to(device, one.dtype if one is ids else dtype) for one in made)

    def check(self, dtype: torch.dtype, device: str, cut: Tiling | None = None, to_one: bool = False) -> None:
        """The sum, and what was counted: all but the last two tokens, beside what stood there."""
        given = self.draw(dtype, device, to_one)
        real = (torch.arange(self.tokens, device=device) < self.tokens - 2).int()[:, None]
        counts = torch.full((self.experts,), 7, dtype=torch.int32, device=device)
        out = experts(*given, Activation.SILU, counts, real, cut)
        expected = oracle(*given)
        assert out.dtype == dtype
        off = (out.double() - expected).abs().max() / expected.abs().max()
        assert off <= CLOSE[dtype], (self, cut, float(off))
        asked = given[1][: max(0, self.tokens - 2)].flatten().bincount(minlength=self.experts)
        assert (counts - 7 == asked).all(), self
        if cut is None:
            self.check_parts(dtype, given, out)
        everyone = torch.zeros_like(counts)
        again = experts(*given, Activation.SILU, everyone, None, cut)
        assert torch.equal(again, out), "the same bits each time"
        assert (everyone == given[1].flatten().bincount(minlength=self.experts)).all()

    def biases(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """As wide as what is bounded where gates are."""
        random = torch.Generator().manual_seed(self.columns)
        both, down = (torch.randn(self.experts, n, generator=random) for n in (2 * self.columns, self.hidden))
        return (6 * both).to(like), down.to(like)

    def check_codes(
        self,
        quantization: str,
        dtype: torch.dtype,
        device: str,
        cut: Tiling | expert_codes.Tiling | None = None,
        activation: Activation = Activation.SILU,
    ) -> None:
        """The same of weights that are codes, with biases where gates are bounded; and of some of the experts alone."""
        x, ids, weights, *plain = self.draw(dtype, device)
        made = [codes_of(weight.float(), quantization) for weight in plain]
        numbers = [codes.numbers().view(weight.shape) for codes, weight in zip(made, plain)]

        def some(first: int, end: int) -> list[ExpertCodes]:
            outputs = [codes.outputs // self.experts for codes in made]
            rows = [codes.rows(first * each, end * each) for codes, each in zip(made, outputs)]
            return [ExpertCodes(codes, end - first, table_for(codes, dtype)) for codes in rows]

        assert all(serves(codes) for codes in made)
        biases = self.biases(x) if activation is Activation.CLAMPED else None

        def mixed(first: int, end: int) -> Tensor:
            own = None if biases is None else (biases[0][first:end], biases[1][first:end])
            how = {"cut": cut, "first": first, "whole": self.experts, "biases": own}
            return experts(x, ids, weights, *some(first, end), activation, **how)

        out = mixed(0, self.experts)
        expected = oracle(x, ids, weights, *numbers, biases)
        off = (out.double() - expected).abs().max() / expected.abs().max()
        assert off <= CLOSE[dtype], (self, quantization, cut, float(off))
        if cut is not None:
            return  # whose experts they are is not a tiling's to know
        half = self.experts // 2
        parts = sum(mixed(first, end).double() for first, end in ((0, half), (half, self.experts)) if first < end)
        assert (parts - out.double()).abs().max() <= 2 * CLOSE[dtype] * out.double().abs().max()

    def check_parts(self, dtype: torch.dtype, given: tuple[Tensor, ...], out: Tensor) -> None:
        """What some of the experts give, and the others, is together what all give; each counts for all."""
        x, ids, weights, *held = given
        asked, parts = ids.flatten().bincount(minlength=self.experts), []
        for first, end in ((0, self.experts // 2), (self.experts // 2, self.experts)):
            if first < end:
                counts = torch.zeros(self.experts, dtype=torch.int32, device=x.device)
                own = x, ids, weights, *(one[first:end] for one in held)
                how = {"first": first, "whole": self.experts}
                parts.append(experts(*own, Activation.SILU, counts, **how).double())
                assert (counts == asked).all()
        together = sum(parts)
        assert (together - out.double()).abs().max() <= 2 * CLOSE[dtype] * out.double().abs().max()


def codes_of(weight: Tensor, quantization: str) -> Codes:
    """Of experts' weights `[experts, outputs, inputs]`, as a load makes them."""
    tables = dict[bytes, Tensor]()

    def code(one: Tensor) -> Codes:
        if quantization == "mxfp4":
            return mxfp4_codes(one)
        if quantization.startswith("awq"):
            return rounded_codes(one, int(quantization.removeprefix("awq ")))
        return eight_bit_codes(one) if quantization == "int8" else four_bit_codes(one, "double" in quantization, tables)

    whole = joined([code(one) for one in weight])
    assert whole is not None
    return whole


def oracle(
    x: Tensor, ids: Tensor, weights: Tensor, gate_up: Tensor, down: Tensor, biases: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Expert by expert, in float64; with biases, gates as gpt-oss has them."""
    x, weights, gate_up, down = (one.double() for one in (x, weights, gate_up, down))
    out = torch.zeros_like(x)
    for expert in range(len(down)):
        token, place = (ids == expert).nonzero(as_tuple=True)
        of_both, of_down = (0.0, 0.0) if biases is None else (one[expert].double() for one in biases)
        gate, up = (x[token] @ gate_up[expert].t() + of_both).chunk(2, -1)
        if biases is None:
            acted = silu(gate) * up
        else:
            gate = gate.clamp(max=7.0)
            acted = gate * (1.702 * gate).sigmoid() * (up.clamp(-7.0, 7.0) + 1)
        out.index_add_(0, token, (acted @ down[expert].t() + of_down) * weights[token, place, None])
    return out
