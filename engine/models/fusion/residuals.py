"""A decoder layer's two additions, each in one kernel with the norm of its sum, and with that of what is added if there
is one: the norm that begins the next layer finds its result ready.

A layer is taken by the names that its code uses, and proved with the whole model.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from engine.kernels.rms_norm import Rounding
from engine.models.fusion.parts import NORM, READY, FusedPart, Setting, Use, subclass

KERNEL = "residual"
BEGIN, BEHIND = "input_layernorm", "post_attention_layernorm"
WIDE = "pre_feedforward_layernorm", "post_feedforward_layernorm"
PLAIN = {BEGIN, "self_attn", BEHIND, "mlp"}  # all that a layer's code names; or these and WIDE


def fused_layers(module: nn.Module, setting: Setting) -> Iterator[tuple[nn.Module, FusedPart]]:
    """Layers whose norms are fused and alike, each with the class to give it."""
    for part in module.modules():
        layers = getattr(part, "layers", None)
        if isinstance(layers, nn.ModuleList) and len(layers):
            firsts = [getattr(layer, BEGIN, None) for layer in layers]
            for layer, following in zip(layers, [*firsts[1:], getattr(part, "norm", None)]):
                settings = {_settings(norm) for norm in (*_norms(layer), following)}
                if _is_plain(layer) and len(settings) == 1 and None not in settings:
                    yield layer, _fused(layer, following, setting)


def _is_plain(layer: nn.Module) -> bool:
    code = getattr(inspect.unwrap(type(layer).forward), "__code__", None)
    return code is not None and set(code.co_names) in (PLAIN, PLAIN | set(WIDE))


def _norms(layer: nn.Module) -> list[Any]:
    return [getattr(layer, name) for name in (BEGIN, BEHIND, *WIDE) if hasattr(layer, name)]


def _settings(norm: Any) -> tuple[float, Rounding, int] | None:
    """Epsilon, rounding and width of a fused norm with a weight."""
    found = getattr(type(norm), NORM, None)
    if found is None or getattr(norm, "weight", None) is None:
        return None
    return getattr(norm, found[0]), found[1], len(norm.weight)


def _fused(layer: nn.Module, following: Any, setting: Setting) -> FusedPart:
    own: Callable[..., Any] = type(layer).forward
    names = inspect.unwrap(own).__code__.co_varnames[2:]  # behind self and the hidden states
    found, use, add_norm = _settings(following), Use(), setting.kernels.add_norm
    assert found is not None
    assert add_norm is not None
    epsilon, rounding, _ = found
    wide = hasattr(layer, WIDE[0])

    def forward(self: Any, hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
        if not setting.serves(hidden):
            return own(self, hidden, *args, **kwargs)
        use.served = True
        kwargs.update(zip(names, args))
        attended = self.self_attn(hidden_states=self.input_layernorm(hidden), **kwargs)[0]
        behind, second = self.post_attention_layernorm, following
        ways = ((None, behind), (None, second))
        if wide:
            ways = ((behind.weight, self.pre_feedforward_layernorm), (self.post_feedforward_layernorm.weight, second))
        (before, norm), (last, ending) = ways
        hidden, normed = add_norm(attended, hidden, before, norm.weight, epsilon, rounding)
        out = self.mlp(normed)
        out = out[0] if isinstance(out, tuple) else out
        hidden, ready = add_norm(out, hidden, last, ending.weight, epsilon, rounding)
        setattr(hidden, READY, (ending, ready))
        return hidden

    return subclass(layer, forward, KERNEL, use)
