"""Beam searches over the ledger: their places are a request's branches, which share blocks until they write.

All branches of a search get their slots at once and are preempted together. Branch 0 computes the prompt; each step of
the search then has a row for every live path. A path that has one child keeps its blocks; further children hold the
same blocks, and before two of them write to one block, all but the last copy it. Paths without children give theirs
back.
"""

from collections.abc import Mapping, Sequence

from engine.decoding.beams import BeamSearch, Path
from engine.scheduler.block_pool import blocks_for
from engine.scheduler.ledger import Ledger
from engine.scheduler.request import Beam, Branch, Emission, Request
from engine.trace.records import Fate, FinishReason


def begin(request: Request, search: BeamSearch) -> None:
    """Makes a request's branches the places of a search."""
    request.search, request.ranked = search, max(request.ranked, search.candidates)
    for branch in request.branches:
        branch.beam = Beam(idle=branch.index not in search.live)


def live(request: Request) -> list[Branch]:
    """The branches that a path is at."""
    return [branch for branch in request.branches if branch.beam is not None and not branch.beam.idle]


def most_blocks(request: Request, block_size: int) -> int:
    """How many blocks a search may hold at once: its prompt's full ones are shared in any case. Of the last of them one
    token is computed again where the search was preempted after its first step."""
    own = blocks_for(request.branches[0].reach, block_size)
    shared = (request.prompt_length - 1) // block_size
    return shared + len(request.branches) * (own - shared)


def advance(ledger: Ledger, request: Request, sampled: Mapping[int, Emission]) -> None:
    """Takes what a step sampled after each live path, by branch; forks and prunes the branches."""
    search = request.search
    assert search is not None
    weighed = search.advance({at: emission.alternatives for at, emission in sampled.items()})
    ledger.changes.weighed += [(request.id, one) for one in weighed]
    if search.over:
        return
    going = [one for one in weighed if one.fate is Fate.LIVE]
    branches = request.branches
    for one in going:
        if one.place != one.parent:
            ledger.fork(branches[one.place], branches[one.parent])
    for one in going:
        branches[one.place].tokens.append(one.path.token)
    for branch in branches:
        assert branch.beam is not None
        branch.beam.idle = branch.index not in search.live
        if branch.beam.idle:
            ledger.give_back(branch)
            branch.computed = 0


def tell(branch: Branch) -> tuple[Emission, ...]:
    """What is certain of a branch's result, and was not delivered yet."""
    search = branch.request.search
    assert search is not None
    return _told(branch, search.certain)[0]


def conclude(request: Request) -> list[FinishReason | None]:
    """Gives each branch its result, the best first, as what is to be delivered with its end: of the finished texts, or,
    where the search is not over, of what there is. Returns why each ended by itself."""
    search = request.search
    assert search is not None
    reasons: list[FinishReason | None] = []
    for branch, path in zip(request.branches, search.best()):
        assert branch.beam is not None
        emissions, reason = _told(branch, path)
        branch.withheld += emissions
        branch.beam.score = search.score(path) if path.length else None
        branch.tokens[request.prompt_length :] = path.tokens
        reasons.append(reason)
    return reasons + [None] * (len(request.branches) - len(reasons))


def _told(branch: Branch, path: Path) -> tuple[tuple[Emission, ...], FinishReason | None]:
    """The tokens of its result up to the path's end that were not delivered, with their text, and why it ends there."""
    assert branch.beam is not None
    emissions, reason = [], None
    for part in path.after(branch.beam.told):
        text, reason = branch.output.push(part.token)
        others = tuple(part.ranked[: branch.request.params.logprobs])
        emissions.append(Emission(part.token, part.logprob, others, text))
    branch.beam.told += len(emissions)
    return tuple(emissions), reason


# What the layout asks.


def blocks_to_write(ledger: Ledger, branches: Sequence[Branch]) -> int:
    """How many more blocks the next token of each needs: a new one where its last is full, and a copy of one that
    others hold, for all of these but the last."""
    size, needed, holders = ledger.pool.block_size, 0, dict[int, int]()
    for branch in branches:
        place = branch.computed // size
        if place == len(branch.blocks):
            needed += 1
        else:
            block = branch.blocks[place]
            left = holders.setdefault(block, ledger.pool.references(block)) - 1
            needed += left > 0
            holders[block] = left
    return needed


def make_writable(ledger: Ledger, branches: Sequence[Branch]) -> None:
    """Gives each branch the block for its next token, its own; there are enough."""
    size = ledger.pool.block_size
    for branch in branches:
        place = branch.computed // size
        if place == len(branch.blocks):
            ledger.take(branch, 1)
        elif ledger.pool.references(branch.blocks[place]) > 1:
            ledger.write_alone(branch)


def tables(request: Request, block_size: int, cached: int) -> list[tuple[Branch, Branch | None, int]]:
    """How a search that waits gets its blocks: each live branch, from whom it takes its first blocks, and how many. The
    first one takes so many that are `cached`; each other shares what it has in common with one before it. One token
    before the newest is computed in any case, so that each branch has a row on admission."""
    found: list[tuple[Branch, Branch | None, int]] = []
    for branch in live(request):
        shared, source = cached, None
        if found:
            same, source = max(
                ((_same(branch.tokens, other.tokens), other) for other, _, _ in found), key=lambda s: s[0]
            )
            shared = same // block_size
        known = len(branch.tokens) - (2 if branch.generated else 1)
        found.append((branch, source, min(shared, known // block_size)))
    return found


def _same(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """How many tokens two sequences of one length begin alike with."""
    return next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), len(ours))


def shared_twice(ledger: Ledger) -> tuple[int, int]:
    """What counting every branch's tokens counts too often of blocks that are not full and that beams share: tokens
    used, less those of a full block, and tokens reserved."""
    size, used, reserved = ledger.pool.block_size, 0, 0
    seen: set[int] = set()
    for branch in ledger.running:
        place, fill = divmod(branch.computed, size)
        if branch.beam is None or not fill or place >= len(branch.blocks):
            continue
        block = branch.blocks[place]
        if block in seen:
            used += fill - size
            reserved += max(0, min(len(branch.blocks) * size, branch.reach) - branch.computed)
        seen.add(block)
    return used, reserved
