"""From the event loop to those who keep or pass on what is known of requests."""

import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from prometheus_client import Metric
from starlette.requests import ClientDisconnect

from engine.serving.errors import ApiError
from engine.serving.exchange.exchange import Exchange
from engine.serving.exchange.facts import Facts

MOST_PENDING = 1024  # exchanges that are over and have not been taken yet
MOST_BYTES = 64 << 20  # of their bodies
CLOSING = 5.0  # seconds that are waited for what is pending at the end
log = logging.getLogger("batchscope.serving")


class Sink(Protocol):
    """`take` is called on the outlet's thread alone, and waits for nothing but this machine's disk."""

    def take(self, facts: Sequence[Facts]) -> None: ...
    def lose(self, count: int) -> None:
        """So many came faster than they could be taken."""

    def collect(self) -> Iterable[Metric]:
        """What Prometheus is told of it."""

    def close(self) -> None: ...


class Outlet:
    """Takes exchanges as they end and never waits: its thread tells all sinks of them."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self.sinks = sinks
        self._pending: deque[Exchange] = deque()
        self._bytes = self._lost = 0
        self._changed = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="outlet", daemon=True)
        if sinks:
            self._thread.start()

    @contextmanager
    def open(self, exchange: Exchange) -> Iterator[Exchange]:
        """It ends with the block; what is raised there is its error."""
        try:
            yield exchange
        except ApiError as error:
            exchange.refuse(error)
            raise
        except ClientDisconnect:
            exchange.leave()
            raise
        except Exception as error:
            exchange.status, exchange.error = 500, type(error).__name__
            raise
        except BaseException:
            exchange.status, exchange.error = 503, "cancelled"
            raise
        finally:
            exchange.ended = time.perf_counter()
            if self.sinks:
                self._put(exchange)

    def _put(self, exchange: Exchange) -> None:
        with self._changed:
            if len(self._pending) >= MOST_PENDING or self._bytes + exchange.size > MOST_BYTES or self._closing:
                self._lost += 1
            else:
                self._bytes += exchange.size
                self._pending.append(exchange)
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._lost or self._closing)
                new, lost = list(self._pending), self._lost
                self._pending.clear()
                self._bytes = self._lost = 0
                if self._closing and not new and not lost:
                    return
            self._tell(new, lost)

    def _tell(self, new: Sequence[Exchange], lost: int) -> None:
        try:
            facts = [Facts.of(exchange) for exchange in new]
            for sink in self.sinks:
                if facts:
                    sink.take(facts)
                if lost:
                    sink.lose(lost)
        except Exception as error:  # a defect of ours, which no request is to suffer from: the log says where, not what
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("what became of %d requests is not kept: %s\n%s", len(new), type(error).__name__, where)

    def close(self) -> None:
        """Tells what is pending, then closes the sinks. Idempotent."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(CLOSING)
        for sink in self.sinks:
            sink.close()
