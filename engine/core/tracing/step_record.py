"""Builds the records of a step, from its plan and outcome, and of a branch's end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.scheduler.plan import Changes, Committed, Row
from engine.scheduler.request import Branch, Emission
from engine.scheduler.scheduler import Scheduler
from engine.trace.records import EMPTY, Ended, FinishReason, Step, freeze

if TYPE_CHECKING:
    from engine.runner.launched_step import LaunchedStep


Columns = dict[str, Any]
OF_ROW = {  # where a `Row` has a column's values
    "request": "branch.request.id",
    "branch": "branch.index",
    **{name: name for name in ("slot", "first", "count", "kind", "padding", "reused")},
}
_ROW = attrgetter(*OF_ROW.values())
OF_EVENT = {  # as `BlockChange` and `SwapChange` have them
    "block": ("block_event", "block", "block_request", "block_branch", "block_place"),
    "swap": ("swap_event", "swap_host", "swap_block", "swap_request", "swap_branch", "swap_place"),
}


def _column(values: Sequence[Any], dtype: type) -> np.ndarray[Any, Any]:
    if not values:
        return EMPTY[dtype]
    return freeze(np.fromiter(values, dtype, len(values)))  # of enums twice as fast as np.array


def _columns(names: Iterable[str], rows: Iterable[Sequence[int]], count: int) -> Columns:
    """The named int32 columns of so many rows: all at once in a third of the time that they take one by one."""
    names = tuple(names)
    flat = np.fromiter(chain.from_iterable(rows), np.int32, count * len(names))
    return dict(zip(names, freeze(flat.reshape(count, len(names)).T.copy())))


def ended_record(branch: Branch, now: float, beside: bool = False) -> Ended:
    """The record of a branch that is over."""
    assert branch.reason is not None
    cut_short = branch.reason in (FinishReason.CANCELLED, FinishReason.ERROR)
    parts = [e.text for e in branch.withheld]
    tail = "".join(parts) + (branch.output.flush() if cut_short else "")
    token = _column([e.token for e in branch.withheld], np.int32)
    logprob = _column([e.logprob for e in branch.withheld], np.float32)
    ends = freeze(np.cumsum([len(part) for part in parts], dtype=np.int32))
    score = branch.beam.score if branch.beam is not None else None
    return Ended(now, branch.request.id, branch.reason, tail, branch.error, branch.index, token, logprob, ends, score)


class NotedStep:
    """One committed step with what its record says of the scheduler, which plans the next before the record is made;
    one without rows tells which blocks went back meanwhile. `piece` is a token's text by itself."""

    def __init__(
        self,
        step: int,
        started: float,
        ended: float,
        launched: LaunchedStep,
        committed: Sequence[Committed],
        scheduler: Scheduler,
        piece: Callable[[int], str],
    ) -> None:
        begun = time.perf_counter()
        self._step, self._started, self._ended = step, started, ended
        self._launched, self._committed, self._piece = launched, committed, piece
        ledger, pool = scheduler.ledger, scheduler.ledger.pool
        self._changes, self._kv = ledger.take_changes(), scheduler.kv_use(launched.plan.refused)
        self._counts = len(ledger.running), ledger.waiting_count, pool.free, pool.cached
        self._seconds = time.perf_counter() - begun

    def record(self, beside: bool = False) -> Step:
        """`beside`: while another step computes, whose time then is not this one's."""
        begun = time.perf_counter()
        launched, committed, piece, changes, kv = self._launched, self._committed, self._piece, self._changes, self._kv
        rows, refused = launched.plan.rows, launched.plan.refused
        running, waiting, free, cached = self._counts
        emitted = [(i, emission) for i, outcome in enumerate(committed) for emission in outcome.emitted]
        texts = [emission.text for _, emission in emitted]
        seconds = dict(launched.seconds)
        of_row = _columns(OF_ROW, map(_ROW, rows), len(rows))
        of_row["kind"] = freeze(of_row["kind"].astype(np.uint8))
        record = Step(
            step=self._step,
            started=self._started,
            ended=self._ended,
            **of_row,
            wasted=_column([c.wasted for c in committed], np.int32),
            token_row=_column([row for row, _ in emitted], np.int32),
            token=_column([e.token for _, e in emitted], np.int32),
            logprob=_column([e.logprob for _, e in emitted], np.float32),
            text="".join(texts),
            text_end=freeze(np.cumsum([len(text) for text in texts], dtype=np.int32)),
            running=running,
            waiting=waiting,
            free_blocks=free,
            cached_blocks=cached,
            seconds=seconds,
            **_changes(changes),
            refused=_column([r for r, _ in refused], np.int32),
            refused_reason=tuple(str(reason) for _, reason in refused),
            kv_used=kv.used,
            kv_reserved=kv.reserved,
            kv_internal=kv.internal,
            kv_external=kv.external,
            attention=launched.attention,
            graph=launched.graph,
            beside=launched.beside,
            device=launched.device,
            swapping=launched.swapping,
            **_drafts(rows, committed, piece),
            **_forgotten(rows),
            **_beside([emission for _, emission in emitted], piece),
            **_beams(changes, piece),
            **_ranks(launched),
            kernel=EMPTY[np.float32] if launched.kernels is None else freeze(launched.kernels.astype(np.float32)),
            expert=EMPTY[np.int32] if launched.experts is None else freeze(launched.experts.ravel()),
        )
        seconds["record"] = self._seconds + (0.0 if beside else time.perf_counter() - begun)
        return record


# What few steps have: no columns where there is nothing.


def _drafts(rows: Sequence[Row], committed: Sequence[Committed], piece: Callable[[int], str]) -> Columns:
    drafts = [token for row in rows if row.drafted for token in row.drafted]
    if not drafts:
        return {}
    return {
        "drafted": _column([len(row.drafted) for row in rows], np.int32),
        "accepted": _column([c.accepted for c in committed], np.int32),
        "draft_token": _column(drafts, np.int32),
        "draft_text": tuple(map(piece, drafts)),
    }


def _forgotten(rows: Sequence[Row]) -> Columns:
    forgotten = [row.forgotten for row in rows]
    return {"forgotten": _column(forgotten, np.int32)} if any(forgotten) else {}


def _beside(emitted: Sequence[Emission], piece: Callable[[int], str]) -> Columns:
    """Beside emitted tokens: alternatives, what grammars allowed and forbade, what the tokens attended to."""
    found: Columns = {}
    alternatives = [(i, *a) for i, emission in enumerate(emitted) for a in emission.alternatives]
    if alternatives:
        found |= _told("alt", alternatives, piece)
    counts = [emission.allowed for emission in emitted]
    if counts and max(counts) >= 0:
        found["allowed_token_index"] = _column([i for i, count in enumerate(counts) if count >= 0], np.int32)
        found["allowed"] = _column([count for count in counts if count >= 0], np.int32)
        found |= _told("rather", [(i, *e.rather) for i, e in enumerate(emitted) if e.rather is not None], piece)
    watched = [(i, emission.attention) for i, emission in enumerate(emitted) if emission.attention is not None]
    if watched:
        found["attended_token_index"] = _column([i for i, _ in watched], np.int32)
        found["attended_context"] = _column([told.shape[-1] for _, told in watched], np.int32)
        found["attended_end"] = freeze(np.cumsum([told.size for _, told in watched], dtype=np.int64))
        found["attended"] = freeze(np.concatenate([told.ravel() for _, told in watched]))
    return found


def _told(name: str, tokens: Sequence[tuple[int, int, float]], piece: Callable[[int], str]) -> Columns:
    """Tokens that were not drawn: beside which that was, and their log-probability."""
    return {
        f"{name}_token_index": _column([index for index, _, _ in tokens], np.int32),
        f"{name}_token": _column([token for _, token, _ in tokens], np.int32),
        f"{name}_logprob": _column([logprob for _, _, logprob in tokens], np.float32),
        f"{name}_text": tuple(piece(token) for _, token, _ in tokens),
    }


def _beams(changes: Changes, piece: Callable[[int], str]) -> Columns:
    weighed = changes.weighed
    if not weighed:
        return {}
    return {
        "beam_request": _column([request for request, _ in weighed], np.int32),
        "beam_parent": _column([one.parent for _, one in weighed], np.int32),
        "beam_branch": _column([one.place for _, one in weighed], np.int32),
        "beam_token": _column([one.path.token for _, one in weighed], np.int32),
        "beam_score": _column([one.path.total for _, one in weighed], np.float32),
        "beam_fate": _column([one.fate for _, one in weighed], np.uint8),
        "beam_text": tuple(piece(one.path.token) for _, one in weighed),
    }


def _ranks(launched: LaunchedStep) -> Columns:
    times = launched.times(launched.number) if launched.times is not None else None
    if times is None:
        return {}
    spent = {
        "rank_computing": times.computing,
        "rank_communicating": times.communicating,
        "rank_waiting": times.waiting,
    }
    if times.micro_begun:
        spent["micro_begun"] = [at - launched.started for at in times.micro_begun]
        spent["micro_ended"] = [at - launched.started for at in times.micro_ended]
    return {name: _column(seconds, np.float32) for name, seconds in spent.items()} | {
        "rank_bytes": _column(times.sent, np.int64)
    }


def _changes(changes: Changes) -> Columns:
    """What happened to blocks and branches."""
    found: Columns = {}
    for prefix, events in (("block", changes.blocks), ("swap", changes.swaps)):
        if events:
            found |= _columns(OF_EVENT[prefix], events, len(events))
            found[f"{prefix}_event"] = freeze(found[f"{prefix}_event"].astype(np.uint8))
    if changes.copied:
        found |= _columns(("copied", "copied_to"), changes.copied, len(changes.copied))
    if changes.preempted:
        found |= _columns(("preempted", "preempted_branch"), changes.preempted, len(changes.preempted))
    return found
