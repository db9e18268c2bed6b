"""How many of a mixture's experts a run's decode steps read."""

import numpy as np

from engine.trace.records import Kind, ModelCard
from engine.trace.trace import Trace
from engine.trace.work import activated


def asked_share(card: ModelCard, trace: Trace, batch: int) -> float:
    """The share of all experts that a decode step of so many rows is told, or else likely, to ask; 1 of a model that
    has none."""
    if not card.experts:
        return 1.0
    steps = [step for step in trace.steps if step.rows == batch and (step.kind == Kind.DECODE).all()]
    return float(np.mean(activated(card.active_experts / card.experts, steps, np.full(len(steps), batch))))
