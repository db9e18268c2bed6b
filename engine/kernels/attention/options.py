"""What a layer asks of attention."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(slots=True)  # made anew for every layer and step
class Options:
    """`scale` of the scores; a query at position p sees the keys in `(p - window, p]`; scores become softcap *
    tanh(score / softcap), after the scale; `sinks` `[heads]`, one more logit each in the softmax's denominator, with no
    value, neither scaled nor capped."""

    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: Tensor | None = None
