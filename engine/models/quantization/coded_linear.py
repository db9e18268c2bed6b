"""A linear layer of a CPU whose weight is codes, as a quantizer's layer hands it to `engine.models.packed_linear`."""

from torch import Tensor, nn

from engine.kernels.cpu.codes import pack_codes
from engine.kernels.cpu.large_pages import LargePages
from engine.kernels.products.codes import Codes


class CodedLinear(nn.Module):
    """It is laid out to be multiplied once the whole model is known: layers of one input then become one product."""

    def __init__(self, weight: Codes, bias: Tensor | None) -> None:
        super().__init__()
        self.in_features, self.out_features = weight.inputs, weight.outputs
        self.weight, self.bias = weight, bias

    def extra_weights(self) -> dict[str, Tensor]:
        """What is no parameter."""
        return self.weight.held

    def forward(self, x: Tensor) -> Tensor:
        """Laid out for this call alone: a model is tried once before."""
        return pack_codes(self.weight, LargePages(0)).product(x, self.bias)
