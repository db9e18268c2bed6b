"""The KV pool in plain arithmetic: dicts and lists, one event and one row at a time, and nothing of the panel's.

A block holds what its writer computed: the sample that took it, in the life (from its first block to its last) in which
it did. What a life has computed is where its last row ended.
"""

from dataclasses import dataclass, field

from engine.trace import BlockEvent, Ended, Header, Kind, Record, Step, Submitted
from tests.engine.scheduler.told_blocks import Owner, ToldBlocks

FREE, CACHED = -1, -2


@dataclass
class Cell:
    """One block as it should be."""

    owner: int
    references: int
    filled: int
    place: int
    since: int
    owners: list[Owner]
    mark: tuple[str, int]


@dataclass
class PlainPool:
    header: Header
    at: int = -1
    told: ToldBlocks = field(default_factory=ToldBlocks)
    lives: dict[Owner, int] = field(default_factory=dict)  # the newest life of each sample
    done: list[int] = field(default_factory=list)  # by life
    writer: dict[int, tuple[int, int]] = field(default_factory=dict)  # block: life, place
    since: dict[int, int] = field(default_factory=dict)
    mark: dict[int, tuple[str, int]] = field(default_factory=dict)
    over: set[Owner] = field(default_factory=set)
    reach: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.told.forgets = self.header.config.kv_window is not None

    def feed(self, record: Record) -> None:
        match record:
            case Step():
                self.at += 1
                self._events(record)
                self._rows(record)
            case Submitted():
                length, limit = len(record.token_ids), record.params.max_tokens
                if self.header.model.context:
                    limit = min(limit, self.header.model.context - length)
                self.reach[record.request] = length + limit - 1
            case Ended():
                self.over.add((record.request, record.branch))
            case _:
                pass

    def _events(self, step: Step) -> None:
        cached, owned = set(self.told.cached), self.told.owned
        columns = (step.block_event, step.block, step.block_request, step.block_branch, step.block_place)
        live = {owner: len(table) for owner, table in self.told.tables.items()}
        count = {block: len(self.told.owners(block)) for block in owned}
        for event, block, request, branch, index in zip(*(c.tolist() for c in columns)):
            owner = request, branch
            if event in (BlockEvent.TAKEN, BlockEvent.SHARED):
                if not live.get(owner):
                    self.lives[owner] = len(self.done)
                    self.done.append(0)
                live[owner] = live.get(owner, 0) + 1
                if event == BlockEvent.TAKEN:
                    self.writer[block] = self.lives[owner], index
                    if block in cached:
                        self.mark[block] = "evicted", self.at
                else:
                    self.mark[block] = "shared", self.at
                if not count.get(block):
                    self.since[block] = self.at
                count[block] = count.get(block, 0) + 1
                cached.discard(block)
                continue
            if request >= 0:
                live[owner] -= 1
                count[block] -= 1
            if event == BlockEvent.KEPT:
                cached.add(block)
            if event != BlockEvent.LEFT:
                self.since[block] = self.at
            if event == BlockEvent.FREED:
                cached.discard(block)
                del self.writer[block]
        for block in step.copied_to.tolist():
            self.mark[block] = "copied", self.at
        self.told.feed(step)

    def _rows(self, step: Step) -> None:
        columns = (step.request, step.branch, step.first, step.count, step.kind)
        rejected = (step.drafted - step.accepted).tolist() or [0] * step.rows
        for request, branch, first, count, kind, for_nothing in zip(*(c.tolist() for c in columns), rejected):
            owner, count = (request, branch), count - for_nothing
            if kind == Kind.HELD:
                self.over.add(owner)
            elif owner in self.lives:
                self.done[self.lives[owner]] = first + count

    def filled(self, block: int) -> int:
        if block not in self.writer:
            return 0
        life, place = self.writer[block]
        size = self.header.config.block_size
        return min(max(self.done[life] - place * size, 0), size)

    def cell(self, block: int) -> Cell:
        owners = sorted(self.told.owners(block), key=self.lives.__getitem__)
        owner = owners[0][0] if owners else CACHED if block in self.told.cached else FREE
        place = self.writer[block][1] if block in self.writer else -1
        return Cell(
            owner, len(owners), self.filled(block), place, self.since.get(block, -1), owners,
            self.mark.get(block, ("none", -1)),
        )  # fmt: skip

    def cells(self) -> list[Cell]:
        return [self.cell(block) for block in range(self.header.blocks)]

    def kinds(self) -> tuple[int, int, int]:
        """Owned tokens: used, reserved, internal."""
        size, padded = self.header.config.block_size, not self.header.config.paged
        used = reserved = 0
        owned = self.told.owned
        for block in owned:
            cell = self.cell(block)
            if padded and cell.owners[0] in self.over:
                continue
            used += cell.filled
            for token in range(cell.place * size + cell.filled, (cell.place + 1) * size):
                reserved += token < self.reach[cell.owner]
        return used, reserved, len(owned) * size - used - reserved
