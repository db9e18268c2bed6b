"""What happened to KV blocks in a step: who took, shared and gave back which, in words and counts. No Qt in here."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from app.inside.columns import whole
from app.inside.step.history import StepHistory
from app.language import digits, tr, trn
from engine.trace import BlockEvent, Step

RUNS = 3  # of block numbers that are named before the rest is only counted


class Change(Enum):
    """What came of blocks: its name, what an owner did with {blocks}, and what that means."""

    PREFIX = (
        tr("shared by prefix"),
        tr("shares {blocks} of a prefix that was there"),
        tr("prefix hit: the blocks hold the beginning of this prompt already; one more owner, nothing computed"),
    )
    SIBLING = (
        tr("shared by samples"),
        tr("shares {blocks} with another sample"),
        tr("samples of one prompt share its full blocks, and beams all"),
    )
    TAKEN = tr("taken"), tr("took {blocks}"), tr("from the free blocks")
    EVICTED = (
        tr("evicted"),
        tr("took {blocks}, forgetting the prefix kept there"),
        tr("no free block was left: the least recently used prefix gave way"),
    )
    COPIED = (
        tr("copied on write"),
        tr("copied {blocks} before writing"),
        tr("copy-on-write: another sample or beam reads the block, so it is copied before this one writes to it"),
    )
    LEFT = (
        tr("left to others"),
        tr("left {blocks} to its other owners"),
        tr("one reference less; the block stays with its other owners"),
    )
    KEPT = (
        tr("kept for their prefix"),
        tr("gave back {blocks}, kept for the prefix"),
        tr("the last owner went; the block stays findable by its tokens until room is needed"),
    )
    FREED = tr("given back"), tr("gave back {blocks}"), tr("the last owner went; the block is free")
    LOST = (
        tr("forgotten"),
        tr("{blocks} kept for a prefix forgotten: a failed step never wrote them"),
        tr("the block is free"),
    )

    def __init__(self, words: str, verb: str, about: str) -> None:
        self.words, self.verb, self.about = words, verb, about


@dataclass(frozen=True, slots=True)
class Account:
    """What one sample of a request did with blocks; request -1: nobody's. `sources`, with COPIED: what was copied."""

    request: int
    branch: int
    change: Change
    blocks: tuple[int, ...]
    sources: tuple[int, ...] = ()


def accounts(step: Step, history: StepHistory, place: int) -> list[Account]:
    """Every block event of a step, together by owner and kind, in the order in which owners first appear."""
    evicted, siblings = set(history.evicted(place)), set(history.siblings(place))
    copied = dict(zip(step.copied_to.tolist(), step.copied.tolist()))
    found: dict[tuple[int, int], dict[Change, list[int]]] = {}
    columns = (step.block_event, step.block, step.block_request, whole(step.block_branch, len(step.block)))
    for at, (event, block, request, branch) in enumerate(zip(*(column.tolist() for column in columns))):
        match event:
            case BlockEvent.TAKEN if block in copied:
                change = Change.COPIED
            case BlockEvent.TAKEN:
                change = Change.EVICTED if block in evicted else Change.TAKEN
            case BlockEvent.SHARED:
                change = Change.SIBLING if at in siblings else Change.PREFIX
            case BlockEvent.LEFT:
                change = Change.LEFT
            case BlockEvent.KEPT:
                change = Change.KEPT
            case _:
                change = Change.FREED if request >= 0 else Change.LOST
        found.setdefault((request, branch), {}).setdefault(change, []).append(block)
    result = []
    for (request, branch), changes in found.items():
        for change in sorted(changes, key=list(Change).index):
            blocks = tuple(changes[change])
            sources = tuple(copied[block] for block in blocks) if change is Change.COPIED else ()
            result.append(Account(request, branch, change, blocks, sources))
    return result


def totals(these: Sequence[Account]) -> dict[Change, int]:
    """How many blocks each change befell, in the order of `Change`; changes that befell none are left out."""
    counts = {change: sum(len(a.blocks) for a in these if a.change is change) for change in Change}
    return {change: count for change, count in counts.items() if count}


def totals_words(these: Sequence[Account]) -> str:
    """ "12 taken · 4 given back · 32 shared by prefix"."""
    return " · ".join(digits(f"{count:,} {change.words}") for change, count in totals(these).items())


def account_words(account: Account) -> str:
    """ "took 4 blocks: 120–122, 140"."""
    blocks = trn("{count:,} block", "{count:,} blocks", len(account.blocks))
    words, which = account.change.verb.format(blocks=blocks), block_words(account.blocks)
    if account.sources:
        pairs = [f"{one} → {other}" for one, other in zip(account.sources, account.blocks)]
        which = _and_more(", ".join(pairs[:RUNS]), len(pairs) - RUNS)
    return f"{words}: {which}"


def block_words(blocks: Sequence[int], most: int | None = RUNS) -> str:
    """Block numbers with runs joined, "3, 7–12"; after `most` runs the rest is only counted."""
    runs: list[list[int]] = []
    for block in sorted(blocks):
        if runs and block == runs[-1][1] + 1:
            runs[-1][1] = block
        else:
            runs.append([block, block])
    shown = runs if most is None or len(runs) <= most else runs[:most]
    words = ", ".join(str(a) if a == b else f"{a}–{b}" if b > a + 1 else f"{a}, {b}" for a, b in shown)
    return _and_more(words, len(blocks) - sum(b - a + 1 for a, b in shown))


def _and_more(words: str, rest: int) -> str:
    return tr("{these} and {rest:,} more", these=words, rest=rest) if rest > 0 else words
