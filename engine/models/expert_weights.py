"""The weights of a mixture's experts, as transformers holds them: those of a layer together."""

from torch import Tensor, nn

from engine.models.plain_weights import is_plain

WEIGHTS = "gate_up_proj", "down_proj"


def held(part: nn.Module, *names: str) -> list[Tensor] | None:
    """The weights of these names, if they are plain, of one dtype, and all that there is; else None."""
    rest = dict(part.named_parameters()) | dict(part.named_buffers())
    weights = [rest.pop(name, None) for name in names]
    found = [x.detach() for x in weights if x is not None and is_plain(x)]
    return None if rest or len(found) < len(names) or len({x.dtype for x in found}) > 1 else found


def held_by_experts(part: nn.Module) -> tuple[Tensor, Tensor] | None:
    """`[experts, 2 * columns, hidden]` and `[experts, hidden, columns]` of a module that holds nothing else."""
    found = held(part, *WEIGHTS)
    if found is None or any(x.dim() != 3 for x in found):
        return None
    gate_up, down = found
    experts, hidden, columns = down.shape
    return (gate_up, down) if gate_up.shape == (experts, 2 * columns, hidden) else None
