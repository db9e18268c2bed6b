"""What the requests of each priority waited, where these differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.trace.measures.spread import Spread
from engine.trace.records import Array, Submitted


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """The `requests` of one priority, with the `label` that all of them have, or ""."""

    priority: int
    label: str
    requests: int
    ttft: Spread
    e2e: Spread

    @property
    def name(self) -> str:
        return self.label or f"priority {self.priority}"


def priority_classes(
    submitted: Sequence[Submitted], request: Array, ttft: Array, e2e: Array
) -> tuple[PriorityClass, ...]:
    """Of requests of more priorities than one, the lowest number first. `request` are their ids, `ttft` and `e2e` their
    seconds, NaN where one did not get that far."""
    told = {record.request: record for record in submitted}
    each = np.array([told[number].params.priority for number in request.tolist()], np.int64)
    found = []
    for priority in np.unique(each).tolist():
        chosen = each == priority
        labels = {told[number].label for number in request[chosen].tolist()}
        spreads = (Spread.of(values[chosen & np.isfinite(values)]) for values in (ttft, e2e))
        found.append(PriorityClass(priority, labels.pop() if len(labels) == 1 else "", int(chosen.sum()), *spreads))
    return tuple(found) if len(found) > 1 else ()
