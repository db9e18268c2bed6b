"""What drafts bought: the time that their tokens would have taken without, beside the time that they took."""

from collections.abc import Iterable

import numpy as np

from engine.trace.records import Kind, Step


def draft_speedup(steps: Iterable[Step]) -> float | None:
    """Over the steps without prompts that verified drafts: the time of as many tokens at one a row and step, over the
    time of those steps and of drafting. None where a run cannot tell.

    What a step costs without drafts is read off the line through all steps without prompts, their time without
    drafting against their tokens; at each number of tokens the median counts, as often as there were steps.
    """
    tokens, seconds, verified = list[int](), list[float](), list[tuple[int, int, float]]()
    for step in steps:
        if not step.rows or (step.kind != Kind.DECODE).any():
            continue
        spent = sum(step.seconds.values())
        tokens.append(int(step.own.count.sum()))
        seconds.append(spent - step.seconds.get("draft", 0.0))
        if step.drafted.any():
            verified.append((step.rows, len(step.token), spent))
    sizes, which = np.unique(tokens, return_inverse=True)
    if not verified or len(sizes) < 2:
        return None
    medians = np.array([np.median(np.array(seconds)[which == i]) for i in range(len(sizes))])
    token, base = np.polyfit(sizes, medians, 1, w=np.sqrt(np.bincount(which)))
    without = sum(emitted / rows * (base + token * rows) for rows, emitted, _ in verified)
    return float(without / sum(spent for *_, spent in verified)) if without > 0 else None
