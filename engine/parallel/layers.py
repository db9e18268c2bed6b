"""The layers of a narrower module at which ranks meet."""

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from engine.config.specs import InvalidInput
from engine.parallel.group import Group
from engine.parallel.split import EXPERTS, READS, UNSPLIT, shares


class Summed(nn.Module):
    """A layer of which each rank computes a part of every output."""

    def __init__(self, part: nn.Module, group: Group) -> None:
        super().__init__()
        self.part, self.group = part, group
        for name in ("in_features", "out_features"):
            if hasattr(part, name):
                setattr(self, name, getattr(part, name))

    @property
    def weight(self) -> Tensor:
        found: Tensor = self.part.weight  # type: ignore[assignment]
        return found

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.group.sum(self.part(*args, **kwargs))

    __call__ = forward  # hooks are not heard, as of the layer itself


class Gathered(nn.Module):
    """An output layer of which each rank has some columns of `total`."""

    def __init__(self, part: nn.Module, total: int, group: Group) -> None:
        super().__init__()
        self.part, self.group, self.out_features = part, group, total
        self.in_features: int = part.in_features  # type: ignore[assignment]

    @property
    def weight(self) -> Tensor:
        """This rank's rows of it."""
        found: Tensor = self.part.weight  # type: ignore[assignment]
        return found

    def forward(self, x: Tensor) -> Tensor:
        return self.group.gather(self.part(x), self.out_features)

    __call__ = forward


def narrow_head(module: PreTrainedModel, rank: int, ranks: int) -> None:
    """Leaves a rank its rows of the output layer, copied: what is tied to an embedding stays whole there. Raises
    InvalidInput for one that is quantized."""
    head: Any = module.get_output_embeddings()
    if type(head) is not nn.Linear:
        raise InvalidInput(
            f"tensor_parallel={ranks}: this checkpoint's output layer is quantized, so ranks cannot have some of its "
            f"columns; use 1, or {UNSPLIT}"
        )
    begin, end = shares(head.out_features, rank, ranks)
    narrow = nn.Linear(head.in_features, end - begin, head.bias is not None, device="meta")
    narrow.weight = nn.Parameter(head.weight.detach()[begin:end].clone(), requires_grad=False)
    if head.bias is not None:
        narrow.bias = nn.Parameter(head.bias.detach()[begin:end].clone(), requires_grad=False)
    module.set_output_embeddings(narrow)


def meet(module: PreTrainedModel, group: Group, vocabulary: int) -> int:
    """Puts sums and the gathering where the ranks' parts come together. Returns at how many places."""
    met, head = 0, module.get_output_embeddings()
    together = [name for name, part in module.named_modules() if _holds_experts(name, part)]
    inside = tuple(f"{name}." for name in together)
    for name, part in list(module.named_modules()):
        reads = name.rpartition(".")[2] in READS and not name.startswith(inside)
        if name in together or (reads and part is not head):
            module.set_submodule(name, Summed(part, group))
            met += 1
    assert head is not None
    module.set_output_embeddings(Gathered(head, vocabulary, group))
    return met


def _holds_experts(name: str, part: nn.Module) -> bool:
    """All of a layer's experts as parameters of one module."""
    return name.rpartition(".")[2] == EXPERTS and not isinstance(part, nn.ModuleList)
