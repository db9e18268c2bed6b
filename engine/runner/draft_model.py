"""Drafts what a smaller model says."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine.runner.launched_step import Clock, Results
from engine.runner.paged_cpu import PagedRunner
from engine.runner.runner import Runner
from engine.scheduler.plan import Row, StepPlan
from engine.scheduler.request import Branch
from engine.trace.records import Kind


class DraftModel:
    """A runner of its own, whose KV cache has the blocks of the model's: a branch's table serves both.

    It computes a branch's tokens when it first drafts for it, those of a shared prefix too, and afterwards what it has
    not seen. `Branch.drafting` is how many of its tokens' K and V are in the draft's cache; those of drafts that were
    not kept are written again. Tokens are drawn as the branch's own are, with the same noise at each position, so that
    two models that agree draw the same. `seconds` is what drafting took since it was asked last.
    """

    def __init__(self, runner: Runner, token_budget: int) -> None:
        self.runner, self._budget, self._seconds = runner, token_budget, 0.0
        runner.watches = False

    def take_seconds(self) -> float:
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def draft(self, rows: Sequence[Row], most: Sequence[int], least: float) -> list[list[int]]:
        """See `Drafter`. A token's chance is the product of the draft's own probabilities up to it."""
        begun = Clock()
        self.runner.forget_drawn()  # it may not have been kept
        drafted: list[list[int]] = [[] for _ in rows]
        chances, going = [1.0] * len(rows), list(range(len(rows)))
        while going:
            asked = [self._row(rows[i].branch, rows[i].slot, len(drafted[i])) for i in going]
            if not any(drafted):
                asked = self._catch_up(asked)
            results = self._step(asked)
            still = []
            for i, token, logprob in zip(going, results.tokens, results.logprobs, strict=True):
                branch = rows[i].branch
                branch.drafting = len(branch.tokens) + len(drafted[i])
                chances[i] *= math.exp(min(0.0, logprob)) if logprob == logprob else 0.0
                if chances[i] < least or token >= self._tokens:
                    continue
                drafted[i].append(token)
                if len(drafted[i]) < most[i]:
                    still.append(i)
            going = still
        self._seconds += Clock() - begun
        return drafted

    def _step(self, rows: Sequence[Row]) -> Results:
        if isinstance(self.runner, PagedRunner) and not any(row.branch.request.params.temperature for row in rows):
            chosen = self.runner.choose(rows)
            if chosen is not None:
                return chosen
        return self.runner.launch(StepPlan(tuple(rows))).read()

    @property
    def _tokens(self) -> int:
        return self.runner.model.card.vocabulary

    def _row(self, branch: Branch, slot: int, drafted: int) -> Row:
        """What the draft has not computed yet, once so many tokens are drafted."""
        length = len(branch.tokens)
        if drafted:
            return Row(branch, slot, length + drafted - 1, 1, Kind.DECODE, 1, True)
        first = min(branch.drafting or 0, branch.computed)
        kind = Kind.DECODE if first and length - first <= 2 else Kind.PREFILL
        return Row(branch, slot, first, length - first, kind, 1, False, joins=not first)

    def _catch_up(self, rows: Sequence[Row]) -> list[Row]:
        """Computes of long rows all but their last parts, within the token budget of a step; returns what is left."""
        left = list(rows)
        room = max(1, self._budget // len(rows))
        while long := [i for i, row in enumerate(left) if row.count > room]:
            parts = [left[i] for i in long]
            cut = [Row(row.branch, row.slot, row.first, room, row.kind, 0, False, joins=row.joins) for row in parts]
            self.runner.launch(StepPlan(tuple(cut))).read()
            for i, row in zip(long, parts):
                left[i] = Row(row.branch, row.slot, row.first + room, row.count - room, row.kind, 1, False)
        return left
