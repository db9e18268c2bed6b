"""What the KV map says in words. No Qt in here."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from app.inside.kv_map.state import CACHED, FREE, Kinds, KvState, Mark
from app.ui.tables.facts import Cell, Facts
from app.words import counted
from engine.trace import Kind, Record, Step, Submitted

HINT = "Click a block: whose it is, since when, and which tokens are in it."
SHORT_HINT = "Click a block to see whose it is."
EMPTY = "Every block of the KV pool with its owner, once a model is loaded."
NO_CACHE = "This mode keeps no KV cache: every step computes its request's whole sequence again."
FURTHEST = 8192  # records that are looked through for a token's text
MOST_IDS = 8
COLUMNS = ("block", "state", "owners", "place", "tokens", "filled", "references", "since s")
MARK_WORDS = {Mark.SHARED: "shared", Mark.COPIED: "copied on write", Mark.EVICTED: "taken from the cached"}

Seconds = Callable[[int], float]  # when the step of a place ended, as panels show times


def owners_words(state: KvState, block: int, most: int = 4) -> str:
    """All owners of a block, a few of them by name: "#12, #14, #15 samples 1, 3, 2 more"."""
    samples: dict[int, list[int]] = {}
    for request, branch in state.owners(block):
        samples.setdefault(request, []).append(branch + 1)
    names = []
    for request, numbers in list(samples.items())[:most]:
        which = f" sample{'s' if len(numbers) > 1 else ''} {', '.join(map(str, sorted(numbers)))}"
        names.append(f"#{request}" + (which if numbers != [1] else ""))
    if len(samples) > most:
        names.append(f"{len(samples) - most} more")
    return ", ".join(names)


def summary_words(state: KvState) -> str:
    """ "612 of 1,024 blocks · 59 % · 14 shared · 32 cached"."""
    owned = int((state.references > 0).sum())
    words = [f"{owned:,} of {state.blocks:,} blocks", share_words(owned, state.blocks)]
    counts = {"shared": int((state.references > 1).sum()), "cached": int((state.owner == CACHED).sum())}
    counts["on the host"] = sum(state.swapped.values())
    return " · ".join([*words, *(f"{count:,} {name}" for name, count in counts.items() if count)])


def short_summary_words(state: KvState) -> tuple[str, ...]:
    """Where there is little room for it, from long to short."""
    owned = int((state.references > 0).sum())
    share = share_words(owned, state.blocks)
    return f"{owned:,} of {state.blocks:,} blocks · {share}", f"{owned:,} of {state.blocks:,} · {share}", share


def share_words(part: float, whole: float) -> str:
    """ "59 %"; never 0 % where there is some, nor 100 % where some is missing."""
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 1:
        return "< 1 %"
    if 99 < percent < 100:
        return "> 99 %"
    return f"{percent:.0f} %"


def kinds_words(kinds: Kinds, external: int, total: int) -> str:
    """The pool's tokens by kind, as shares of it. `external` depends on the queue: the step's record has it."""
    parts = (("used", kinds.used), ("reserved", kinds.reserved), ("never used", kinds.internal))
    words = [f"{name} {share_words(tokens, total)}" for name, tokens in parts]
    free = total - kinds.used - kinds.reserved - kinds.internal
    words.append(f"free {share_words(free, total)}" + (", too little for the next in the queue" if external else ""))
    return " · ".join(words)


def tip_words(state: KvState, block: int) -> str:
    """One line on a block."""
    filled = f"{int(state.filled[block])} of {state.size} tokens"
    if state.owner[block] == FREE:
        return f"Block {block:,}: free"
    if state.owner[block] == CACHED:
        return f"Block {block:,}: cached, nobody's · {filled}"
    shared = f" · {state.references[block]} references" if state.references[block] > 1 else ""
    return f"Block {block:,}: {owners_words(state, block)} · place {state.place[block]} · {filled}{shared}"


def block_words(state: KvState, block: int, seconds: Seconds, content: str) -> str:
    """All that is known of a block. `content` says which tokens are in it."""
    since = int(state.since[block])
    when = f" since {seconds(since):.2f} s" if since >= 0 else " since the beginning"
    if state.owner[block] == FREE:
        return f"Block {block:,} is free{when}."
    filled, place, references = int(state.filled[block]), int(state.place[block]), int(state.references[block])
    first = place * state.size
    if references:
        shared = f": {references} references, one copy" if references > 1 else ""
        words = [f"Block {block:,} belongs to {owners_words(state, block)}{when}{shared}"]
    else:
        writer = int(state.writer[block])
        words = [f"Block {block:,} is nobody's{when} and keeps the prefix of #{writer} until room is needed"]
    words.append(f"place {place} in the block table, {filled} of {state.size} tokens filled")
    mark = Mark(int(state.event[block]))
    if mark and state.event_at[block] >= since:
        words.append(f"{MARK_WORDS[mark]} at {seconds(int(state.event_at[block])):.2f} s")
    if filled:
        words.append(f"positions {first}–{first + filled - 1}: {content}")
    return " · ".join(words)


def content_words(state: KvState, block: int, records: Sequence[Record], position: int) -> str:
    """The tokens of a block whose owner is known, in words. `records[:position]` is the trace up to the state."""
    request, branch = int(state.writer[block]), int(state.writer_branch[block])
    at = int(state.requests.position[request]) if 0 <= request < len(state.requests) else -1
    submitted = records[at] if at >= 0 else None
    if not isinstance(submitted, Submitted):
        return "tokens of a request that the trace does not tell of"
    first = int(state.place[block]) * state.size
    end = first + int(state.filled[block])
    prompt = len(submitted.token_ids)
    words = []
    if first < prompt:
        ids = submitted.token_ids[first : min(end, prompt)].tolist()
        more = f" and {len(ids) - MOST_IDS} more" if len(ids) > MOST_IDS else ""
        words.append(f"prompt tokens' ids {', '.join(map(str, ids[:MOST_IDS]))}{more}")
        if first == 0 and end >= prompt and submitted.text:
            words[-1] = f"the prompt “{_plain(submitted.text)}”"
    if end > prompt and submitted.params.beam_width > 1:  # what a beam has said is told when it is certain
        words.append(f"{counted(end - max(first, prompt), 'token')} of its beams")
    elif end > prompt:
        words.append(_generated(request, branch, max(first, prompt), end, records, position))
    return ", then ".join(words)


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
        return f"“{_plain(''.join(parts[token] for token in range(first, end)))}”"
    return f"{counted(end - first, 'generated token')}, whose text is not delivered or too far back"


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
        owned = "cached" if state.owner[block] == CACHED else "owned"
        return (block, owned, owners, *where, filled, int(state.references[block]), when)


def block_facts(state: KvState, seconds: Seconds) -> Facts:
    return Facts(COLUMNS, BlockRows(state, seconds))
