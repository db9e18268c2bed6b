"""Drafts from a request's own text: no model is needed."""

from collections.abc import Sequence

from engine.decoding.ngrams import NgramIndex
from engine.scheduler.plan import Row


class NgramDrafter:
    """Proposes what followed when a branch's last tokens stood before in its prompt or answer."""

    def draft(self, rows: Sequence[Row], most: Sequence[int], least: float) -> list[list[int]]:
        return [self._propose(row, count) for row, count in zip(rows, most, strict=True)]

    def _propose(self, row: Row, most: int) -> list[int]:
        branch = row.branch
        if branch.drafting is None:
            branch.drafting = NgramIndex()
        index: NgramIndex = branch.drafting
        return index.propose(branch.tokens, most)
