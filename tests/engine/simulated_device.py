"""The scheduler's world without tensors: a device that remembers tokens where K and V would lie.

A token it samples is a function of *all* the tokens that a row can read through its blocks, so a block given away too
early, a position computed twice or never, or a token fed to the wrong row gives other tokens than the request alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from engine.blocks import BlockPool
from engine.config import EngineConfig, SamplingParams
from engine.decoding.output import Output
from engine.request import Branch, Request
from engine.scheduler import Row, Scheduler, StepPlan
from engine.step_record import step_record
from engine.trace.records import FinishReason, Kind, Step

VOCABULARY = 1000
END = 0
_UNWRITTEN = -7


def next_token(context: Sequence[int]) -> int:
    """The simulated model: any token but the end, which comes where the context says so."""
    value = 17
    for token in context:
        value = (value * 1_000_003 + token + 1) % 2_147_483_647
    return END if value % 23 == 0 else 1 + value % (VOCABULARY - 1)


def alone(prompt: Sequence[int], limit: int, ignore_eos: bool = False) -> list[int]:
    """What the simulated model says to a prompt by itself."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + limit:
        tokens.append(next_token(tokens))
        if tokens[-1] == END and not ignore_eos:
            break
    return tokens[len(prompt) :]


class Letters:
    """A detokenizer: one letter a token."""

    def push(self, token: int) -> str:
        return chr(ord("a") + token % 26)

    def flush(self) -> str:
        return ""


@dataclass
class Simulation:
    """Engine.step over the simulated device, one call at a time. `records` are the steps' real records."""

    config: EngineConfig
    blocks: int
    depth: int = 0
    records: list[Step] = field(default_factory=list)
    plans: list[StepPlan] = field(default_factory=list)
    ended: dict[int, Request] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pool = BlockPool(self.blocks, self.config.block_size)
        self.scheduler = Scheduler(self.config, self.pool)
        self.in_flight: deque[tuple[StepPlan, list[int]]] = deque()
        self.requests: list[Request] = []
        self._cache = [_UNWRITTEN] * (self.blocks * self.config.block_size)
        self._last_token = [_UNWRITTEN] * self.config.max_running

    @property
    def room(self) -> int:
        return self.blocks * self.config.block_size

    def add(self, prompt: Sequence[int], max_tokens: int, ignore_eos: bool = False) -> Request:
        """A request that fits the pool: its limit is cut to what there is room for."""
        limit = min(max_tokens, self.room + 1 - len(prompt))
        assert limit > 0
        params = SamplingParams(max_tokens=max_tokens, ignore_eos=ignore_eos, temperature=0)
        request = Request(len(self.requests), len(prompt), params, limit, 0)
        output = Output(Letters(), params, frozenset({END}), limit)
        request.branches.append(Branch(request, list(prompt), output))
        self.requests.append(request)
        self.texts[request.id] = ""
        self.scheduler.add(request)
        return request

    def cancel(self, request: Request) -> None:
        if not request.finished:
            self.scheduler.finish(request, FinishReason.CANCELLED)

    def step(self, fails: bool = False) -> bool:
        """One turn of the engine's loop; False when there was nothing to do. `fails`: the launch raises."""
        plan = self.scheduler.plan()
        if plan is not None:
            self.plans.append(plan)
            if fails:
                self.scheduler.abandon(plan, "the step failed")
            else:
                self.in_flight.append((plan, self._launch(plan)))
        did = plan is not None
        if self.in_flight and (plan is None or len(self.in_flight) > self.depth):
            self._commit(*self.in_flight.popleft())
            did = True
        elif plan is None and self.scheduler.has_changes:
            self._record(None, [], None)
        for request in self.scheduler.take_ended():
            assert request.id not in self.ended, "a request ends once"
            self.ended[request.id] = request
        return did

    def finish(self, most: int = 100_000) -> None:
        """Steps until nothing is left to do."""
        for _ in range(most):
            if not self.step() and self.scheduler.idle:
                return
        raise AssertionError(f"not idle after {most} steps: {self.scheduler.running}")

    def _launch(self, plan: StepPlan) -> list[int]:
        sampled = []
        for row in plan.rows:
            tokens = [self._last_token[row.slot]] if row.fed else self._tokens(row)
            assert len(tokens) == row.count
            for position, token in enumerate(tokens, row.first):
                self._cache[self._place(row.branch, position)] = token
            if row.samples:
                context = [self._cache[self._place(row.branch, p)] for p in range(row.first + row.count)]
                self._last_token[row.slot] = next_token(context)
                sampled.append(self._last_token[row.slot])
        return sampled

    def _tokens(self, row: Row) -> list[int]:
        return row.branch.tokens[row.first : row.first + row.count]

    def _place(self, branch: Branch, position: int) -> int:
        size = self.config.block_size
        return branch.blocks[position // size] * size + position % size

    def _commit(self, plan: StepPlan, sampled: list[int]) -> None:
        committed = self.scheduler.commit(plan, sampled)
        for row, outcome in zip(plan.rows, committed):
            self.texts[row.branch.request.id] += outcome.text
        self._record(plan, committed, sampled)

    def _record(self, plan: StepPlan | None, committed: Any, sampled: list[int] | None) -> None:
        launched: Any = None if plan is None else SimpleNamespace(plan=plan, seconds={})
        results: Any = None if sampled is None else SimpleNamespace(tokens=sampled, logprobs=[0.0] * len(sampled))
        self.records.append(
            step_record(len(self.records), 0.0, 0.0, launched, committed, results, self.scheduler),
        )

    # What must hold after every step.

    def check(self) -> None:
        pool, running = self.pool, self.scheduler.running
        assert pool.free + pool.owned == pool.total
        held = [block for branch in running for block in branch.blocks]
        assert len(held) == len(set(held)) == pool.owned
        assert all(pool.references(b) == (b in set(held)) for b in range(pool.total))
        slots = [branch.slot for branch in running]
        assert len(slots) == len(set(slots)) <= self.config.max_running
        assert all(0 <= slot < self.config.max_running for slot in slots)
        in_flight = [row.branch for plan, _ in self.in_flight for row in plan.rows]
        for branch in running:
            assert branch.steps == in_flight.count(branch)
            assert branch.computed <= len(branch.blocks) * self.config.block_size
            assert not branch.request.finished or branch.steps > 0, "blocks go back at the step's border"
        waiting = [r for r in self.scheduler.requests.values() if r.branch.slot < 0]
        assert self.scheduler.waiting_count == len(waiting)
        if self.plans:
            plan = self.plans[-1]
            assert sum(row.count for row in plan.rows) <= self.config.token_budget
            assert len({row.kind for row in plan.rows}) == 1, "prefills and decodes have steps of their own"
            assert all(row.kind is Kind.PREFILL or row.count == 1 for row in plan.rows)

    def check_idle(self) -> None:
        assert self.pool.free == self.pool.total
        assert not any(self.pool.references(b) for b in range(self.pool.total))
        assert not self.scheduler.running
        assert self.scheduler.waiting_count == 0
        assert len(self.ended) == len(self.requests)
        assert not self.scheduler.has_changes

    def owners(self) -> dict[int, int]:
        """Who owns which block by the records alone."""
        owners: dict[int, int] = {}
        for record in self.records:
            for block, request in zip(record.taken.tolist(), record.taken_request.tolist()):
                owners[block] = request
            for block in record.freed.tolist():
                owners.pop(block, None)  # a block of a step that failed is taken and freed between two records
            assert record.free_blocks == self.pool.total - len(owners), "the records tell of every block"
        return owners
