"""A mixture of experts by the compiled kernels: which of them each token is sent to, and what they make of it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engine.kernels.cpu import structures as held
from engine.kernels.cpu.calls import DTYPES, LANES, laid_out, part_of, run, threads_for
from engine.kernels.cpu.codes import PackedCodes, pack_codes
from engine.kernels.cpu.large_pages import LargePages
from engine.kernels.cpu.library import function
from engine.kernels.products.codes import Codes
from engine.kernels.silu_mul import Activation

MOST = 64  # experts that a token is sent to, as `native/experts.c` has it
Biases = tuple[Tensor, Tensor]
GATES = {Activation.SILU: 1, Activation.GELU_TANH: 2, Activation.CLAMPED: 3}  # as `native/product.h` counts them


def route(
    x: Tensor, columns: Tensor, each: int, whole: bool, dtype: torch.dtype, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The logits `[tokens, experts]` of x `[tokens, depth]` by a linear layer `[experts, depth]` with a bias
    `[experts]`, or none; of the `each` highest of a token, the first of equals, the probabilities, of a dtype that is
    computed; and which experts these are, int64, both `[tokens, each]`. `whole`: of these alone, so that they are 1
    together."""
    x, columns = x.contiguous(), columns.contiguous()
    tokens, (experts, depth) = len(x), columns.shape
    ids, weights = torch.empty(tokens, each, dtype=torch.long), torch.empty(tokens, each, dtype=dtype)
    logits = torch.empty(tokens, experts, dtype=x.dtype)
    places = (one.data_ptr() for one in (ids, weights, logits, x, columns))
    of_bias = None if bias is None else bias.data_ptr()
    values = held.Route(part_of(tokens, x), *places, of_bias, experts, each, depth, whole, dtype is torch.bfloat16)
    run(values, threads_for(tokens * experts * (8 + depth // LANES)))
    return logits, weights, ids


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """The weights of so many experts of so many columns, in the layout of `product`, one after another: `gate_up`
    `[experts, panels, ...]`, gates and what they gate each in whole panels, and `down`, which is `padded` columns deep,
    as many as those panels have. Codes are one weight of all experts' outputs. `biases` `[experts, 2 * padded]` and
    `[experts, hidden]`, of the tokens' dtype, where there are any."""

    gate_up: Tensor | PackedCodes
    down: Tensor | PackedCodes
    experts: int
    hidden: int
    columns: int
    biases: Biases | None = None

    @classmethod
    def of(cls, gate_up: Tensor, down: Tensor, room: LargePages, biases: Biases | None = None) -> "ExpertWeights":
        """From `[experts, 2 * columns, hidden]` and `[experts, hidden, columns]`, hidden even, and biases `[experts,
        2 * columns]` and `[experts, hidden]`."""
        experts, hidden, columns = down.shape
        more = padding(columns)
        made: list[Tensor] = []
        for expert in range(experts):
            both = nn.functional.pad(gate_up[expert].reshape(2, columns, hidden), (0, 0, 0, more))
            one_down = nn.functional.pad(down[expert], (0, more))
            laid = laid_out(both.flatten(0, 1)), laid_out(one_down)
            made = made or [room.zeros((experts, *weight.shape), weight.dtype) for weight in laid]
            for all_experts, weight in zip(made, laid, strict=True):
                all_experts[expert].copy_(weight)
        return cls(made[0], made[1], experts, hidden, columns, _laid(biases, columns))

    @classmethod
    def of_codes(
        cls, gate_up: Codes, down: Codes, experts: int, room: LargePages, biases: Biases | None = None
    ) -> "ExpertWeights":
        """From codes `[experts * 2 * columns, hidden]` and `[experts * hidden, columns]` that `multiplies` serves, the
        latter with as many more inputs as `padding` has; `biases` as of plain weights."""
        hidden, columns = gate_up.inputs, down.inputs
        more, panels = padding(columns), -hidden % function("panel_width")()
        packed = (
            pack_codes(gate_up.with_more(2 * experts, more), room),
            pack_codes(down.with_more(experts, panels, more), room),
        )
        return cls(*packed, experts, hidden, columns, _laid(biases, columns))

    @property
    def padded(self) -> int:
        return self.columns + padding(self.columns)

    @property
    def held(self) -> dict[str, Tensor]:
        """What lies in memory for these weights."""
        both = {"gate_up": self.gate_up, "down": self.down}
        plain = {name: weight for name, weight in both.items() if isinstance(weight, Tensor)}
        coded = {name: weight.laid.held for name, weight in both.items() if isinstance(weight, PackedCodes)}
        biases = dict(zip(("gate_up_bias", "down_bias"), self.biases or ()))
        codes = {f"{name}_{part}": tensor for name, held in coded.items() for part, tensor in held.items()}
        return plain | codes | biases

    def __call__(
        self,
        x: Tensor,
        ids: Tensor,
        weights: Tensor,
        activation: Activation,
        tally: Tensor | None = None,
        first: int = 0,
    ) -> Tensor:
        """The sum `[tokens, hidden]` of what the experts `ids` int64 `[tokens, each]` make of x `[tokens, hidden]`, by
        their `weights` `[tokens, each]`. To `tally` int32 `[all experts]` is added how many tokens each has got. These
        are the experts from `first` on: what others make of a token is not in the sum."""
        x, ids = x.contiguous(), ids.long().contiguous()
        weights = (weights if weights.dtype in DTYPES else weights.float()).contiguous()
        (tokens, each), half = ids.shape, weights.dtype is torch.bfloat16
        pairs = tokens * each
        starts = torch.empty(self.experts + 1, dtype=torch.int32)
        at, owners = torch.empty(pairs, dtype=torch.int32), torch.empty(pairs, dtype=torch.long)
        told = None if tally is None else tally.data_ptr()
        sorting = starts.data_ptr(), at.data_ptr(), owners.data_ptr(), told, ids.data_ptr()
        run(held.Sort(part_of(pairs, x), *sorting, first, self.experts, each), 1)
        rows = torch.empty(pairs, self.hidden, dtype=x.dtype)
        looked_up = rows.data_ptr(), x.data_ptr(), owners.data_ptr()
        run(held.Lookup(part_of(pairs, x), *looked_up, self.hidden), threads_for(rows.numel()))
        of_both, of_down = self.biases or (None, None)
        acted = self._product(rows, self.gate_up, of_both, starts, 2 * self.padded, GATES[activation])
        made = self._product(acted, self.down, of_down, starts, self.hidden, 0)
        out = torch.empty(tokens, self.hidden, dtype=x.dtype)
        summed = out.data_ptr(), made.data_ptr(), weights.data_ptr(), at.data_ptr()
        run(held.Combine(part_of(tokens, x), *summed, each, self.hidden, half), threads_for(made.numel()))
        return out

    def _product(
        self, x: Tensor, weight: Tensor | PackedCodes, bias: Tensor | None, starts: Tensor, columns: int, gate: int
    ) -> Tensor:
        out = torch.empty(len(x), columns // 2 if gate else columns, dtype=x.dtype)
        coded = weight if isinstance(weight, PackedCodes) else None
        numbers = weight.laid.codes if isinstance(weight, PackedCodes) else weight
        places = (None if each is None else each.data_ptr() for each in (out, x, numbers, bias, starts))
        scales, coding = (coded.scales, coded.laid.coding) if coded else (held.Scales(), 0)
        sizes = self.experts, columns, x.shape[1], gate, coding
        run(held.Experts(part_of(len(x), x), *places, scales, *sizes), torch.get_num_threads())
        return out


def _laid(biases: Biases | None, columns: int) -> Biases | None:
    """Those of gates, and of what they gate, as long as their panels."""
    if biases is None:
        return None
    both, down = biases
    return nn.functional.pad(both.unflatten(1, (2, columns)), (0, padding(columns))).flatten(1), down.contiguous()


def padding(columns: int) -> int:
    """So many columns are none: each expert's gates, and what they gate, are whole panels."""
    return -columns % int(function("panel_width")())
