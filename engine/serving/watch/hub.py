"""What all watchers of one engine share: its trace as it stands, its name as a run, who has control, and what they sent
in."""

import uuid
from collections import Counter
from threading import Lock

from engine.remote.frames import pack
from engine.serving.service import Service
from engine.serving.watch.control import Control
from engine.serving.watch.recent import Recent
from engine.serving.watch.requests import WindowRequests
from engine.serving.watch.texts import without_texts
from engine.trace.records import Record

HISTORY = 2_048  # records that who joins late is sent at most beside how things stood before them
PIECE = 256  # records that are fed while others wait
FRAME = 256 << 10  # bytes of records in a frame, before they are deflated
MOST_WATCHERS = 64
MOST_OF_A_KEY = 16


class Gap(Exception):
    """Records that a watcher was to be sent are no longer there."""


class Hub:
    """Of an engine whose trace's first records are there, or in which nothing is open."""

    def __init__(self, service: Service, control: Control) -> None:
        trace, self.run = service.engine.trace, uuid.uuid4().hex
        self.trace, self.control, self.share_texts = trace, control, service.settings.share_text
        self.requests = WindowRequests(service)
        self.watchers: Counter[str] = Counter()  # by key
        self._recent, self._lock = Recent(), Lock()
        if trace.records.first:
            self._recent.begin(trace.header, len(trace.records))

    def full(self, caller: str) -> str:
        """Why nobody else may watch with this key; "" where somebody may."""
        if self.watchers.total() >= MOST_WATCHERS:
            return f"{MOST_WATCHERS} windows watch already"
        if caller and self.watchers[caller] >= MOST_OF_A_KEY:
            return f"{MOST_OF_A_KEY} windows of this key watch already"
        return ""

    @property
    def position(self) -> int:
        """Up to where the trace may be forgotten: what is before is told by how things stand."""
        return self._recent.position

    def keep_up(self) -> None:
        """Follows the trace, a little behind its end. Takes some 100 µs a step of 64 rows: not on the event loop."""
        end = len(self.trace.records) - HISTORY
        while self._recent.position < end:
            with self._lock:
                begin = self._recent.position
                if begin < self.trace.records.first:
                    raise RuntimeError("records were let go that nobody had looked at")
                for record in self.trace.records[begin : min(end, begin + PIECE)]:
                    self._recent.feed(record)

    def beginning(self, texts: bool) -> tuple[list[Record], int]:
        """How things stood at a position, and that."""
        with self._lock:
            told, position = self._recent.records(), self._recent.position
        return [record if texts else without_texts(record) for record in told], position

    def frame(self, begin: int, end: int, texts: bool) -> tuple[bytes, int]:
        """The records from `begin` on, as many as make a frame, and the position after them. Raises Gap."""
        end = min(end, begin + PIECE)
        records = self.trace.records[begin:end] if begin >= self.trace.records.first else []
        if len(records) < end - begin:  # they were let go meanwhile
            raise Gap
        frame, count = pack(begin, records if texts else map(without_texts, records), FRAME)
        return frame, begin + count
