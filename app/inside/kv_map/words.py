"""What the KV map says in words. No Qt in here."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from app.inside.kv_map.state import CACHED, FREE, Kinds, KvState, Mark
from app.language import tr, trn
from app.ui.tables.facts import Cell, Facts
from engine.trace import Kind, Record, Step, Submitted

HINT = tr("Click a block: whose it is, since when, and which tokens are in it.")
SHORT_HINTS = tr("Click a block to see whose it is."), tr("Click a block.")
ALL_FREE = (
    tr("All blocks are free at this moment: move the cursor back to see whose they were."),
    tr("All are free: move the cursor back."),
)
REST = tr("The lowest free numbers are given first, so that what is in use lies at the pool's beginning.")
EMPTY = tr("Every block of the KV pool with its owner, once a model is loaded.")
NO_CACHE = tr("This mode keeps no KV cache: every step computes its request's whole sequence again.")
FURTHEST = 8192  # records that are looked through for a token's text
MOST_IDS = 8
COLUMNS = (
    *(tr("block"), tr("state"), tr("owners"), tr("place"), tr("tokens"), tr("filled"), tr("references")),
    tr("since s"),
)
MARK_WORDS = {
    Mark.SHARED: tr("shared"),
    Mark.COPIED: tr("copied on write"),
    Mark.EVICTED: tr("taken from the cached"),
    Mark.FOUND: tr("back from the host"),
}

Seconds = Callable[[int], float]  # when the step of a place ended, as panels show times


def owners_words(state: KvState, block: int, most: int = 4) -> str:
    """All owners of a block, a few of them by name: "#12, #14, #15 samples 1, 3, 2 more"."""
    samples: dict[int, list[int]] = {}
    for request, branch in state.owners(block):
        samples.setdefault(request, []).append(branch + 1)
    names = []
    for request, numbers in list(samples.items())[:most]:
        which = ", ".join(map(str, sorted(numbers)))
        named = trn(
            "#{request} sample {samples}", "#{request} samples {samples}", len(numbers), request=request, samples=which
        )
        names.append(named if numbers != [1] else f"#{request}")
    if len(samples) > most:
        names.append(tr("{count} more", count=len(samples) - most))
    return ", ".join(names)


def summary_words(state: KvState) -> str:
    """ "612 of 1,024 blocks · 59 % · 14 shared · 32 cached"."""
    owned = int((state.references > 0).sum())
    words = [tr("{n:,} of {all:,} blocks", n=owned, all=state.blocks), share_words(owned, state.blocks)]
    shared, cached = int((state.references > 1).sum()), int((state.owner == CACHED).sum())
    hosted = sum(state.swapped.values()) + int((state.kept != FREE).sum())
    words += [tr("{count:,} shared", count=shared)] if shared else []
    words += [tr("{count:,} cached", count=cached)] if cached else []
    words += [tr("{count:,} on the host", count=hosted)] if hosted else []
    return " · ".join(words)


def short_summary_words(state: KvState) -> tuple[str, ...]:
    """Where there is little room for it, from long to short."""
    owned = int((state.references > 0).sum())
    share = share_words(owned, state.blocks)
    blocks = tr("{n:,} of {all:,} blocks", n=owned, all=state.blocks)
    short = tr("{n:,} of {all:,}", n=owned, all=state.blocks)
    return f"{blocks} · {share}", f"{short} · {share}", share


def rest_words(shown: int, front: int, blocks: int) -> str:
    """What is beside the blocks shown, and what a click changes; `front` of them show all there is to see."""
    if shown < blocks:
        return tr("+ {n:,} blocks never taken", n=blocks - shown)
    return tr("only the first {n:,} blocks", n=front)


def share_words(part: float, whole: float) -> str:
    """ "59 %"; never 0 % where there is some, nor 100 % where some is missing."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 1:
        return "< 1 %"
    if 99 < percent < 100:
        return "> 99 %"
    return f"{percent:.0f} %"


def kinds_words(kinds: Kinds, external: int, total: int) -> str:
    """The pool's tokens by kind, as the strips tell theirs; what share is wasted is the lane's or the memory panel's to
    say. `external` depends on the queue: the step's record has it."""
    free = total - kinds.used - kinds.reserved - kinds.internal
    return " · ".join(
        (
            trn("{count:,} token used", "{count:,} tokens used", kinds.used),
            tr("{n:,} reserved", n=kinds.reserved),
            tr("{n:,} never used", n=kinds.internal),
            tr("{n:,} free, too little for the next in the queue", n=free) if external else tr("{n:,} free", n=free),
        )
    )


def tip_words(state: KvState, block: int) -> str:
    """One line on a block."""
    filled = tr("{n} of {all} tokens", n=int(state.filled[block]), all=state.size)
    if state.owner[block] == FREE:
        return tr("Block {block:,}: free", block=block)
    if state.owner[block] == CACHED:
        return " · ".join((tr("Block {block:,}: cached, nobody's", block=block), filled))
    owners, place, references = owners_words(state, block), int(state.place[block]), int(state.references[block])
    words = tr("Block {block:,}: {owners} · place {place}", block=block, owners=owners, place=place)
    shared = (tr("{count} references", count=references),) if references > 1 else ()
    return " · ".join((words, filled, *shared))


def block_words(state: KvState, block: int, seconds: Seconds, content: str) -> str:
    """All that is known of a block. `content` says which tokens are in it."""
    since = int(state.since[block])
    when = tr("since {time:.2f} s", time=seconds(since)) if since >= 0 else tr("since the beginning")
    if state.owner[block] == FREE:
        return tr("Block {block:,} is free {when}.", block=block, when=when)
    filled, place, references = int(state.filled[block]), int(state.place[block]), int(state.references[block])
    first = place * state.size
    if references:
        owners = owners_words(state, block)
        belongs = tr("Block {block:,} belongs to {owners} {when}", block=block, owners=owners, when=when)
        shared = tr("{count} references, one copy", count=references)
        words = [f"{belongs}: {shared}" if references > 1 else belongs]
    else:
        kept = tr(
            "Block {block:,} is nobody's {when} and keeps the prefix of #{writer} until room is needed",
            block=block,
            when=when,
            writer=int(state.writer[block]),
        )
        words = [kept]
    size = state.size
    words.append(tr("place {place} in the block table, {n} of {all} tokens filled", place=place, n=filled, all=size))
    mark = Mark(int(state.event[block]))
    if mark and state.event_at[block] >= since:
        at = seconds(int(state.event_at[block]))
        words.append(tr("{what} at {time:.2f} s", what=MARK_WORDS[mark], time=at))
    if filled:
        last = first + filled - 1
        words.append(tr("positions {first}–{last}: {content}", first=first, last=last, content=content))
    return " · ".join(words)


def content_words(state: KvState, block: int, records: Sequence[Record], position: int) -> str:
    """The tokens of a block whose owner is known, in words. `records[:position]` is the trace up to the state."""
    request, branch = int(state.writer[block]), int(state.writer_branch[block])
    at = int(state.requests.position[request]) if 0 <= request < len(state.requests) else -1
    submitted = records[at] if at >= 0 else None
    if not isinstance(submitted, Submitted):
        return tr("tokens of a request that the trace does not tell of")
    first = int(state.place[block]) * state.size
    end = first + int(state.filled[block])
    prompt = len(submitted.token_ids)
    words = []
    if first < prompt:
        ids = submitted.token_ids[first : min(end, prompt)].tolist()
        shown, more = ", ".join(map(str, ids[:MOST_IDS])), len(ids) - MOST_IDS
        if first == 0 and end >= prompt and submitted.text:
            words.append(tr("the prompt “{text}”", text=_plain(submitted.text)))
        elif more > 0:
            words.append(tr("prompt tokens' ids {ids} and {more} more", ids=shown, more=more))
        else:
            words.append(tr("prompt tokens' ids {ids}", ids=shown))
    if end > prompt and submitted.params.beam_width > 1:  # what a beam has said is told when it is certain
        words.append(trn("{count:,} token of its beams", "{count:,} tokens of its beams", end - max(first, prompt)))
    elif end > prompt:
        words.append(_generated(request, branch, max(first, prompt), end, records, position))
    return tr(", then ").join(words)


def _generated(request: int, branch: int, first: int, end: int, records: Sequence[Record], position: int) -> str:
    """The text of the tokens at positions [first, end), which the steps before emitted."""
    parts: dict[int, str] = {}
    for at in range(position - 1, max(-1, position - 1 - FURTHEST), -1):
        record = records[at]
        if not isinstance(record, Step) or not len(record.token):
            continue
        rows = np.flatnonzero((record.request == request) & (record.branch == branch) & (record.kind != Kind.HELD))
        if not len(rows):
            continue
        row = int(rows[0])
        emitted = np.flatnonzero(record.token_row == row)
        drafted = int(record.drafted[row]) if len(record.drafted) else 0
        token = int(record.first[row] + record.count[row]) - drafted  # that of the first that came out
        if len(emitted) == 1 or drafted:
            for at_token, i in enumerate(emitted.tolist(), token):
                if first <= at_token < end:
                    parts[at_token] = record.text[int(record.text_end[i - 1]) if i else 0 : int(record.text_end[i])]
        if len(emitted) and token <= first:
            break
    if len(parts) == end - first:
        return tr("“{text}”", text=_plain("".join(parts[token] for token in range(first, end))))
    return trn(
        "{count:,} generated token, whose text is not delivered or too far back",
        "{count:,} generated tokens, whose text is not delivered or too far back",
        end - first,
    )


def _plain(text: str, most: int = 160) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


class BlockRows(Sequence[tuple[Cell, ...]]):
    """A row for every owned or cached block, made when it is asked for."""

    def __init__(self, state: KvState, seconds: Seconds) -> None:
        self._state, self._seconds = state, seconds
        self.blocks = [int(b) for b in (state.owner != FREE).nonzero()[0]]
        self._kept: tuple[int, tuple[Cell, ...]] = (-1, ())

    def __len__(self) -> int:
        return len(self.blocks)

    def __iter__(self) -> Iterator[tuple[Cell, ...]]:
        return (self._row(block) for block in self.blocks)

    def __getitem__(self, index: int) -> tuple[Cell, ...]:  # type: ignore[override]
        block = self.blocks[index]
        if self._kept[0] != block:
            self._kept = block, self._row(block)
        return self._kept[1]

    def _row(self, block: int) -> tuple[Cell, ...]:
        state = self._state
        place, filled, since = int(state.place[block]), int(state.filled[block]), int(state.since[block])
        first = place * state.size
        owners = owners_words(state, block, 1000) or None
        where = (place if place >= 0 else None, f"{first}–{first + filled - 1}" if filled else None)
        when = round(self._seconds(since), 6) if since >= 0 else None
        owned = tr("cached") if state.owner[block] == CACHED else tr("owned")
        return (block, owned, owners, *where, filled, int(state.references[block]), when)


def block_facts(state: KvState, seconds: Seconds) -> Facts:
    return Facts(COLUMNS, BlockRows(state, seconds))
