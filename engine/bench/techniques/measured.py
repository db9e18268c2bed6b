"""One technique beside the run without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured with and without a technique, in turns, as medians; `ratio` is the median of the rounds'
    ratios. `what` names the measure with its unit; `goal` is a ratio, reached from below where `at_most`. `note` says
    what else is to be known, such as an acceptance rate."""

    technique: str
    workload: str
    what: str
    without: float
    with_it: float
    ratio: float
    goal: float
    at_most: bool = False
    note: str = ""

    @property
    def reached(self) -> bool:
        return self.ratio <= self.goal if self.at_most else self.ratio >= self.goal


def table(found: Sequence[Measured]) -> str:
    """All of them as Markdown."""
    lines = [
        "| technique | workload | measure | without | with | ratio | goal | |",
        "|---|---|---|--:|--:|--:|--:|---|",
    ]
    for one in found:
        goal = f"{'≤' if one.at_most else '≥'} {one.goal:g}{'' if one.reached else ' (not reached)'}"
        cells = [one.technique, one.workload, one.what, _figure(one.without), _figure(one.with_it)]
        lines.append(f"| {' | '.join([*cells, f'× {one.ratio:.2f}', goal, one.note])} |")
    return "\n".join(lines)


def _figure(value: float) -> str:
    """Four digits that count, or as many as a whole number has."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
