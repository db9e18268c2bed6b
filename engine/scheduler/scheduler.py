"""Who computes what in the next step, and what becomes of it: plan() and commit(), or retract() and abandon() where it
failed. How branches get memory and become rows is the KV layout's affair (`paged`, `contiguous`), who joins when the
policy's."""

from collections.abc import Sequence
from math import inf, isfinite

from engine.config.live_budget import LiveBudget
from engine.config.specs import EngineConfig
from engine.scheduler import beams, policies
from engine.scheduler.block_pool import BlockPool, blocks_for
from engine.scheduler.host_memory import HostPool, Offloading, SwapCost, Swapping
from engine.scheduler.kv_window import KvWindow
from engine.scheduler.ledger import Ledger
from engine.scheduler.plan import Committed, KvUse, Refused, Row, StepPlan
from engine.scheduler.request import Branch, Emission, Life, Request
from engine.scheduler.speculation import Drafter, Speculation, agreed
from engine.trace.records import FinishReason, Kind, Refusal, SwapEvent

NO_NUMBER = "the model computed NaN or infinity in place of a probability: load it in another precision"


class Scheduler:
    """Plans and commits steps over one ledger. `requests` are those that are not over. Cost a step: O(running),
    whatever waits. With a `drafter` decode rows carry the tokens that it proposes. `states`: the model keeps the newest
    state of each branch beside its blocks."""

    def __init__(
        self,
        config: EngineConfig,
        pool: BlockPool,
        drafter: Drafter | None = None,
        host: HostPool | None = None,
        cost: SwapCost | None = None,
        states: bool = False,
    ) -> None:
        self.config = config
        host = host or HostPool(0, pool.block_size)
        swapping = Swapping(pool, host, cost) if config.swaps else None
        offloading = Offloading(pool, host) if config.offload_prefixes else None
        rest = swapping, offloading, not config.mixed_adapters, KvWindow.of(config)
        self.ledger = Ledger(config.slots, pool, LiveBudget.of(config), host, config.admission, *rest)
        self.ledger.states = states
        self.requests: dict[int, Request] = {}
        self._withholds = config.delivery == "batch"
        self._ended: list[Branch] = []
        self._searched: dict[int, dict[int, Emission]] = {}  # by request: what its live paths' rows have sampled
        self.policy, self.layout = policies.make(config, self.ledger)
        self.speculation = Speculation(config, self.ledger, drafter) if drafter is not None else None
        self.away: StepPlan | None = None  # what the prefill worker computes

    @property
    def idle(self) -> bool:
        return not self.requests and self.ledger.in_flight == 0 and self.away is None

    def add(self, request: Request, more: bool = False) -> None:
        """`more`: others follow without waiting for it."""
        self.requests[request.id] = request
        self.ledger.add(request)
        self.ledger.more = more

    def plan(self, now: float = inf) -> StepPlan | None:
        """The next step at `now`, seconds from the trace's start; None when there is nothing to compute before a step
        in flight is committed, a request arrives or `patience` is over."""
        self.ledger.yields = False
        if not self._shed():
            return None
        rows, refused = self.policy.plan(now)
        if not rows:
            return None
        if self.speculation is not None:
            self.speculation.grow(rows)
        plan = self.layout.seal(rows, refused)
        for row in rows:
            branch = row.branch
            branch.steps += 1
            if row.kind is not Kind.HELD:
                branch.advance(row.first + row.count, len(row.drafted))
                branch.in_flight += row.samples > 0
        self.ledger.in_flight += 1
        return plan

    def plan_prompts(self) -> StepPlan | None:
        """What the prefill worker, which is free, computes next; None where no prompt waits that has room, or somebody
        has to make way first. Branches that join without are not planned before it is done: it may write what they
        found in the cache."""
        policy, before = self.policy, len(self.ledger.running)
        if not isinstance(policy, policies.Disaggregated) or self.ledger.yields:
            return None
        rows = policy.prompts()
        if not rows:
            return None
        self.away = self.layout.seal(rows, ())
        for branch in {row.branch: None for row in rows} | dict.fromkeys(self.ledger.running[before:]):
            branch.steps += 1
            branch.away = True
        return self.away

    def commit_prompts(self) -> list[Committed]:
        """The worker is done; returns each row's outcome."""
        plan, self.away = self.away, None
        assert plan is not None
        for row in plan.rows:
            row.branch.advance(row.first + row.count)
        for branch in [branch for branch in self.ledger.running if branch.away]:
            branch.steps -= 1
            branch.away = False
            self._leave(branch)
        return [Committed((), row.count if row.branch.finished else row.again) for row in plan.rows]

    def retract_prompts(self, error: str, smaller: bool) -> None:
        """What the worker was to compute failed: all that are away wait again, for `smaller` steps where that helps;
        else those of its rows end with `error`."""
        plan, self.away = self.away, None
        assert plan is not None
        for branch, published, serial in reversed(plan.published):
            self.ledger.withdraw(branch.held(published, branch.published))
            branch.published, branch.serial = published, serial
        for branch in [branch for branch in reversed(self.ledger.running) if branch.away]:
            branch.steps -= 1
            branch.away = False
            if branch.finished:
                self._leave(branch)
            else:  # what they found in the cache may have been the worker's to write
                self.ledger.requeue(branch, Life.PREEMPTED if branch.generated else Life.WAITING)
        if not (smaller and self.ledger.limits.halve(sum(row.count for row in plan.rows), len(plan.rows))):
            for row in plan.rows:
                self._fail(row.branch, error)

    def steer(self, budget: LiveBudget) -> None:
        """Plans within this budget from now on."""
        self.ledger.limits.steer(budget)

    def patience(self, now: float) -> float | None:
        """Seconds after which the passing of time alone may allow a step; None when it cannot."""
        return self.policy.patience(now) if self.ledger.waiting_count else None

    def commit(self, plan: StepPlan, sampled: Sequence[Emission]) -> list[Committed]:
        """Takes a step's sampled tokens, in the order of its sampling rows; returns each row's outcome."""
        self.ledger.in_flight -= 1
        committed, at = list[Committed](), 0
        for row in plan.rows:
            samples = row.samples
            committed.append(self._commit_row(row, sampled[at : at + samples] if samples else ()))
            at += samples
        if self._searched:
            self._search(plan, committed)
        if self.ledger.waiting.fair:
            for row, outcome in zip(plan.rows, committed, strict=True):
                self.ledger.waiting.serve(row.branch.request.label, len(outcome.emitted))
        if self._withholds and all(branch.over for branch in self.ledger.running):
            committed = [self._deliver(row, outcome) for row, outcome in zip(plan.rows, committed, strict=True)]
        self._dissolve()
        self.ledger.limits.went_well(self.config.token_budget, self.config.slots)
        return committed

    def timed(self, plan: StepPlan, ended: float) -> None:
        """A step that was committed ended then, by a clock in seconds."""
        if (pace := self.ledger.limits.pace) is not None:
            prompts = sum(row.count for row in plan.rows if row.kind is Kind.PREFILL)
            pace.learn(sum(row.count for row in plan.rows) - prompts, prompts, ended)

    def retract(self, plan: StepPlan) -> None:
        """Takes back the newest plan in flight: what it was to compute is planned again, and those it admitted wait
        again in their order. What it preempted stays so, and what it swapped out or in is computed again.

        Not for a step that decodes over contiguous strips: their cache has moved on.
        """
        self.ledger.in_flight -= 1
        for branch, published, serial in reversed(plan.published):
            self.ledger.withdraw(branch.held(published, branch.published))
            branch.published, branch.serial = published, serial
        self.ledger.changes.copied = [pair for pair in self.ledger.changes.copied if pair not in plan.copies]
        came, found = set(plan.swap_in), SwapEvent.FOUND
        swaps = self.ledger.changes.swaps
        self.ledger.changes.swaps = [c for c in swaps if c.event is not found or (c.host, c.block) not in came]
        self.ledger.forget_copied(plan)
        for row in reversed(plan.rows):
            branch = row.branch
            branch.steps -= 1
            branch.in_flight -= row.samples > 0
            if branch.reached == branch.computed - len(row.drafted) and row.again < row.count:
                branch.reached = row.first + row.again
            if branch.slot < 0:  # a later step's retraction had it wait
                continue
            branch.computed = row.first
            forgot = len(branch.gone) * self.ledger.pool.block_size > row.forgotten  # since, what the row had seen
            if branch.finished:
                self._leave(branch)
            elif row.joins or forgot or self.ledger.states:  # of which the step may have been part of the way
                self.ledger.requeue(branch, Life.PREEMPTED if branch.generated else Life.WAITING)
        for source, target in plan.copies:
            if self.ledger.pool.references(target):  # of a branch that keeps its blocks
                self.ledger.copy(source, target)

    def shrink(self, plan: StepPlan, error: str) -> bool:
        """Makes the steps to come smaller than `plan`, which ran out of memory and was retracted; nothing is in flight.

        Prompts go in smaller parts; where they are no matter, fewer run at once.
        False when it was one row that cannot be smaller: it ends with `error`.
        """
        prompts = sum(row.count + row.padding for row in plan.rows if row.kind is Kind.PREFILL)
        divisible = self.config.paged or len(plan.rows) > 1  # a padded prompt goes whole
        rows = len({id(row.branch.together[0]) for row in plan.rows})
        if divisible and self.ledger.limits.halve(prompts, rows):
            return True
        for row in plan.rows:
            self._fail(row.branch, error)
        return False

    def abandon(self, plan: StepPlan, error: str) -> None:
        """Ends the branches of a step that failed, and those that share what it should have written; others go on."""
        self.ledger.in_flight -= 1
        for row in plan.rows:
            row.branch.steps -= 1
            row.branch.in_flight -= row.samples > 0
        for branch, published, _ in plan.published:  # some were to be filled by the step before, which may fail too
            self.ledger.withdraw(branch.held(published, branch.published))
        # What it should have written, and the copies of that which the step after it, if it is in flight, has made.
        size, lost = self.ledger.pool.block_size, set[int]()
        for row in plan.rows:
            lost.update(row.branch.held(row.first // size, blocks_for(row.first + row.count, size)))
        hosts = {host for _, host in plan.swap_out}
        lost.update(block for _, block in plan.swap_in)
        restored = (c for c in self.ledger.changes.swaps if c.event in (SwapEvent.IN, SwapEvent.FOUND))
        lost.update(change.block for change in restored if change.host in hosts)
        self.ledger.forget_copied(plan)
        lost.update(copy for source, copy in self.ledger.changes.copied if source in lost)
        self.ledger.withdraw(lost)
        sharers = [branch for branch in self.ledger.running if not lost.isdisjoint(branch.blocks)]
        for branch in [row.branch for row in plan.rows] + sharers:
            if not branch.finished:
                self._fail(branch, error)
            else:
                self._leave(branch)
        self._dissolve()

    def finish(self, request: Request, reason: FinishReason, error: str = "") -> None:
        """Ends all of a request's branches now. Blocks and slots go back when no step in flight names them."""
        if request.search is not None and not request.finished:
            beams.conclude(request)
        for branch in request.branches:
            if not branch.finished:
                self._finish(branch, reason, error)
        self._dissolve()

    def take_ended(self) -> list[Branch]:
        """The branches that ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def kv_use(self, refused: Refused) -> KvUse:
        """The pool's tokens by kind, after a step whose plan refused these."""
        starved = any(reason is Refusal.NO_BLOCKS for _, reason in refused)
        return KvUse(*self.layout.use(), self.ledger.pool.available * self.ledger.pool.block_size if starved else 0)

    # Inside.

    def _shed(self) -> bool:
        """Preempts the last that are served where more run than may, but for the first, alone with what runs together
        with it; a padded batch goes on until they end. False while a step is in flight, when nobody can be
        preempted."""
        ledger = self.ledger
        running, most = ledger.running, ledger.limits.running
        while len(running) > most and self.config.paged and len(running) > len(ledger.in_order()[0].together):
            if self.ledger.in_flight:
                return False
            victim = ledger.victim
            if victim.away:  # the others decode meanwhile, as many as may
                ledger.yields = True
                here = [branch for branch in ledger.in_order() if not branch.away]
                if len(here) <= most:
                    return True
                victim = here[-1]
            ledger.preempt(victim)
        return True

    def _commit_row(self, row: Row, sampled: Sequence[Emission]) -> Committed:
        branch = row.branch
        branch.steps -= 1
        branch.in_flight -= row.samples > 0
        if branch.life is Life.FINISHED or branch.verdict is not None or row.kind is Kind.HELD:
            self._leave(branch)
            return Committed((), row.count)
        if branch.beam is not None and sampled and isfinite(sampled[0].logprob):
            self._searched.setdefault(branch.request.id, {})[branch.index] = sampled[0]
            return Committed((), row.again)
        if not row.drafted:
            taken = self._take(branch, sampled) if sampled else ()
            return tuple.__new__(Committed, (taken, row.again, 0))
        accepted = agreed(row.drafted, sampled)
        branch.computed = row.first + 1 + accepted
        branch.reached = max(branch.reached, branch.computed)
        emitted = self._take(branch, sampled[: accepted + 1])
        return Committed(emitted, row.count - len(emitted), min(accepted, len(emitted)))

    def _take(self, branch: Branch, sampled: Sequence[Emission]) -> list[Emission]:
        """Gives a branch its new tokens, up to the one that ends it; returns those that are delivered now."""
        taken = []
        for emission in sampled:
            token, logprob, others, _, allowed, rather, attention = emission
            if not isfinite(logprob):
                self._fail(branch, NO_NUMBER)
                break
            branch.tokens.append(token)
            text, reason = branch.output.push(token)
            if text:  # a tenth of the time of `_replace`
                emission = tuple.__new__(Emission, (token, logprob, others, text, allowed, rather, attention))
            if self._withholds:
                branch.withheld.append(emission)
                branch.verdict = reason
                break
            taken.append(emission)
            if reason is not None:
                self._finish(branch, reason, branch.output.fault)
                break
        return taken

    def _search(self, plan: StepPlan, committed: list[Committed]) -> None:
        """The next paths of the beam searches whose rows this step computed; fills in what became certain by them."""
        for number, sampled in self._searched.items():
            request = self.requests.get(number)
            if request is None:  # one of its rows was no number
                continue
            beams.advance(self.ledger, request, sampled)
            if request.search is not None and request.search.over:
                for branch, reason in zip(request.branches, beams.conclude(request)):
                    self._finish(branch, reason or FinishReason.STOP)
        for i, row in enumerate(plan.rows):
            branch = row.branch
            if row.samples and branch.request.id in self._searched and not branch.finished:
                committed[i] = Committed(beams.tell(branch), committed[i].wasted)
        self._searched = {}

    def _deliver(self, row: Row, outcome: Committed) -> Committed:
        """All that a branch's batch held back of it: its last row, and so the batch's, says it."""
        branch = row.branch
        if branch.finished:
            return outcome
        delivered = Committed(tuple(branch.withheld), outcome.wasted)
        branch.withheld = []
        assert branch.verdict is not None
        self._finish(branch, branch.verdict, branch.output.fault)
        return delivered

    def _fail(self, branch: Branch, error: str) -> None:
        """Ends a branch, and what runs together with it, with an error."""
        if branch.beam is not None:
            self.finish(branch.request, FinishReason.ERROR, error)
        elif not branch.finished:
            self._finish(branch, FinishReason.ERROR, error)

    def _finish(self, branch: Branch, reason: FinishReason, error: str = "") -> None:
        if branch.life in (Life.WAITING, Life.PREEMPTED):
            self.ledger.waiting_count -= 1  # its place in the queue is skipped when it is reached
            self.ledger.drop_swapped(branch)
        branch.life, branch.reason, branch.error = Life.FINISHED, reason, error
        if branch.request.finished:
            del self.requests[branch.request.id]
        self._ended.append(branch)
        self._leave(branch)

    def _leave(self, branch: Branch) -> None:
        """A finished branch goes as soon as no step in flight names it, unless its batch leaves together."""
        if branch.finished and branch.slot >= 0 and branch.steps == 0 and not self.policy.leave_together:
            self.ledger.release(branch)

    def _dissolve(self) -> None:
        """A batch that leaves together goes when all of it is finished and no step in flight names it."""
        if self.policy.leave_together and all(b.finished and b.steps == 0 for b in self.ledger.running):
            for branch in list(self.ledger.running):
                self.ledger.release(branch)
