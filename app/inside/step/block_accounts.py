"""What happened to KV blocks in a step: who took, shared and gave back which, in words and counts. No Qt in here."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from app.inside.columns import whole
from app.inside.step.history import StepHistory
from app.words import counted
from engine.trace import BlockEvent, Step

RUNS = 3  # of block numbers that are named before the rest is only counted


class Change(Enum):
    """What came of blocks: its name, what an owner did, and what that means."""

    PREFIX = (
        "shared by prefix",
        "shares {} of a prefix that was there",
        "prefix hit: the blocks hold the beginning of this prompt already; one more owner, nothing computed",
    )
    SIBLING = (
        "shared by samples",
        "shares {} with another sample",
        "samples of one prompt share its full blocks, and beams all",
    )
    TAKEN = "taken", "took {}", "from the free blocks"
    EVICTED = (
        "evicted",
        "took {}, forgetting the prefix kept there",
        "no free block was left: the least recently used prefix gave way",
    )
    COPIED = (
        "copied on write",
        "copied {} before writing",
        "copy-on-write: another sample or beam reads the block, so it is copied before this one writes to it",
    )
    LEFT = (
        "left to others",
        "left {} to its other owners",
        "one reference less; the block stays with its other owners",
    )
    KEPT = (
        "kept for their prefix",
        "gave back {}, kept for the prefix",
        "the last owner went; the block stays findable by its tokens until room is needed",
    )
    FREED = "given back", "gave back {}", "the last owner went; the block is free"
    LOST = "forgotten", "{} kept for a prefix forgotten: a failed step never wrote them", "the block is free"

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
    return " · ".join(f"{count:,} {change.words}" for change, count in totals(these).items())


def account_words(account: Account) -> str:
    """ "took 4 blocks: 120–122, 140"."""
    words = account.change.verb.format(counted(len(account.blocks), "block"))
    if account.sources:
        pairs = [f"{one} → {other}" for one, other in zip(account.sources, account.blocks)]
        more = f" and {len(pairs) - RUNS:,} more" if len(pairs) > RUNS else ""
        return f"{words}: {', '.join(pairs[:RUNS])}{more}"
    return f"{words}: {block_words(account.blocks)}"


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
    rest = len(blocks) - sum(b - a + 1 for a, b in shown)
    return f"{words} and {rest:,} more" if rest else words
