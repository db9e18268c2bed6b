"""Linear layers whose weights are held in the layout that oneDNN multiplies fastest, on a CPU.

`torch.nn.functional.linear` hands float32 to MKL, which lays the weights out anew at each call and, on some processors,
leaves their widest vectors unused. Packed once, the same product took 0.3 to 0.5 of the time at 1 to 1,024 rows; in
bfloat16, which oneDNN lays out anew at each call, 0.5 to 0.85 at 1 to 64 rows. Layers that take the same input are one
product: queries, keys and values of a width of 512 took 0.4 to 0.65 of the time of three at 1 to 24 rows.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

SAME_INPUT = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # of a module's layers, in the order of calls
# The number of rows that the layout is chosen for. Every hint from 16 up gave the same layout, good for all counts.
PACKED_FOR_ROWS = 64


class PackedLinear(nn.Module):
    """An `nn.Linear` on a CPU, its weight packed. Results differ from it by rounding only."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), PACKED_FOR_ROWS)
        self.bias = linear.bias

    @property
    def weight(self) -> Tensor:
        """The plain weight `[out_features, in_features]`, a copy laid out anew at each call."""
        return self.packed.to_dense()

    def extra_weights(self) -> dict[str, Tensor]:
        """What is no parameter: beside it, a weight that is tied to an embedding lies there once more."""
        return {"packed": self.packed}

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")

    __call__ = forward  # hooks are not heard: looking for them takes longer than a small step's arithmetic


class JoinedProduct:
    """Linear layers of one input as one product. Whoever asks first has it computed; the others take their part of it,
    if what they are given is that very tensor. Kept until all have taken theirs."""

    def __init__(self, linears: Sequence[nn.Linear]) -> None:
        biases = [linear.bias for linear in linears if linear.bias is not None]
        weight = torch.cat([linear.weight.detach() for linear in linears])
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_FOR_ROWS)
        self.bias = torch.cat([bias.detach() for bias in biases]) if biases else None
        self.widths = [linear.out_features for linear in linears]
        self._input: Tensor | None = None
        self._parts: list[Tensor | None] = []
        self._left = 0  # parts that were not taken yet

    def part(self, index: int, x: Tensor) -> Tensor:
        """`[..., widths[index]]`, a view with gaps between its rows."""
        out = self._parts[index] if x is self._input else None
        if out is None:
            self._input, self._left = x, len(self.widths)
            self._parts = [*torch.split_with_sizes(self.multiply(x), self.widths, -1)]
            out = self._parts[index]
            assert out is not None
        self._parts[index] = None
        self._left -= 1
        if not self._left:
            self._input = None
        return out

    def multiply(self, x: Tensor) -> Tensor:
        """`[..., sum of widths]`."""
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


class JoinedLinear(nn.Module):
    """One of the layers of a joined product."""

    def __init__(self, linear: nn.Linear, product: JoinedProduct, index: int) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.product, self.index, self.bias = product, index, linear.bias

    @property
    def weight(self) -> Tensor:
        """The plain weight `[out_features, in_features]`, a copy laid out anew at each call."""
        return self.product.packed.to_dense().split(self.product.widths)[self.index]

    def extra_weights(self) -> dict[str, Tensor]:
        """What is no parameter: the first has the packed weight of all."""
        bias = {} if self.product.bias is None else {"joined_bias": self.product.bias}
        return {} if self.index else {"packed": self.product.packed, **bias}

    def forward(self, x: Tensor) -> Tensor:
        return self.product.part(self.index, x)

    __call__ = forward


def pack_linears(module: nn.Module) -> None:
    """Replaces the linear layers of a module on a CPU, where this build of torch has oneDNN: those in float32, and in
    bfloat16 where the processor multiplies that. Only exact `nn.Linear`s: a layer that a quantizer made or filled
    stays. A weight that nothing else holds is freed."""
    if not torch.backends.mkldnn.is_available():
        return
    halves = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    tied = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    for part in list(module.modules()):
        for names in SAME_INPUT:
            linears = [getattr(part, name, None) for name in names]
            plain = [linear for linear in linears if isinstance(linear, nn.Linear) and _is_plain(linear, halves, tied)]
            if len(plain) == len(names) == len(set(map(id, plain))) and _alike(plain):
                product = JoinedProduct(plain)
                for index, (name, linear) in enumerate(zip(names, plain, strict=True)):
                    part.set_submodule(name, JoinedLinear(linear, product, index))
    for name in [name for name, _ in module.named_modules(remove_duplicate=False)]:
        part = module.get_submodule(name)
        if name and isinstance(part, nn.Linear) and _is_plain(part, halves, tied):
            module.set_submodule(name, PackedLinear(part))


def _alike(linears: Sequence[nn.Linear]) -> bool:
    return len({(linear.in_features, linear.weight.dtype, linear.bias is None) for linear in linears}) == 1


def _is_plain(linear: nn.Linear, halves: bool, tied: set[int]) -> bool:
    """A quantizer may leave the layer as it is and put a tensor of its own kind in the place of its weight. What is
    `tied` to an embedding lies in memory twice once it is packed, for which bfloat16 gains too little."""
    weight = linear.weight
    exact = type(linear) is nn.Linear and type(weight) is nn.Parameter and weight.device.type == "cpu"
    half = halves and weight.dtype is torch.bfloat16 and id(weight) not in tied
    return exact and (weight.dtype is torch.float32 or half)
