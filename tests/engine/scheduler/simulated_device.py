"""The scheduler's world without tensors: a device that remembers tokens where K and V would lie.

A token it samples is a function of *all* the tokens that a row can read through its blocks, so a block given away too
early, a position computed twice or never, or a token fed to the wrong row gives other tokens than the request alone.
"""

import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from engine.config.sampling_params import SamplingParams
from engine.config.specs import EngineConfig
from engine.core.tracing.step_record import NotedStep
from engine.decoding.beams import BeamSearch
from engine.decoding.beams.path import Ranked
from engine.decoding.output import Output
from engine.runner.launched_step import LaunchedStep
from engine.scheduler import beams
from engine.scheduler.block_pool import BlockPool
from engine.scheduler.host_memory import HostPool, SwapCost
from engine.scheduler.kv_window import KvWindow
from engine.scheduler.plan import Committed, Row, StepPlan
from engine.scheduler.prompt_scores import PromptScores
from engine.scheduler.request import Branch, Emission, Request
from engine.scheduler.scheduler import Scheduler
from engine.trace.records import FinishReason, Kind, Step
from tests.engine.scheduler.told_blocks import ToldBlocks

VOCABULARY = 1000
END = 0
PLAIN = EngineConfig()
_UNWRITTEN = -7


def next_token(context: Sequence[int]) -> int:
    """The simulated model: any token but the end, which comes where the context says so."""
    value = 17
    for token in context:
        value = (value * 1_000_003 + token + 1) % 2_147_483_647
    return END if value % 23 == 0 else 1 + value % (VOCABULARY - 1)


def seen(config: EngineConfig, prompt: int, at: int) -> list[int]:
    """The positions that the token at a position sees after a prompt of so many tokens, said one by one."""
    size, window = config.block_size, config.kv_window
    if window is None or at // size <= prompt // size:
        return list(range(at + 1))
    sinks, recent = -(-config.kv_sinks // size), -(-window // size)
    return [p for p in range(at + 1) if p // size < sinks or p // size >= at // size - recent]


def alone(prompt: Sequence[int], limit: int, ignore_eos: bool = False, config: EngineConfig = PLAIN) -> list[int]:
    """What the simulated model says to a prompt by itself."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + limit:
        tokens.append(next_token([tokens[p] for p in seen(config, len(prompt), len(tokens) - 1)]))
        if tokens[-1] == END and not ignore_eos:
            break
    return tokens[len(prompt) :]


def ranked(context: Sequence[int], count: int) -> Ranked:
    """What the simulated model holds for likely: so many tokens with log-probabilities."""
    tokens = dict.fromkeys(next_token([*context, i]) for i in range(3 * count))
    likely = -1.0 - (next_token(context) % 7) / 10
    return tuple((token, likely * (i + 1)) for i, token in enumerate(tokens))[:count]


def search(request: Request) -> BeamSearch:
    """A search of its width over the simulated model, which has yet to begin."""
    ends = frozenset() if request.params.ignore_eos else frozenset({END})
    rules = request.params.beam_width, request.params.length_penalty, request.params.early_stopping, request.limit
    return BeamSearch(*rules, lambda path: path.token in ends or path.length >= request.limit, len(ends))


def alone_in_beams(request: Request, prompt: Sequence[int]) -> list[list[int]]:
    """What a search finds after a prompt by itself, best first."""
    found = search(request)
    while not found.over:
        contexts = {place: [*prompt, *path.tokens] for place, path in found.live.items()}
        found.advance({place: ranked(context, found.candidates) for place, context in contexts.items()})
    return [path.tokens for path in found.best()]


class Letters:
    """A detokenizer: one letter a token."""

    def push(self, token: int) -> str:
        return chr(ord("a") + token % 26)

    def flush(self) -> str:
        return ""


class ErringDrafter:
    """Proposes what the simulated model will say, and errs at every so many tokens; sometimes it has less to say."""

    def __init__(self, errs_every: int, config: EngineConfig) -> None:
        self._errs_every, self._proposed, self._config = errs_every, 0, config

    def draft(self, rows: Sequence[Row], most: Sequence[int], least: float) -> list[list[int]]:
        return [self._propose(row, count) for row, count in zip(rows, most, strict=True)]

    def _propose(self, row: Row, most: int) -> list[int]:
        assert row.first == len(row.branch.tokens) - 1
        known, drafted = list(row.branch.tokens), list[int]()
        while len(drafted) < most - (self._proposed % 5 == 0):
            self._proposed += 1
            wrong = self._proposed % self._errs_every == 0
            prompt = row.branch.request.prompt_length
            said = next_token([known[p] for p in seen(self._config, prompt, len(known) - 1)])
            known.append(said + wrong)
            drafted.append(known[-1])
        return drafted


@dataclass
class Simulation:
    """Engine.step over the simulated device, one call at a time. `records` are the steps' real records. A step of more
    than `memory` tokens, padding included, or rows runs out of memory."""

    config: EngineConfig
    blocks: int
    depth: int = 0
    memory: tuple[int, int] = (sys.maxsize, sys.maxsize)
    errs_every: int = 0  # of the drafter, if there is one
    hosts: int = 0
    cost: SwapCost | None = None
    short: int = 0
    records: list[Step] = field(default_factory=list)
    plans: list[StepPlan] = field(default_factory=list)
    ended: set[Branch] = field(default_factory=set)
    texts: dict[Branch, str] = field(default_factory=dict)
    told: ToldBlocks = field(default_factory=ToldBlocks)
    scored: Counter[tuple[int, int]] = field(default_factory=Counter)  # how often each prompt's positions were told of
    seconds: Callable[[int], float] = lambda tokens: 0.001 + 0.0001 * tokens  # that a step of so many tokens takes
    clock: float = 0.0
    emitted: dict[Branch, list[float]] = field(default_factory=dict)  # when, by the clock

    def __post_init__(self) -> None:
        self.pool = BlockPool(self.blocks, self.config.block_size)
        self.drafter = ErringDrafter(self.errs_every, self.config) if self.errs_every else None
        self.host = HostPool(self.hosts, self.config.block_size)
        self.scheduler = Scheduler(self.config, self.pool, self.drafter, self.host, self.cost)
        self.in_flight: deque[tuple[StepPlan, list[Emission]]] = deque()
        self.requests: list[Request] = []
        self._cache = [_UNWRITTEN] * (self.blocks * self.config.block_size)
        self._host = [_UNWRITTEN] * (self.hosts * self.config.block_size)
        self._saw, self._host_saw = self._cache[:], self._host[:]  # how many tokens each could see as it was written
        self.window = KvWindow.of(self.config)
        self.told.forgets = self.window is not None
        self._strips: dict[Branch, list[int]] = {}
        self._late = 0  # steps after which the prefill worker is done
        self._last_token = [_UNWRITTEN] * self.config.max_running

    @property
    def room(self) -> int:
        return self.blocks * self.config.block_size

    def add(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        ignore_eos: bool = False,
        n: int = 1,
        width: int = 1,
        scored: bool = False,
        priority: int = 0,
        label: str = "",
    ) -> Request:
        """A request that fits the pool: its limit is cut to what there is room for, and so is its width in beams.
        `scored`: it asks how likely its prompt is, where it does not search."""
        limit = min(max_tokens, self.room + 1 - len(prompt))
        assert limit > 0
        if self.window is not None:
            width = 1
            fits = self.window.most(len(prompt), len(prompt) + max_tokens - 1) <= self.blocks
            limit = max_tokens if fits else limit
        width = min(width, self.config.slots)
        params = SamplingParams(
            max_tokens=max_tokens,
            ignore_eos=ignore_eos,
            temperature=0,
            n=1 if width > 1 else n,
            beam_width=width,
            priority=priority,
        )
        request = Request(len(self.requests), len(prompt), params, limit, 0, label=label)
        for index in range(params.branches):
            output = Output(Letters(), params, frozenset({END}), limit)
            request.branches.append(Branch(request, list(prompt), output, index))
        if width > 1:
            beams.begin(request, search(request))
            if beams.most_blocks(request, self.config.block_size) > self.blocks:
                return self.add(prompt, max_tokens, ignore_eos, n, width - 1, scored, priority, label)
        elif scored:
            request.scores = PromptScores(prompt, 0, VOCABULARY)
            request.scores.most = 5
        self.requests.append(request)
        self.texts |= dict.fromkeys(request.branches, "")
        self.scheduler.add(request)
        return request

    def cancel(self, request: Request) -> None:
        if not request.finished:
            self.scheduler.finish(request, FinishReason.CANCELLED)

    def step(self, fails: bool = False, loses: bool = False, starves: bool = False) -> bool:
        """One turn of the engine's loop; False when there was nothing to do. `fails`: the launch raises; `loses`: the
        step to be committed cannot be read, and wrote nothing; `starves`: it ran out of memory."""
        if self.scheduler.away is None and (prompts := self.scheduler.plan_prompts()) is not None:
            self._late = len(self.records) % 4
            self.plans.append(prompts)
        plan = self.scheduler.plan()
        if plan is not None:
            self.plans.append(plan)
            if fails:
                self.scheduler.abandon(plan, "the step failed")
            elif sum(r.count + r.padding for r in plan.rows) > self.memory[0] or len(plan.rows) > self.memory[1]:
                self._starve(plan)
            else:
                self.in_flight.append((plan, self._launch(plan)))
        did = plan is not None
        if self.in_flight and (plan is None or len(self.in_flight) > self.depth):
            committing, sampled = self.in_flight.popleft()
            if starves:
                self._starve(committing, launched=True)
            elif loses:
                self._lose(committing)
            else:
                self._commit(committing, sampled)
            did = True
        elif plan is None and self.scheduler.away is not None:
            self._late = 0
            self._record(StepPlan(()), [])
            did = True
        elif plan is None and self.scheduler.ledger.has_changes:
            self._record(None, [])
        for branch in self.scheduler.take_ended():
            assert branch not in self.ended, "a branch ends once"
            self.ended.add(branch)
        return did

    def finish(self, most: int = 100_000) -> None:
        """Steps until nothing is left to do."""
        for _ in range(most):
            if not self.step() and self.scheduler.idle:
                return
        raise AssertionError(f"not idle after {most} steps: {self.scheduler.ledger.running}")

    def _launch(self, plan: StepPlan) -> list[Emission]:
        """What the device samples. All rows write before any reads, as in a layer of a model."""
        size = self.config.block_size
        assert len({host for _, host in plan.swap_out}) == len(plan.swap_out)
        for cache, host in ((self._cache, self._host), (self._saw, self._host_saw)):
            for source, target in plan.swap_out:
                host[target * size : (target + 1) * size] = cache[source * size : (source + 1) * size]
            for source, target in plan.swap_in:
                cache[target * size : (target + 1) * size] = host[source * size : (source + 1) * size]
            for source, target in plan.copies:
                cache[target * size : (target + 1) * size] = cache[source * size : (source + 1) * size]
        if self.config.paged:
            places = [place for row in plan.rows for place in self._places(row)]
            assert len(places) == len(set(places)), "no place is written by two rows"
        else:
            self._check_rectangle(plan)
        written = [self._write(row) for row in plan.rows]
        sampled = []
        for row, own in zip(plan.rows, written):
            context = self._context(row, own)
            for position in row.drawn_at:
                before = context[: position - row.forgotten if self.config.paged else len(context)]
                self._last_token[row.slot] = next_token(before)
                others = ranked(before, row.branch.request.ranked) if row.branch.beam is not None else ()
                sampled.append(Emission(self._last_token[row.slot], alternatives=others))
        return sampled

    def _write(self, row: Row) -> list[int]:
        tokens = row.ids(self._last_token[row.slot])
        assert len(tokens) == row.count
        if self.config.paged:
            for i, (place, token) in enumerate(zip(self._places(row), tokens), 1):
                self._cache[place], self._saw[place] = token, row.lies_at + i
        elif self.config.mode != "recompute":
            self._strips[row.branch] += tokens
        return tokens

    def _context(self, row: Row, own: list[int]) -> list[int]:
        if self.config.paged:
            size, blocks, prompt = self.config.block_size, row.branch.blocks, row.branch.request.prompt_length
            places = [blocks[i // size] * size + i % size for i in range(row.lies_at + row.count)]
            if self.window is not None and row.count:
                visible = seen(self.config, prompt, row.first + row.count - 1)
                assert len(visible) == len(places)
                for place, position in zip(places, visible):
                    assert self._saw[place] == len(seen(self.config, prompt, position)), "as it was computed at first"
            return [self._cache[place] for place in places]
        return self._strips.get(row.branch, own)

    def _check_rectangle(self, plan: StepPlan) -> None:
        """A padded step is one rectangle, its members' strips are all there is, and they are wide enough."""
        assert len({row.count + row.padding for row in plan.rows}) == 1
        if self.config.mode == "recompute":
            assert (plan.members, plan.width, len(plan.rows)) == ((), 0, 1)
            return
        assert len(plan.members) * plan.width <= self.room
        assert {row.kind is Kind.PREFILL for row in plan.rows} in ({True}, {False})
        branches = tuple(row.branch for row in plan.rows)
        if plan.rows[0].kind is Kind.PREFILL:
            assert branches == plan.members[-len(branches) :]
            longest = plan.rows[0].count + plan.rows[0].padding
            before = max((len(self._strips[b]) for b in plan.members[: -len(branches)]), default=0)
            assert max(before, longest) <= plan.width
        else:
            assert branches == plan.members
        self._strips = {branch: self._strips.get(branch, []) for branch in plan.members}
        grown = max(len(self._strips[row.branch]) + row.count + row.padding for row in plan.rows)
        assert grown <= plan.width, "a row outgrows its strip"

    def _place(self, branch: Branch, position: int) -> int:
        size = self.config.block_size
        (block,) = branch.held(position // size, position // size + 1)
        return block * size + position % size

    def _places(self, row: Row) -> list[int]:
        return [self._place(row.branch, p) for p in range(row.first, row.first + row.count)]

    def _commit(self, plan: StepPlan, sampled: list[Emission]) -> None:
        for row, positions in plan.scored:
            assert row.first <= positions.start < positions.stop <= row.first + row.count
            assert row.branch.request.scores is not None
            scores, nothing = row.branch.request.scores, np.zeros((len(positions), 0), np.int32)
            before = scores.known
            scores.tell(positions, np.zeros(len(positions)), nothing, nothing)
            self.scored.update((row.branch.request.id, at) for at in range(before - 1, scores.known - 1))
        committed = self.scheduler.commit(plan, sampled)
        self.clock += self.seconds(sum(row.count for row in plan.rows))
        self.scheduler.timed(plan, self.clock)
        for row, outcome in zip(plan.rows, committed):
            self.texts[row.branch] += "".join(emission.text for emission in outcome.emitted)
            if outcome.emitted:
                self.emitted.setdefault(row.branch, []).append(self.clock)
        self._record(plan, committed)

    def _lose(self, plan: StepPlan) -> None:
        if self.config.paged:
            later = {place for following, _ in self.in_flight for row in following.rows for place in self._places(row)}
            for place in {place for row in plan.rows for place in self._places(row)} - later:
                self._cache[place] = _UNWRITTEN
            self._spoil_swaps(plan)
        self.scheduler.abandon(plan, "the step failed")

    def _starve(self, plan: StepPlan, launched: bool = False) -> None:
        """As Recovery does; what the step was to write is spoilt."""
        self.short += 1
        if plan.members and (launched or plan.rows[0].kind is not Kind.PREFILL):
            self.scheduler.abandon(plan, "out of memory")
            return
        places = [place for row in plan.rows for place in self._places(row)] if self.config.paged else []
        if launched:
            while self.in_flight:
                self.scheduler.retract(self.in_flight.pop()[0])
        self.scheduler.retract(plan)
        for place in places:
            self._cache[place] = _UNWRITTEN
        self._spoil_swaps(plan)
        while self.in_flight:
            self._commit(*self.in_flight.popleft())
        self.scheduler.shrink(plan, "out of memory")

    def _spoil_swaps(self, plan: StepPlan) -> None:
        """Nobody knows whether a step that failed has copied them."""
        size = self.config.block_size
        for _, host in plan.swap_out:
            self._host[host * size : (host + 1) * size] = [_UNWRITTEN] * size
        own = {block for row in plan.rows for block in row.branch.blocks}
        for _, block in plan.swap_in:
            if block in own or not self.pool.references(block):  # else it went to others, who have written since
                self._cache[block * size : (block + 1) * size] = [_UNWRITTEN] * size

    def _beside(self) -> tuple[list[Row], list[Committed]]:
        """The prefill worker's rows for a step's record. It writes as late as it can, over what was written since."""
        away = self.scheduler.away
        if away is None:
            return [], []
        self._late -= 1
        if self._late >= 0:
            return [replace(row, count=0, reused=0, again=0) for row in away.rows], [Committed()] * len(away.rows)
        for row in away.rows:
            assert not row.samples
            self._write(row)
        return list(away.rows), self.scheduler.commit_prompts()

    def _record(self, plan: StepPlan | None, committed: Any) -> None:
        rows = list[Row]()
        if plan is not None:
            rows, outcomes = self._beside()
            plan, committed = replace(plan, rows=(*plan.rows, *rows)), [*committed, *outcomes]
        launched: Any = LaunchedStep(plan or StepPlan(()), 0.0, beside=len(rows))
        record = NotedStep(len(self.records), 0.0, 0.0, launched, committed, self.scheduler, str).record()
        self.records.append(record)
        self.told.feed(record)
        self.told.check(record, self.pool.total)
        running = [branch for branch in self.scheduler.ledger.running if branch.blocks]
        tables = {(b.request.id, b.index): dict(zip(b.places, b.blocks)) for b in running}
        assert self.told.tables == tables, "the records tell every branch's block table"
        held = {(b.request.id, b.index): b.swapped for b in self._waiting() if b.swapped is not None}
        told = {
            owner: (min(table), tuple(table[at] for at in sorted(table))) for owner, table in self.told.hosts.items()
        }
        assert told == {owner: (next(out.places(out.place)), out.blocks) for owner, out in held.items()}
        assert self.told.cached == {b for b in range(self.pool.total) if self.pool.is_cached(b)}
        assert self.told.kept == {h for h in range(self.hosts) if self.host.answers(h)}

    def _waiting(self) -> list[Branch]:
        return [b for r in self.scheduler.requests.values() for b in r.branches if b.slot < 0 and not b.finished]

    # What must hold after every step.

    def check(self) -> None:
        config, pool, running = self.config, self.pool, self.scheduler.ledger.running
        assert pool.free + pool.cached + pool.owned == pool.total
        held = Counter(block for branch in running for block in branch.blocks)
        assert len(held) == pool.owned
        assert all(pool.references(b) == held[b] for b in range(pool.total))
        slots = [branch.slot for branch in running]
        assert len(slots) == len(set(slots)) <= config.slots
        assert all(0 <= slot < config.slots for slot in slots)
        in_flight = [row.branch for plan, _ in self.in_flight for row in plan.rows]
        in_flight += [branch for branch in running if branch.away]
        away = self.scheduler.away.rows if self.scheduler.away is not None else ()
        coming = {place // config.block_size for row in away for place in self._places(row)}
        together = self.scheduler.policy.leave_together
        for branch in running:
            assert branch.steps == in_flight.count(branch)
            assert config.mode == "recompute" or branch.computed <= branch.room * config.block_size
            if self.window is not None and branch.gone:
                assert len(branch.blocks) <= self.window.sinks + self.window.recent + 1
            assert together or not branch.finished or branch.steps > 0, "blocks go back at the step's border"
        if together and running and not self.in_flight:
            assert not all(branch.finished for branch in running), "a batch that is over is gone"
        waiting = self._waiting()
        assert self.scheduler.ledger.waiting_count == len(waiting)
        swapped = [host for b in waiting if b.swapped is not None for host in b.swapped.blocks]
        assert len(swapped) == len(set(swapped))
        assert sum(map(self.host.references, range(self.hosts))) == len(swapped) + len(self.host._until_sealed)
        assert not any(b.swapped for b in running)
        kv = self.scheduler.kv_use(())
        assert min(kv.used, kv.reserved, kv.internal) >= 0
        assert kv.used + kv.reserved + kv.internal == pool.owned * pool.block_size
        for (_, tokens), (block, _) in pool._published.items():
            held_there = self._cache[block * config.block_size : (block + 1) * config.block_size]
            assert block in coming or tuple(held_there) == tokens, "what can be found has been written"
        to_come = {host for _, host in self.host._out}
        for key, (host, serial) in self.host._published.items():
            held_there = self._host[host * config.block_size : (host + 1) * config.block_size]
            assert host in to_come or tuple(held_there) == key[1], "what is kept has been copied"
            assert pool._published.get(key, (0, serial))[1] == serial, "both tiers know a prefix by one number"
        if self.plans:
            self._check_plan(self.plans[-1])

    def _check_plan(self, plan: StepPlan) -> None:
        mode, kinds = self.config.mode, {row.kind for row in plan.rows}
        if self.config.paged:
            assert sum(row.count for row in plan.rows) <= self.config.token_budget
            decodes = [row for row in plan.rows if row.kind is Kind.DECODE]
            assert all(row.count == 1 + len(row.drafted) and row.samples == row.count for row in decodes)
            most = self.config.most_sampled if self.drafter else 1
            assert all(row.count <= most for row in decodes)
            assert all(row.first + row.count <= max(row.branch.reach, row.first + 1) for row in decodes)
        if mode == "disaggregated":
            order = [row.kind for row in plan.rows]
            assert order == sorted(order, reverse=True), "decodes come first"
            assert not any(row.branch.away for row in plan.rows) or self.scheduler.away is plan
            ends = [row for row in plan.rows if row.kind is Kind.PREFILL and row.samples]
            assert all(row.count == 1 or row.forgotten for row in ends), (
                "a prompt but for its last token is the worker's"
            )
        elif mode == "chunked":
            order = [row.kind for row in plan.rows]
            assert order == sorted(order, reverse=True), "decodes come first"
        elif self.window is None:
            assert len(kinds) == 1 or kinds == {Kind.DECODE, Kind.HELD}, "prefills have steps of their own"
        if mode not in ("static", "dynamic", "sequential"):
            assert Kind.HELD not in kinds or mode == "continuous-padded"

    def check_idle(self) -> None:
        assert self.pool.available == self.pool.total
        assert self.host.available == self.hosts
        assert not any(self.pool.references(b) for b in range(self.pool.total))
        assert not self.scheduler.ledger.running
        assert self.scheduler.ledger.waiting_count == 0
        assert self.ended == {branch for request in self.requests for branch in request.branches}
        assert not self.scheduler.ledger.has_changes
