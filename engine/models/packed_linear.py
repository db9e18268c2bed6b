"""Linear layers whose weights are held in the layout that oneDNN multiplies fastest, on a CPU.

`torch.nn.functional.linear` hands float32 to MKL, which lays the weights out anew at each call and, on some processors,
leaves their widest vectors unused. Packed once, the same product took 0.3 to 0.5 of the time at 1 to 1,024 rows; in
bfloat16, which oneDNN lays out anew at each call, 0.5 to 0.85 at 1 to 64 rows.
"""

import torch
from torch import Tensor, nn

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


def pack_linears(module: nn.Module) -> None:
    """Replaces the linear layers of a module on a CPU, where this build of torch has oneDNN: those in float32, and in
    bfloat16 where the processor multiplies that. Only exact `nn.Linear`s: a layer that a quantizer made or filled
    stays. A weight that nothing else holds is freed."""
    if not torch.backends.mkldnn.is_available():
        return
    halves = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    tied = {id(part.weight) for part in module.modules() if isinstance(part, nn.Embedding)}
    for name in [name for name, _ in module.named_modules(remove_duplicate=False)]:
        part = module.get_submodule(name)
        if name and isinstance(part, nn.Linear) and _is_plain(part, halves, tied):
            module.set_submodule(name, PackedLinear(part))


def _is_plain(linear: nn.Linear, halves: bool, tied: set[int]) -> bool:
    """A quantizer may leave the layer as it is and put a tensor of its own kind in the place of its weight. What is
    `tied` to an embedding lies in memory twice once it is packed, for which bfloat16 gains too little."""
    weight = linear.weight
    exact = type(linear) is nn.Linear and type(weight) is nn.Parameter and weight.device.type == "cpu"
    half = halves and weight.dtype is torch.bfloat16 and id(weight) not in tied
    return exact and (weight.dtype is torch.float32 or half)
