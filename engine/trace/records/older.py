"""Records of earlier formats, as this one has them.

1: blocks of a step in columns `taken`, `taken_request` and `freed`, and `text_end` a row.
2: also blocks that were `shared` or `cached`; the modes.
3: what happened to blocks as events in order, `text_end` a token.
4: graphs.
5: ranks. Whatever came since has a default.
"""

from typing import Any

import numpy as np

from engine.trace.column import Array
from engine.trace.records.step import BlockEvent

OLDEST = 1
EVENTS = 3  # the first format with events
GONE = frozenset(("taken", "taken_request", "freed", "shared", "shared_request", "cached"))
_NONE = np.zeros(0, np.int32)
_Event = tuple[BlockEvent, int, int, int]  # block, its owner, its place there


class Older:
    """Takes a run's records in order, since an owner's blocks are told by what came before. Formats 1 and 2 did not say
    which sample of a request owned a block, nor when one owner of several left: all are told as the first sample's,
    and leave together."""

    def __init__(self, version: int) -> None:
        self.version = version
        self._owners: dict[int, list[tuple[int, int]]] = {}  # of each block: requests, and the block's place there
        self._held: dict[int, int] = {}  # the next place of each request

    def __call__(self, kind: str, values: dict[str, Any]) -> None:
        """Brings the fields of a record up to date."""
        if kind == "Header":
            values.pop("version", None)
        if self.version >= EVENTS:
            return
        if kind == "Step":
            values["text_end"] = _text_ends(values)
            told = {name: values.pop(name, _NONE).tolist() for name in GONE}
            events = self._events(told)
            columns = zip(*events) if events else ((),) * 4
            for name, column in zip(("block_event", "block", "block_request", "block_place"), columns):
                values[name] = np.array(column, np.uint8 if name == "block_event" else np.int32)
            values["block_branch"] = np.where(values["block_request"] < 0, -1, 0).astype(np.int32)
        elif kind == "Ended" and len(values.get("token", ())):
            values["text_end"] = np.zeros(len(values["token"]), np.int32)

    def _events(self, told: dict[str, list[int]]) -> list[_Event]:
        """A block that changed hands within a step was told as taken alone."""
        events: list[_Event] = []
        for block, request in zip(told["taken"], told["taken_request"]):
            if self._owners.get(block):
                events += self._leave(block, BlockEvent.FREED)
            events.append((BlockEvent.TAKEN, block, request, self._come(block, request)))
        for block, request in zip(told["shared"], told["shared_request"]):
            events.append((BlockEvent.SHARED, block, request, self._come(block, request)))
        for block in told["cached"]:
            events += self._leave(block, BlockEvent.KEPT)
        for block in told["freed"]:
            events += self._leave(block, BlockEvent.FREED)
        return events

    def _come(self, block: int, request: int) -> int:
        place = self._held.get(request, 0)
        self._held[request] = place + 1
        self._owners.setdefault(block, []).append((request, place))
        return place

    def _leave(self, block: int, event: BlockEvent) -> list[_Event]:
        *others, (request, place) = self._owners.pop(block, None) or [(-1, -1)]
        events = [(BlockEvent.LEFT, block, other, at) for other, at in others]
        for owner in {request, *(other for other, _ in others)}:
            if owner >= 0 and not any(owner == other for held in self._owners.values() for other, _ in held):
                self._held.pop(owner, None)
        return [*events, (event, block, request, place)]


def _text_ends(values: dict[str, Any]) -> Array:
    """A row's text as that of its last token."""
    row, ends = values["token_row"], values["text_end"]
    begins = np.concatenate(([0], ends[:-1])).astype(np.int32)
    last = np.append(row[1:] != row[:-1], True)[: len(row)]
    return np.where(last, ends[row], begins[row]).astype(np.int32)
