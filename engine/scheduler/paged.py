"""Running branches over blocks that are given as they are filled: decode rows, prompts in parts, shared prefixes."""

from dataclasses import replace

from engine.config.specs import EngineConfig
from engine.scheduler import beams
from engine.scheduler.block_pool import blocks_for, root_of
from engine.scheduler.kv_window import NOTHING
from engine.scheduler.ledger import Ledger
from engine.scheduler.plan import Refused, Row, StepPlan
from engine.scheduler.request import Branch, Life, Request, Swapped
from engine.trace.records import Kind, Refusal


class PagedLayout:
    """The paged modes' KV layout. `apart`: prompts are computed elsewhere meanwhile, all but the last token of each:
    that, and so the token after it, is the next decode step's."""

    def __init__(self, ledger: Ledger, config: EngineConfig, apart: bool = False) -> None:
        self._ledger, self._caching, self._apart = ledger, config.prefix_caching, apart
        self._mixed = config.mixed_adapters
        self._pool, self._size = ledger.pool, ledger.pool.block_size
        self._window = ledger.window
        self._published: list[tuple[Branch, int, int]] = []
        self._scored: list[tuple[Row, range]] = []

    def seal(self, rows: list[Row], refused: Refused) -> StepPlan:
        published, self._published = tuple(self._published), []
        copies, (out, back) = self._ledger.take_copies(), self._ledger.host.seal()
        plan = StepPlan(tuple(rows), refused, copies=copies, published=published, swap_out=out, swap_in=back)
        if self._scored:
            plan, self._scored = replace(plan, scored=tuple(self._scored)), []
        return plan

    def use(self) -> tuple[int, int, int]:
        """Owned tokens: used, reserved, internal. A block that several branches share counts once."""
        size, held, used, reserved = self._size, 0, 0, 0
        for branch in self._ledger.running:
            blocks, computed, reach = len(branch.blocks), branch.computed, branch.reach
            if branch.gone:
                reach -= len(branch.gone) * size
                computed = branch.lies_at(computed, size)
            held += blocks
            used += computed
            room = blocks * size
            reserved += (room if room < reach else reach) - computed
        if held > self._pool.owned:
            too_many = beams.shared_twice(self._ledger)
            used, reserved = used - (held - self._pool.owned) * size - too_many[0], reserved - too_many[1]
        return used, reserved, self._pool.owned * size - used - reserved

    def decode_rows(self) -> list[Row]:
        """A row for every branch that decodes; the last that are served give way where blocks run out.

        While steps are in flight nothing can be preempted: then the rows so far, or none, are planned and the step in
        flight is committed first.
        """
        ledger = self._ledger
        rows: list[Row] = []
        ends: list[Row] = []  # of prompts that were computed elsewhere, and of answers that are computed again
        spare = ledger.limits.budget.token_budget - len(ledger.running)
        for branch in ledger.in_order():
            if branch.beam is not None:
                if branch.index == 0 and not self._search_rows(branch, rows):
                    return []
                continue
            if branch.slot < 0 or branch.away:
                continue
            if not branch.due:
                if self._apart and branch.remaining == 1 and not branch.over:
                    ends.append(self._last_of_prompt(branch))
                    continue
                if not self._resumes(branch):
                    continue
            if branch.computed >= branch.room * self._size:
                ledger.forget(branch)
                if not self._make_room(branch, 1):
                    if self._apart:  # until who must make way is back, only this one waits
                        continue
                    return []
                if branch.slot < 0:
                    continue
                ledger.take(branch, 1)
            if not branch.due:
                ends.append(self._resumed(branch, 1 + max(0, spare)))
                spare -= ends[-1].count - 1
                continue
            row = Row(branch, branch.slot, branch.computed, 1, Kind.DECODE, True, branch.in_flight > 0)
            if branch.gone:
                row.forgotten = row.first - branch.lies_at(row.first, self._size)
            rows.append(row)
        rows += ends
        for row in rows if self._caching else ():  # not before it is certain that they are planned
            self._publish(row.branch, row.first + 1)
        return rows

    def _last_of_prompt(self, branch: Branch) -> Row:
        """The row of a prompt's last token, of which all before it are computed."""
        first = branch.computed
        reused = branch.found if branch.found == first else 0
        return Row(branch, branch.slot, first, 1, Kind.PREFILL, True, False, 0, reused, int(branch.reached > first))

    def _resumes(self, branch: Branch) -> bool:
        """Whether it computes again what it had said before it was preempted, as it did then: each token after what
        was forgotten by then."""
        window = self._window
        if window is None or branch.steps or branch.over or branch.away or branch.remaining < 1:
            return False
        return branch.computed >= window.begins(branch.request.prompt_length)

    def _resumed(self, branch: Branch, most: int) -> Row:
        """The row of the next tokens that it computes again, which see the same blocks."""
        window, first = self._window, branch.computed
        assert window is not None
        count = min(branch.remaining, most, window.alike(branch.request.prompt_length, first))
        samples, again = count == branch.remaining, max(0, min(branch.reached - first, count))
        forgotten = first - branch.lies_at(first, self._size)
        return Row(branch, branch.slot, first, count, Kind.PREFILL, samples, False, again=again, forgotten=forgotten)

    def _make_room(self, branch: Branch, blocks: int) -> bool:
        """Preempts until so many blocks are available, or until it is the branch that gave way. False where a step in
        flight forbids it."""
        ledger = self._ledger
        while self._pool.available < blocks and branch.slot >= 0:
            if ledger.in_flight or ledger.victim.away:
                ledger.yields = ledger.victim.away
                return False
            ledger.preempt(ledger.victim)
        return True

    def _search_rows(self, first: Branch, rows: list[Row]) -> bool:
        """The rows of a beam search, which go together: once the step that chose its paths is committed. False where
        blocks run out and a step in flight forbids to preempt."""
        going = beams.live(first.request)
        if first.slot < 0 or first.finished or not all(b.decoding and not b.in_flight for b in going):
            return True
        if not self._make_room(first, beams.blocks_to_write(self._ledger, going)):
            return False
        if first.slot >= 0:
            beams.make_writable(self._ledger, going)
            rows += [Row(b, b.slot, b.computed, 1, Kind.DECODE, True, False) for b in going]
        return True

    def prefill_rows(self, budget: int, admit: bool = True) -> tuple[list[Row], Refused]:
        """Rows for prompts, of those that run in the order in which they are served, then of the queue, and why its
        head was refused.

        A branch is admitted when a slot is free and all its known tokens find blocks at once; its prompt may still
        take several steps. Where adapters are kept apart, only requests of the one that runs are.
        """
        rows, refused = self._prefills(budget, admit)
        if not self._mixed:
            self._ledger.waiting.adapter = None
            if admit and not refused:
                refused = self._ledger.refuse(Refusal.OTHER_ADAPTER)
        return rows, refused

    def _prefills(self, budget: int, admit: bool) -> tuple[list[Row], Refused]:
        ledger = self._ledger
        rows: list[Row] = []
        for branch in ledger.in_order():
            if branch.in_flight or not budget or branch.due or (self._apart and branch.remaining == 1):
                continue
            if self._window is not None and branch.computed >= self._window.begins(branch.request.prompt_length):
                continue  # it goes on beside those who decode
            started = branch.remaining > 0 and not branch.decoding
            if started and not branch.finished and (branch.beam is None or not branch.beam.idle):
                budget -= self._prefill(branch, budget, rows)
        if admit and ledger.slots_free():
            self._head()
            ledger.waiting.look()
        while admit and (head := self._head()) is not None:
            found = self._admit(head, budget)
            if isinstance(found, Refusal):
                return rows, ledger.refuse(found)
            if head.beam is None:
                budget -= self._prefill(head, budget, rows, reused=found, joins=True)
                continue
            for i, branch in enumerate(beams.live(head.request)):
                budget -= self._prefill(branch, budget, rows, joins=i == 0) if budget else 0
        return rows, ()

    def _head(self) -> Branch | None:
        """Who is next; where adapters are kept apart, of the one that runs from then on."""
        running, waiting = self._ledger.running, self._ledger.waiting
        if not self._mixed:
            waiting.adapter = running[-1].adapter if running else None
            if waiting.outranked:
                return None
        return self._ledger.head()

    def _admit(self, head: Branch, budget: int) -> Refusal | int:
        """A slot and blocks for the head of the queue; what is in the cache already is shared, not taken, and what is
        in host memory comes back. Returns how many tokens were found in the cache, or why it is refused."""
        ledger, pool, size, held = self._ledger, self._pool, self._size, head.swapped
        if not ledger.slots_free(len(head.together)):
            return Refusal.NO_SLOT
        if not ledger.limits.joins(len(ledger.running), len(head.together)):
            return Refusal.PACE
        if head.beam is not None:
            return self._admit_search(head.request) if budget > 0 else ledger.limits.spent
        sibling = self._sibling(head)
        if sibling is not None and sibling.computed < head.request.prompt_length:
            if held is None or held.place:
                return Refusal.PROMPT_RUNS
            sibling = None
        if sibling is not None and self._coming(sibling.blocks[(head.request.prompt_length - 1) // size]):
            sibling = None
        if budget <= 0:
            return ledger.limits.spent
        # At least the last token is computed, for its logits.
        hosts: list[int] = []
        if sibling is not None and self._apart:  # the block that it writes to is nobody's to copy meanwhile
            reused = (head.request.prompt_length - 1) // size * size
            shared = sibling.blocks[: reused // size]
        elif sibling is not None:
            reused = head.request.prompt_length - 1
            shared = sibling.blocks[: reused // size]
        elif self._caching and not head.request.unscored:
            shared, hosts = pool.match_below(self._sought(head), root_of(head.adapter))
            reused = (len(shared) + len(hosts)) * size
        else:
            shared, reused = [], 0
        if held is not None and held.gone:
            shared, hosts = shared[: held.gone.start], hosts[: max(0, held.gone.start - len(shared))]
            reused = (len(shared) + len(hosts)) * size
        needed = self._blocks(head, held) - len(shared)
        reserve = max(1, pool.total // 100) if ledger.running else 0
        if pool.available - sum(map(pool.is_cached, shared)) < needed + reserve:
            return Refusal.NO_BLOCKS
        ledger.admit()
        head.gone = NOTHING if held is None else held.gone
        ledger.share(head, shared)
        ledger.bring(head, hosts, needed)
        if held is not None and held.computed > reused:
            reused = reused // size * size
            self._restore(head, held, reused // size)
        else:
            ledger.drop_swapped(head)
            head.computed = reused
            if sibling is not None and reused % size:
                ledger.copy(sibling.blocks[len(shared)], head.blocks[len(shared)])
        self._find(head, len(shared))
        return reused

    def _sought(self, head: Branch) -> list[int]:
        """What of a branch's tokens may be found in the cache: those before the last that is computed as it joins."""
        window = self._window
        return head.tokens[:-1] if window is None else head.tokens[:-1][: window.begins(head.request.prompt_length) - 1]

    def _blocks(self, head: Branch, held: Swapped | None) -> int:
        """As many as a branch that joins needs for the tokens that it has."""
        if held is not None and held.gone:
            return blocks_for(held.computed + 1, self._size) - len(held.gone)
        if self._window is None:
            return blocks_for(len(head.tokens), self._size)
        return self._window.most(head.request.prompt_length, len(head.tokens))

    def _coming(self, block: int) -> bool:
        """Whether the step being planned is to fill it, and so after what is copied before the step."""
        return any(block in branch.held(before, branch.published) for branch, before, _ in self._published)

    def _restore(self, head: Branch, held: Swapped, found: int) -> None:
        """What is in host memory comes back, but for the first blocks, which were found. Where others owned blocks
        before it that are gone since, these are computed again first."""
        place, swapping = max(found, held.place), self._ledger.swapping
        assert swapping is not None
        swapping.back(head, held, place, self._ledger.changes)
        head.restored = place * self._size, held.computed
        head.advance(found * self._size)

    def _find(self, branch: Branch, shared: int) -> None:
        """Notes which of a new branch's shared blocks are published."""
        if self._caching:
            known = branch.tokens[: shared * self._size]
            found, branch.serial = self._pool.match(known, root_of(branch.adapter))
            branch.published = len(found)

    def _admit_search(self, request: Request) -> Refusal | int:
        """Slots for all of a beam search, and blocks for its live paths."""
        ledger, pool, size = self._ledger, self._pool, self._size
        first = beams.live(request)[0]
        cached, hosts = (
            pool.match_below(first.tokens[:-1], root_of(request.adapter)) if self._caching else ([], list[int]())
        )
        tables = beams.tables(request, size, len(cached) + len(hosts))
        reused = tables[0][2]
        hosts, cached = hosts[: max(0, reused - len(cached))], cached[:reused]
        needed = sum(blocks_for(len(branch.tokens), size) - shared for branch, _, shared in tables) + len(hosts)
        reserve = max(1, pool.total // 100) + len(request.branches) - len(tables) if ledger.running else 0
        if pool.available - sum(map(pool.is_cached, cached)) < needed + reserve:
            return Refusal.NO_BLOCKS
        for _ in request.branches:
            ledger.admit()
        for branch, source, shared in tables:
            assert branch.beam is not None
            own, below = (source.blocks[:shared], []) if source is not None else (cached, hosts)
            ledger.share(branch, own)
            ledger.bring(branch, below, blocks_for(len(branch.tokens), size) - len(own))
            self._find(branch, len(own))
            branch.computed = branch.beam.found = shared * size
        return reused * size

    def _sibling(self, branch: Branch) -> Branch | None:
        """A running sample of the same prompt, whose blocks hold the prompt's K and V or will in a moment."""
        if len(branch.request.branches) == 1 or self._ledger.states:
            return None
        running = [b for b in branch.request.branches if b.life is Life.RUNNING and b is not branch and not b.gone]
        return max(running, key=lambda b: b.computed, default=None)

    def _prefill(self, branch: Branch, budget: int, rows: list[Row], reused: int = 0, joins: bool = False) -> int:
        left, restored = branch.remaining - self._apart, branch.restored[0]
        branch.found = 0 if left else reused
        if not left:
            return 0
        if branch.beam is not None:
            left -= branch.generated > 0  # the newest token of each path is computed in one step with the others'
            reused = branch.beam.found if branch.computed == branch.beam.found else 0
        elif branch.computed < restored:
            left = restored - branch.computed
        count = min(budget, left)
        if self._window is not None:
            count = min(count, self._window.alike(branch.request.prompt_length, branch.computed))
        if branch.request.unscored:
            count = self._within_logits(branch.request, count)
        end = branch.computed + count
        samples = count == branch.remaining and not self._apart
        again = max(0, min(branch.reached, end) - branch.computed)
        row = Row(branch, branch.slot, branch.computed, count, Kind.PREFILL, samples, False, 0, reused, again, joins)
        if branch.gone:
            row.forgotten = row.first - branch.lies_at(row.first, self._size)
        rows.append(row)
        if (scores := branch.request.scores) is not None and (wanted := scores.wanted(row.first, count)):
            self._scored.append((row, wanted))
        self._publish(branch, end)
        return count

    def _within_logits(self, request: Request, count: int) -> int:
        """As many of a prompt's tokens as a step has memory for the logits of, beside those of the rows before it."""
        assert request.scores is not None
        return min(count, max(1, request.scores.most - sum(len(positions) for _, positions in self._scored)))

    def _publish(self, branch: Branch, end: int) -> None:
        """Makes the blocks that are full up to `end` findable, as far as their tokens are known. Their K and V are
        written by the step being planned: rows of the same step and of later ones may read them."""
        if not self._caching:
            return
        size, known = self._size, min(end, len(branch.tokens))
        if self._window is not None:  # what follows was said after something was forgotten
            known = min(known, self._window.begins(branch.request.prompt_length))
            known = min(known, branch.gone.start * size) if branch.gone else known
        if (branch.published + 1) * size <= known:
            self._published.append((branch, branch.published, branch.serial))
        while (branch.published + 1) * size <= known:
            at = branch.published
            branch.serial = self._pool.publish(
                branch.blocks[at], branch.serial, branch.tokens[at * size : (at + 1) * size]
            )
            branch.published += 1
