"""Rows on their way: from the outlet's thread into the spool, from the spool into the database."""

import logging
import threading
import time
from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from engine.config.checks import InvalidInput
from engine.serving.exchange import Facts
from engine.serving.request_log.database import Away, Database
from engine.serving.request_log.spool import Spool
from engine.serving.request_log.table import row_of
from engine.serving.settings import RequestLogSettings

BATCH = 500  # rows of one commit at most
GATHER = 0.2  # seconds in which rows come together for one
LONGEST_PAUSE = 10.0  # seconds between two tries, of a database that is away
CLOSING = 5.0  # seconds that the rest may take at the end
SAID = 60.0  # seconds between two lines on rows that are dropped
log = logging.getLogger("batchscope.serving")


class RequestLog:
    """A sink of requests that are over, and what Prometheus is told of it. Raises InvalidInput.

    Each row is in the spool before the database is asked, and leaves it when it was committed. So a database may go
    away and come back, and the server may be killed, and no row is lost or there twice, while the spool has room; then
    the newest rows are dropped, and counted.
    """

    def __init__(self, settings: RequestLogSettings) -> None:
        self._text = settings.text
        self.written = self.dropped = self.refused = 0
        self.up = True
        self._said = -SAID
        self._changed = threading.Condition()
        self._closing = False
        self._end = 0.0
        self.database = Database(settings.database)
        try:
            away = self._first_look()
            self.spool = Spool(settings.spool, settings.spool_bytes)
        except BaseException:
            self.database.close()
            raise
        if away is not None:
            self._tell_away(away)
        self._thread = threading.Thread(target=self._write, name="request-log", daemon=True)
        self._thread.start()

    def _first_look(self) -> Away | None:
        """Whether it is away: then it may come back, but for a file of this machine."""
        try:
            self.database.check()
        except Away as away:
            if self.database.file is not None:
                raise InvalidInput(f"request_log={self.database.name}: {away}; name another file, or a URL") from None
            return away
        return None

    # -- the outlet's thread

    def take(self, facts: Sequence[Facts]) -> None:
        rows = [row_of(one, self._text) for one in facts]
        if (lost := len(rows) - self.spool.append(rows)) > 0:
            self.lose(lost)
        with self._changed:
            self._changed.notify()

    def lose(self, count: int) -> None:
        self.dropped += count
        if (now := time.monotonic()) - self._said > SAID:
            self._said = now
            log.error("the request log's spool %s is full: %s rows were dropped", self.spool.path, f"{self.dropped:,}")

    # -- its own

    def _write(self) -> None:
        pause = GATHER
        while self._wait(pause):
            rows, place = self.spool.read(BATCH)
            try:
                self.refused += (refused := self.database.insert(rows))
            except (
                Exception
            ) as error:  # it is away, or a defect of ours: either way the rows stay, and it is tried again
                self._tell_away(error if isinstance(error, (Away, InvalidInput)) else type(error).__name__)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            self.written += len(rows) - refused
            self.spool.advance(place)
            pause = 0.0 if self.spool.pending else GATHER
            if not self.up:
                self.up = True
                log.warning("the request log's database answers again")

    def _wait(self, pause: float) -> bool:
        """Until there are rows, and `pause` seconds have gone by; False where it is to end."""
        with self._changed:
            self._changed.wait_for(lambda: self.spool.pending or self._closing)
            self._changed.wait_for(lambda: self._closing, pause)
        return bool(self.spool.pending) and not (self._closing and (time.monotonic() > self._end or not self.up))

    def _tell_away(self, why: Exception | str) -> None:
        if self.up:
            self.up = False
            where = self.database.name
            log.warning("the request log's database %s is away (%s); rows wait in %s", where, why, self.spool.path)

    def close(self) -> None:
        """What is in the spool is written, where that takes no longer than a moment; else the next server does it."""
        with self._changed:
            self._closing, self._end = True, time.monotonic() + CLOSING
            self._changed.notify()
        self._thread.join(CLOSING + 1)
        if not self._thread.is_alive():  # else it holds both, until the process ends
            self.database.close()
            self.spool.close()

    # -- Prometheus

    def collect(self) -> Iterator[Metric]:
        rows = CounterMetricFamily(
            "batchscope:request_log_rows", "Rows of the request log, by what became of them.", labels=["outcome"]
        )
        for outcome, count in (("written", self.written), ("dropped", self.dropped), ("refused", self.refused)):
            rows.add_metric([outcome], count)
        yield rows
        for name, told, value in (
            ("spool_bytes", "Rows that wait for the database, in bytes.", self.spool.pending),
            ("up", "Whether the database took the last rows.", self.up),
        ):
            yield GaugeMetricFamily(f"batchscope:request_log_{name}", told, float(value))
