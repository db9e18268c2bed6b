"""Which tokens are in a block, from the trace: ids of the prompt's, the text of those that were generated. No Qt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.inside.kv_map.state import KvState
from engine.trace import Kind, Record, Step, Submitted

FURTHEST = 8192  # records that are looked through for a token's text
MOST_IDS = 8


def content_words(state: KvState, block: int, records: Sequence[Record], position: int) -> str:
    """The tokens of a block whose owner is known, in words. `records[:position]` is the trace up to the state."""
    request, branch = int(state.writer[block]), int(state.writer_branch[block])
    at = int(state.requests.position[request]) if 0 <= request < len(state.requests.position) else -1
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
    if end > prompt:
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
        token = int(record.first[row] + record.count[row])
        if len(emitted) == 1 and first <= token < end:
            i = int(emitted[0])
            parts[token] = record.text[int(record.text_end[i - 1]) if i else 0 : int(record.text_end[i])]
        if len(emitted) and token <= first:
            break
    if len(parts) == end - first:
        return f"“{_plain(''.join(parts[token] for token in range(first, end)))}”"
    count = end - first
    return f"{count} generated token{'s' if count > 1 else ''}, whose text is not delivered or too far back"


def _plain(text: str, most: int = 160) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"
