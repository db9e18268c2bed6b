"""Builds a step's columns from its plan and outcome."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.scheduler import Committed, Scheduler
from engine.trace.records import Step, freeze

if TYPE_CHECKING:
    from engine.models.paged_runner import Launched, Results


def _column(values: Sequence[Any], dtype: type) -> np.ndarray[Any, Any]:
    return freeze(np.array(values, dtype))


def step_record(
    step: int,
    started: float,
    ended: float,
    launched: Launched | None,
    committed: Sequence[Committed],
    results: Results | None,
    scheduler: Scheduler,
) -> Step:
    """The record of one committed step; of none when `launched` is None, to tell which blocks went back meanwhile."""
    begun = time.perf_counter()
    changes = scheduler.take_changes()
    rows = launched.plan.rows if launched is not None else ()
    taken = changes.taken
    # Outcomes of sampling rows come in the order of `results`; a token of a finished request is not emitted.
    emitted: list[tuple[int, int, float]] = []
    alternatives: list[tuple[int, int, float]] = []
    at = 0
    for i, (row, outcome) in enumerate(zip(rows, committed, strict=True)):
        if not row.samples:
            continue
        assert results is not None
        if outcome.token >= 0:
            for k in range(row.branch.request.params.logprobs):
                alternatives.append((len(emitted), results.alternatives[at][k], results.alternative_logprobs[at][k]))
            emitted.append((i, outcome.token, results.logprobs[at]))
        at += 1
    seconds = dict(launched.seconds) if launched is not None else {}
    record = Step(
        step=step,
        started=started,
        ended=ended,
        request=_column([r.branch.request.id for r in rows], np.int32),
        branch=_column([r.branch.index for r in rows], np.int32),
        slot=_column([r.slot for r in rows], np.int32),
        first=_column([r.first for r in rows], np.int32),
        count=_column([r.count for r in rows], np.int32),
        kind=_column([r.kind for r in rows], np.uint8),
        wasted=_column([c.wasted for c in committed], np.int32),
        token_row=_column([e[0] for e in emitted], np.int32),
        token=_column([e[1] for e in emitted], np.int32),
        logprob=_column([e[2] for e in emitted], np.float32),
        text="".join(c.text for c in committed),
        text_end=freeze(np.cumsum([len(c.text) for c in committed], dtype=np.int32)),
        running=len(scheduler.running),
        waiting=scheduler.waiting_count,
        free_blocks=scheduler.pool.free,
        seconds=seconds,
        taken=_column([block for block, _ in taken], np.int32),
        taken_request=_column([request for _, request in taken], np.int32),
        freed=_column(changes.freed, np.int32),
        preempted=_column(changes.preempted, np.int32),
        refused=_column([r for r, _ in launched.plan.refused] if launched is not None else [], np.int32),
        refused_reason=tuple(str(reason) for _, reason in launched.plan.refused) if launched is not None else (),
        alt_token_index=_column([a[0] for a in alternatives], np.int32),
        alt_token=_column([a[1] for a in alternatives], np.int32),
        alt_logprob=_column([a[2] for a in alternatives], np.float32),
    )
    seconds["record"] = time.perf_counter() - begun
    return record
