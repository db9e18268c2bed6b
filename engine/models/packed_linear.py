"""Linear layers whose weights are held in the layout that is multiplied fastest, on a CPU: our own kernel's, of numbers
and of codes, or, where it could not be compiled, oneDNN's.

`torch.nn.functional.linear` hands float32 to MKL, which lays the weights out anew at each call and, on some processors,
leaves their widest vectors unused. oneDNN's packed product took 0.3 to 0.5 of its time at 1 to 1,024 rows, and ours
(`engine/kernels/cpu/native/product.c`) 0.7 to 0.95 of oneDNN's, least at few rows, in both dtypes. Layers that take the
same input are one product: queries, keys and values of a width of 512 took 0.4 to 0.65 of the time of three.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

import torch
from torch import Tensor, nn

from engine.kernels.cpu import calls as native
from engine.kernels.cpu.codes import PackedCodes, pack_codes
from engine.kernels.cpu.large_pages import LargePages
from engine.kernels.products.codes import Codes, joined
from engine.kernels.silu_mul import Activation
from engine.models.plain_weights import is_plain
from engine.models.quantization.coded_linear import CodedLinear

# Of a module's layers, in the order of calls.
SAME_INPUT = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
    ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"),
    *((q, "kv_a_proj_with_mqa") for q in ("q_proj", "q_a_proj")),
)
# The number of rows that oneDNN's layout is chosen for. Every hint from 16 up gave the same one, good for all counts.
PACKED_FOR_ROWS = 64


class Packed(Protocol):
    """A weight `[columns, depth]` and its bias, laid out to be multiplied."""

    @property
    def held(self) -> dict[str, Tensor]:
        """What lies in memory."""

    def plain(self) -> Tensor:
        """The weight, a copy laid out anew at each call."""

    def multiply(self, x: Tensor) -> Tensor:
        """`[..., columns]` of `[..., depth]`."""


class Adapts(Protocol):
    """What changes a product by the adapters of its rows."""

    def add(self, out: Tensor, x: Tensor) -> Tensor:
        """`out` `[..., columns]` of x `[..., depth]`, changed."""


class HeldByLayers:
    """What is multiplied is that of the layers, and they tell of it."""

    __slots__ = ()

    @property
    def held(self) -> dict[str, Tensor]:
        return {}

    def gated(self, x: Tensor, activation: Activation) -> Tensor | None:
        """act(first half) * second half of the product, where one kernel computes it of so many rows."""
        return None

    def multiply(self, x: Tensor) -> Tensor:
        """As in `Packed`."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Held:
    """`weight` in a layout of its own, beside its bias."""

    weight: Tensor
    bias: Tensor | None

    @property
    def held(self) -> dict[str, Tensor]:
        return {"packed": self.weight} | ({} if self.bias is None else {"packed_bias": self.bias})


@dataclass(frozen=True, slots=True)
class OurPacked(_Held):
    """For our kernel."""

    columns: int

    def plain(self) -> Tensor:
        return native.unpack(self.weight, self.columns)

    def multiply(self, x: Tensor) -> Tensor:
        return native.product(x, self.weight, self.bias, self.columns)


@dataclass(frozen=True, slots=True)
class OurCoded:
    """Codes for our kernel."""

    codes: PackedCodes
    bias: Tensor | None

    @property
    def weight(self) -> Tensor:
        """Where it lies."""
        return self.codes.laid.codes

    @property
    def held(self) -> dict[str, Tensor]:
        return self.codes.laid.held | ({} if self.bias is None else {"packed_bias": self.bias})

    def plain(self) -> Tensor:
        return self.codes.unpack().numbers()

    def multiply(self, x: Tensor) -> Tensor:
        return self.codes.product(x, self.bias)


@dataclass(frozen=True, slots=True)
class OneDnnPacked(_Held):
    def plain(self) -> Tensor:
        return self.weight.to_dense()

    def multiply(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")


def pack(weight: Tensor | Codes, bias: Tensor | None, room: LargePages) -> Packed:
    """Packs a weight that `_is_plain`, or one of codes, into this room."""
    added = None if bias is None else bias.detach()
    if isinstance(weight, Codes):
        return OurCoded(pack_codes(weight, room), added)
    weight = weight.detach()
    if native.multiplies(weight):
        return OurPacked(native.pack(weight, room), added, len(weight))
    return OneDnnPacked(torch.ops.mkldnn._reorder_linear_weight(weight, PACKED_FOR_ROWS), added)


class PackedLinear(nn.Module):
    """A linear layer on a CPU, its weight packed. Results differ from it by rounding only."""

    def __init__(self, linear: nn.Linear | CodedLinear, room: LargePages) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.packed = pack(linear.weight, linear.bias, room)
        self.bias = linear.bias
        self.adapted: Adapts | None = None

    @property
    def weight(self) -> Tensor:
        """The plain weight `[out_features, in_features]`, a copy laid out anew at each call."""
        return self.packed.plain()

    def extra_weights(self) -> dict[str, Tensor]:
        """What is no parameter: beside it, a weight that is tied to an embedding lies there once more."""
        return self.packed.held

    def forward(self, x: Tensor) -> Tensor:
        out = self.packed.multiply(x)
        return out if self.adapted is None else self.adapted.add(out, x)

    __call__ = forward  # hooks are not heard: looking for them takes longer than a small step's arithmetic


class JoinedProduct:
    """Linear layers of one input as one product. Whoever asks first has it computed; the others take their part of it,
    if what they are given is that very tensor. Kept until all have taken theirs. `adapted`: what adapters add to it."""

    def __init__(self, packed: Packed, widths: list[int]) -> None:
        self.packed, self.widths = packed, widths
        self.adapted: Adapts | None = None
        self._input: Tensor | None = None
        self._parts: list[Tensor | None] = []
        self._left = 0  # parts that were not taken yet

    def part(self, index: int, x: Tensor) -> Tensor:
        """`[..., widths[index]]`, a view with gaps between its rows."""
        out = self._parts[index] if x is self._input else None
        if out is None:
            self._input, self._left = x, len(self.widths)
            product = self.packed.multiply(x)
            product = product if self.adapted is None else self.adapted.add(product, x)
            self._parts = [*torch.split_with_sizes(product, self.widths, -1)]
            out = self._parts[index]
            assert out is not None
        self._parts[index] = None
        self._left -= 1
        if not self._left:
            self._input = None
        return out


class JoinedLinear(nn.Module):
    """One of the layers of a joined product."""

    def __init__(self, linear: nn.Linear | CodedLinear, product: JoinedProduct, index: int) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.product, self.index, self.bias = product, index, linear.bias

    @property
    def weight(self) -> Tensor:
        """The plain weight `[out_features, in_features]`, a copy laid out anew at each call."""
        return self.product.packed.plain().split(self.product.widths)[self.index]

    def extra_weights(self) -> dict[str, Tensor]:
        """What is no parameter: the first has the packed weight of all."""
        return {} if self.index else self.product.packed.held

    def forward(self, x: Tensor) -> Tensor:
        return self.product.part(self.index, x)

    __call__ = forward


def joined_product(linears: Sequence[nn.Linear | CodedLinear], room: LargePages) -> JoinedProduct | None:
    """Of layers that are `_alike`, packed; None where codes cannot be held as one weight."""
    weights, biases = [linear.weight for linear in linears], [x.bias.detach() for x in linears if x.bias is not None]
    codes = [weight for weight in weights if isinstance(weight, Codes)]
    weight = joined(codes) if codes else torch.cat([x.detach() for x in weights if isinstance(x, Tensor)])
    if weight is None:
        return None
    packed = pack(weight, torch.cat(biases) if biases else None, room)
    return JoinedProduct(packed, [linear.out_features for linear in linears])


def pack_linears(module: nn.Module) -> None:
    """Replaces the linear layers of a module on a CPU that our kernel multiplies; where it is not here, and this build
    of torch has oneDNN, those in float32, and in bfloat16 where the processor multiplies that. Only exact
    `nn.Linear`s, and layers whose codes a quantizer handed over: any other that it made or filled stays. A weight that
    nothing else holds is freed."""
    room = LargePages()
    tied = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    for part in list(module.modules()):
        for names in SAME_INPUT:
            linears = [getattr(part, name, None) for name in names]
            ours = [linear for linear in linears if _is_ours(linear, tied)]
            if len(ours) == len(names) == len(set(map(id, ours))) and _alike(ours):
                product = joined_product(ours, room)
                for index, (name, linear) in enumerate(zip(names, ours, strict=True)):
                    if product is not None:
                        part.set_submodule(name, JoinedLinear(linear, product, index))
    for name in [name for name, _ in module.named_modules(remove_duplicate=False)]:
        part = module.get_submodule(name)
        if name and _is_ours(part, tied):
            module.set_submodule(name, PackedLinear(part, room))


def _is_ours(part: nn.Module | None, tied: set[int]) -> TypeGuard[nn.Linear | CodedLinear]:
    return isinstance(part, CodedLinear) or (isinstance(part, nn.Linear) and _is_plain(part, tied))


def _alike(linears: Sequence[nn.Linear | CodedLinear]) -> bool:
    kinds = [x.weight.coding if isinstance(x.weight, Codes) else x.weight.dtype for x in linears]
    sizes = {(linear.in_features, kind, linear.bias is None) for linear, kind in zip(linears, kinds, strict=True)}
    return len(sizes) == 1


def _is_plain(linear: nn.Linear, tied: set[int]) -> bool:
    """What is `tied` to an embedding lies in memory twice once it is packed, for which oneDNN gains too little in
    bfloat16."""
    weight = linear.weight
    if type(linear) is not nn.Linear or not is_plain(weight) or weight.device.type != "cpu":
        return False
    if native.multiplies(weight):
        return True
    if weight.dtype is torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported() and id(weight) not in tied
    return weight.dtype is torch.float32 and torch.backends.mkldnn.is_available()


def packed_names(module: nn.Module) -> dict[int, str]:
    """What the layers of each weight of our kernel are called in their modules, by its address: in every layer
    "q_proj, k_proj, v_proj"."""
    found: dict[int, list[str]] = {}
    for path, part in module.named_modules():
        packed = part.product.packed if isinstance(part, JoinedLinear) else getattr(part, "packed", None)
        if isinstance(packed, (OurPacked, OurCoded)):
            found.setdefault(packed.weight.data_ptr(), []).append(path.rpartition(".")[2])
    return {address: ", ".join(names) for address, names in found.items()}
