"""Which parts of a model we have a kernel for."""

from collections.abc import Callable

from torch import nn

from engine.models.expert_weights import WEIGHTS
from engine.models.fusion.angles import fused_angles
from engine.models.fusion.mixtures import fused_experts, fused_router
from engine.models.fusion.parts import (
    GATED,
    INTERLEAVED,
    MARK,
    ROTATE,
    FusedPart,
    LeftAlone,
    Setting,
    fused_attention,
    fused_mlp,
    fused_norm,
)
from engine.models.quantization.coded_experts import CodedExperts


def fuse_part(part: nn.Module, setting: Setting) -> FusedPart | None:
    """The class to give `part`, or None where it is nothing that we have a kernel for. Raises LeftAlone for a part that
    looks like one, but is not proved to be."""
    make = _maker(part, setting)
    if make is None:
        return None
    if "forward" in vars(part) or hasattr(type(part), MARK):
        raise LeftAlone("its forward was replaced already")
    try:
        return make(part, setting)
    except LeftAlone:
        raise
    except Exception as error:  # a model's own code and a compiler ran: whatever they raise, eager code remains
        words = str(error).strip().splitlines() or [""]
        raise LeftAlone(f"the proof failed: {type(error).__name__}: {words[0][:200]}") from error


def _maker(part: nn.Module, setting: Setting) -> Callable[[nn.Module, Setting], FusedPart] | None:
    if type(part).__name__.endswith("RotaryEmbedding"):
        return fused_angles if setting.kernels.angles is not None else None
    if type(part).__name__.endswith("Norm") and not type(part).__module__.startswith("torch."):
        return fused_norm
    if isinstance(part, CodedExperts) or all(isinstance(getattr(part, name, None), nn.Parameter) for name in WEIGHTS):
        return fused_experts if setting.kernels.experts is not None else None
    if type(part).__name__.endswith("Router"):
        return fused_router if setting.kernels.route is not None else None
    if any(all(isinstance(getattr(part, name, None), nn.Module) for name in names) for names in GATED):
        return fused_mlp
    if {ROTATE, INTERLEAVED} & {*getattr(getattr(type(part).forward, "__code__", None), "co_names", ())}:
        return fused_attention
    return None
