"""Running branches over contiguous strips, all of one width, padded on the left: a rectangle of rows and columns."""

from engine.scheduler.block_pool import blocks_for
from engine.scheduler.ledger import Ledger
from engine.scheduler.plan import Refused, Row, StepPlan
from engine.scheduler.request import Branch
from engine.trace.records import Kind, Refusal


class ContiguousLayout:
    """The padded modes' KV layout. Every member's strip is reserved to the widest, so nobody is ever preempted.

    Rows end in the same column. With `aligned`, they also began together: then a strip must hold the longest prompt
    and the most new tokens of all; else the longest request.
    """

    def __init__(self, ledger: Ledger, aligned: bool) -> None:
        self._ledger, self._aligned = ledger, aligned
        self._pool, self._size = ledger.pool, ledger.pool.block_size

    def seal(self, rows: list[Row], refused: Refused) -> StepPlan:
        members = self._members()
        return StepPlan(tuple(rows), refused, tuple(members), len(members[0].blocks) * self._size)

    def use(self) -> tuple[int, int, int]:
        """Owned tokens: used, reserved, internal. What a finished row holds is of no use to anybody."""
        live = [branch for branch in self._ledger.running if not branch.over]
        used = sum(branch.computed for branch in live)
        reserved = sum(branch.reach - branch.computed for branch in live)
        return used, reserved, self._pool.owned * self._size - used - reserved

    def prefill_rows(self, budget: int | None = None) -> tuple[list[Row], Refused]:
        """Whole prompts of as many requests as find a slot and a strip, padded to the longest of them. With a budget,
        they hold at most so many tokens, padding included; one of them may be longer."""
        ledger = self._ledger
        joined: list[Branch] = []
        refused: Refused = ()
        longest = 0
        while (head := ledger.head()) is not None:
            longer = max(longest, len(head.tokens))
            refusal = self._refusal(head)
            if refusal is None and budget is not None and joined and longer * (len(joined) + 1) > budget:
                refusal = Refusal.BUDGET
            if refusal is not None:
                refused = ledger.refuse(refusal)
                break
            joined.append(ledger.admit())
            self._widen()
            longest = longer
        rows = []
        for b in joined:
            count = len(b.tokens)
            rows.append(Row(b, b.slot, 0, count, Kind.PREFILL, True, False, padding=longest - count, joins=True))
        return rows, refused

    def decode_rows(self) -> list[Row]:
        """A row for every member, none when all have what they asked for. Those that are done are held."""
        members = self._members()
        if all(branch.complete for branch in members):
            undelivered = any(branch.over and not branch.finished for branch in members)
            if self._ledger.in_flight or not undelivered:
                return []
        return [
            Row(b, b.slot, len(b.tokens) - 1, 1, Kind.HELD, False, False)
            if b.complete
            else Row(b, b.slot, b.computed, 1, Kind.DECODE, True, b.in_flight > 0)
            for b in members
        ]

    def _members(self) -> list[Branch]:
        """Those whose strips are in use: all of a batch, and otherwise all that will compute again."""
        running = self._ledger.running
        return running if self._aligned else [branch for branch in running if not branch.complete]

    def _refusal(self, head: Branch) -> Refusal | None:
        ledger = self._ledger
        if not ledger.slots_free():
            return Refusal.NO_SLOT
        members = [*ledger.running, head]
        return Refusal.NO_BLOCKS if self._width(members) * len(members) > self._pool.total else None

    def _width(self, members: list[Branch]) -> int:
        """Blocks of a strip that is wide enough for all."""
        if self._aligned:
            tokens = max(b.request.prompt_length for b in members) + max(b.request.limit for b in members) - 1
        else:
            tokens = max(b.reach for b in members)
        return blocks_for(tokens, self._size)

    def _widen(self) -> None:
        """Gives every member as many blocks as the widest needs; takes back what is more."""
        members = self._ledger.running
        width = self._width(members)
        for branch in members:
            self._ledger.give_back(branch, keep=width)
        for branch in members:
            self._ledger.take(branch, width - len(branch.blocks))


class CachelessLayout:
    """The KV layout of a mode that keeps no K and V: it gives rows nothing but a slot."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def seal(self, rows: list[Row], refused: Refused) -> StepPlan:
        return StepPlan(tuple(rows), refused)

    def use(self) -> tuple[int, int, int]:
        return 0, 0, 0

    def rows(self) -> list[Row]:
        """The whole sequence of the one that runs."""
        return [self._row(branch) for branch in self._ledger.running if not branch.complete]

    def _row(self, branch: Branch) -> Row:
        count, fed = len(branch.tokens) + branch.in_flight, branch.in_flight > 0
        kind = Kind.DECODE if branch.generated else Kind.PREFILL
        again, joins = min(branch.reached, count), kind is Kind.PREFILL
        return Row(branch, branch.slot, 0, count, kind, True, fed, again=again, joins=joins)
