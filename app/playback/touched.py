"""Whom records concern."""

from __future__ import annotations

from collections.abc import Iterable

from engine.trace import Ended, Record, Step


def touched_by(records: Iterable[Record]) -> set[int]:
    """The requests that have new words or another state."""
    touched: set[int] = set()
    for record in records:
        if isinstance(record, Step):
            touched.update(record.request.tolist())
            touched.update(record.preempted.tolist())
        elif isinstance(record, Ended):
            touched.add(record.request)
    return touched
