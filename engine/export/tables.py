"""A run as tables: a row a sample of a request, a row a step, a row a measure. Columns are what `Table` holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.export.source import NamedRun, Source
from engine.trace import MEASURES, Kind, RequestView, SampleView, Step, Trace, measure

PHASES = ("plan", "draft", "prepare", "forward", "sample", "wait", "commit", "record")
Columns = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Table:
    """Columns of one length by name: numbers, texts, None where there is nothing. Times are seconds from the first
    request on."""

    name: str
    columns: Columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def rows(self) -> Sequence[tuple[Any, ...]]:
        return list(zip(*self.columns.values()))


def requests_table(trace: Trace) -> Columns:
    """A row a sample: times, tokens, how it ended, what it said. `ttft` = first token − submitted, `e2e` = last token −
    submitted, `tpot` = (last − first token) / (tokens − 1); `queued` = until the first step with a row of the request.
    `score`: of a beam search's result."""
    origin = trace.origin or 0.0
    return _columns(REQUESTS, [(view, sample, origin) for view in trace.requests.values() for sample in view.samples])


Of = tuple[RequestView, SampleView, float]


def _since(moment: float | None, origin: float) -> float | None:
    return None if moment is None else moment - origin


def _first(of: Of) -> float | None:
    return of[1].token_times[0] if of[1].token_times else None


def _last(of: Of) -> float | None:
    return of[1].token_times[-1] if of[1].token_times else None


def _tpot(of: Of) -> float | None:
    times = of[1].token_times
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None


def _prompt(of: Of) -> str:
    return _whole(of[0].messages[-1]["content"] if of[0].messages else of[0].prompt)


def _whole(text: str) -> str:
    """Half a character, which no file can hold, becomes a question mark."""
    return text.encode(errors="replace").decode()


REQUESTS: dict[str, Callable[[Of], Any]] = {
    "request": lambda of: of[0].request,
    "sample": lambda of: of[1].branch,
    "label": lambda of: _whole(of[0].label),
    "adapter": lambda of: _whole(of[0].params.adapter) or None,
    "state": lambda of: str(of[1].state),
    "finish_reason": lambda of: str(of[1].reason) if of[1].reason is not None else None,
    "error": lambda of: _whole(of[1].error) or None,
    "submitted": lambda of: of[0].submitted - of[2],
    "scheduled": lambda of: _since(of[0].scheduled, of[2]),
    "first_token": lambda of: _since(_first(of), of[2]),
    "last_token": lambda of: _since(_last(of), of[2]),
    "ended": lambda of: _since(of[1].ended, of[2]),
    "queued": lambda of: _since(of[0].scheduled, of[0].submitted),
    "ttft": lambda of: _since(_first(of), of[0].submitted),
    "tpot": _tpot,
    "e2e": lambda of: _since(_last(of), of[0].submitted),
    "prompt_tokens": lambda of: len(of[0].prompt_ids),
    "output_tokens": lambda of: len(of[1].tokens),
    "reused_tokens": lambda of: of[1].reused,
    "drafted_kept": lambda of: sum(of[1].drafted),
    "preemptions": lambda of: of[0].preemptions,
    "mean_logprob": lambda of: sum(of[1].logprobs) / len(of[1].logprobs) if of[1].logprobs else None,
    "score": lambda of: of[1].score,
    "max_tokens": lambda of: of[0].params.max_tokens,
    "temperature": lambda of: of[0].params.temperature,
    "prompt": _prompt,
    "text": lambda of: _whole(of[1].text),
}


def steps_table(trace: Trace) -> Columns:
    """A row a step: when, how many rows and tokens of each kind, the queue, KV blocks and tokens, seconds a phase."""
    origin = trace.origin or 0.0
    records = (record for record in trace.records if isinstance(record, Step))
    rows = [_step(step, origin) for step in records]
    return {name: list(column) for name, column in zip(STEPS, zip(*rows))} if rows else {name: [] for name in STEPS}


STEPS = (
    *"""
    step started ended seconds rows prefill_rows decode_rows held_rows tokens wasted padding reused emitted drafted
    accepted running waiting preempted refused free_blocks cached_blocks kv_used kv_reserved kv_internal kv_external
    graph device attention swapping
    """.split(),
    *PHASES,
)


def _step(step: Step, origin: float) -> tuple[Any, ...]:
    prefill, decode, held = np.bincount(step.kind, minlength=len(Kind)).tolist()
    of_rows = (step.count, step.wasted, step.padding, step.reused, step.drafted, step.accepted)
    tokens, wasted, padding, reused, drafted, accepted = (int(np.sum(column)) for column in of_rows)
    return (
        *(step.step, step.started - origin, step.ended - origin, step.ended - step.started),
        *(step.rows, prefill, decode, held),
        *(tokens, wasted, padding, reused, len(step.token), drafted, accepted),
        *(step.running, step.waiting, len(step.preempted), len(step.refused)),
        *(step.free_blocks, step.cached_blocks, step.kv_used, step.kv_reserved, step.kv_internal, step.kv_external),
        *(step.graph, step.device, step.attention, step.swapping),
        *(step.seconds.get(phase, 0.0) for phase in PHASES),
    )


def metrics_table(trace: Trace) -> Columns:
    """A row a measure that the run has: its key, name, value, unit, which way is better, formula."""
    metrics = measure(trace)
    told = [(m, value) for m in MEASURES.values() if (value := m.read(metrics)) is not None]
    columns: Columns = {name: [getattr(m, name) for m, _ in told] for name in ("key", "name")}
    columns["value"] = [value for _, value in told]
    return columns | {name: [getattr(m, name) for m, _ in told] for name in ("unit", "better", "group", "formula")}


TABLES: dict[str, Callable[[Trace], Columns]] = {
    "requests": requests_table,
    "steps": steps_table,
    "metrics": metrics_table,
}


def table(source: Source, what: str) -> Table:
    """One of `TABLES`; of several runs, of all of them, whose lane and repeat stand before."""
    if source.alone:
        return Table(what, TABLES[what](source.runs[0].trace))
    parts = [_of_lane(source, run, TABLES[what](run.trace)) for run in source.runs]
    return Table(what, {name: [value for part in parts for value in part[name]] for name in parts[0]})


def _of_lane(source: Source, run: NamedRun, columns: Columns) -> Columns:
    size = len(next(iter(columns.values())))
    told: Columns = {"lane": [source.names[run.lane]] * size, "repeat": [run.repeat] * size}
    return told | columns


def _columns(of: dict[str, Callable[[Any], Any]], things: Sequence[Any]) -> Columns:
    return {name: [read(thing) for thing in things] for name, read in of.items()}
