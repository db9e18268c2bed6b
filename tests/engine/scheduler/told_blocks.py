"""The block tables as a trace's records tell them, in plain arithmetic and with nothing of the engine's."""

from dataclasses import dataclass, field

from engine.trace.records import BlockEvent, Step, SwapEvent

Owner = tuple[int, int]  # request and branch


@dataclass
class ToldBlocks:
    """Feed it every step. `tables[owner][index]` is a block; `cached` are those without an owner that keep a prefix.
    `hosts[owner][index]` is a block of host memory, of those that are swapped out; `kept` are those that keep a
    prefix."""

    tables: dict[Owner, dict[int, int]] = field(default_factory=dict)
    cached: set[int] = field(default_factory=set)
    hosts: dict[Owner, dict[int, int]] = field(default_factory=dict)
    kept: set[int] = field(default_factory=set)
    forgets: bool = False  # tables have gaps

    def owners(self, block: int) -> list[Owner]:
        return [owner for owner, table in self.tables.items() if block in table.values()]

    @property
    def owned(self) -> set[int]:
        return {block for table in self.tables.values() for block in table.values()}

    def feed(self, step: Step) -> None:
        columns = (step.block_event, step.block, step.block_request, step.block_branch, step.block_place)
        for event, block, request, branch, index in zip(*(c.tolist() for c in columns), strict=True):
            owner = request, branch
            if event == BlockEvent.TAKEN:
                assert not self.owners(block), f"block {block} was taken from an owner"
                self.cached.discard(block)
                self._put(owner, index, block)
            elif event == BlockEvent.SHARED:
                assert self.owners(block) or block in self.cached, f"block {block} was free and is shared"
                self.cached.discard(block)
                self._put(owner, index, block)
            elif request < 0:
                assert event == BlockEvent.FREED
                self.cached.remove(block)
            else:
                assert self.tables[owner].pop(index) == block, "it leaves the place it had"
                if not self.tables[owner]:
                    del self.tables[owner]
                assert bool(self.owners(block)) == (event == BlockEvent.LEFT), "the last owner is told from others"
                if event == BlockEvent.KEPT:
                    self.cached.add(block)

        columns = step.swap_event, step.swap_host, step.swap_block, step.swap_request, step.swap_branch, step.swap_place
        for event, host, block, request, branch, index in zip(*(c.tolist() for c in columns), strict=True):
            owner = request, branch
            assert (block < 0) == (event in (SwapEvent.DROPPED, SwapEvent.FORGOTTEN))
            assert (request < 0) == (event in (SwapEvent.OFFLOADED, SwapEvent.FORGOTTEN))
            if event == SwapEvent.OFFLOADED:
                assert host not in self.kept
                self.kept.add(host)
            elif event == SwapEvent.FOUND:
                assert host in self.kept
            elif event == SwapEvent.FORGOTTEN:
                self.kept.remove(host)
            elif event == SwapEvent.OUT:
                assert host not in self.kept
                assert not any(host in table.values() for table in self.hosts.values())
                self.hosts.setdefault(owner, {})[index] = host
            else:
                assert self.hosts[owner].pop(index) == host
                if not self.hosts[owner]:
                    del self.hosts[owner]

    def _put(self, owner: Owner, index: int, block: int) -> None:
        table = self.tables.setdefault(owner, {})
        assert index == len(table) or (self.forgets and index > max(table, default=-1)), "a table grows at its end"
        table[index] = block

    def check(self, step: Step, total: int) -> None:
        """The record's own counts must be those that its events give."""
        assert step.cached_blocks == len(self.cached)
        assert step.free_blocks == total - len(self.owned) - len(self.cached), "the records tell of every block"
