"""Asks a server what its fleet does, on a thread of its own."""

import contextlib
import http.client
import json
import threading
from queue import Empty, SimpleQueue
from socket import SHUT_RDWR
from urllib.parse import urlsplit

from PySide6.QtCore import QObject, Signal

from app.fleet.state import FleetState, fleet_state
from app.language import tr
from engine.remote import ServerAddress

EVERY = 0.1  # seconds between looks
TIMEOUT = 5.0
LARGEST = 4 << 20  # bytes of an answer


class FleetSource(QObject):
    """Of the server at `address`. `told` has a FleetState, `failed` says why there is none; after a failure it asks
    on."""

    told = Signal(object)
    failed = Signal(str)
    refused = Signal(str)  # what a replica was to be ended for, in the server's words

    def __init__(self, address: ServerAddress, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.address, parts = address, urlsplit(address.url)
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._netloc, self._key = parts.netloc, address.key
        self._closing = threading.Event()
        self._connection: http.client.HTTPConnection | None = None
        self._kills: SimpleQueue[int] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="fleet-source", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if (connection := self._connection) is not None and (socket := connection.sock) is not None:
            with contextlib.suppress(OSError):
                socket.shutdown(SHUT_RDWR)  # a server that hangs holds no window up
        if self._thread.is_alive():
            self._thread.join(TIMEOUT)

    def kill(self, place: int) -> None:
        """Asks for the end of a replica; returns at once."""
        self._kills.put(place)

    # Its thread.

    def _run(self) -> None:
        while not self._closing.wait(EVERY):
            connection = self._connection
            try:
                if connection is None:
                    connection = self._connection = self._kind(self._netloc, timeout=TIMEOUT)
                self._end_those(connection)
                self.told.emit(self._state(connection))
            except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
                if not self._closing.is_set():
                    self.failed.emit(str(error) or type(error).__name__)
                if connection is not None:
                    connection.close()
                self._connection = None
                self._closing.wait(10 * EVERY)
        if self._connection is not None:
            self._connection.close()

    def _state(self, connection: http.client.HTTPConnection) -> FleetState:
        status, told = self._asked(connection, "GET", "/fleet", None)
        if status == 404:
            raise ValueError(tr("One engine answers there: serve with --replicas 2 or more."))
        if status != 200:
            raise ValueError(_words(told) or tr("The server answers with status {status}.", status=status))
        return fleet_state(told)

    def _end_those(self, connection: http.client.HTTPConnection) -> None:
        while True:
            try:
                place = self._kills.get_nowait()
            except Empty:
                return
            status, told = self._asked(connection, "POST", "/fleet/kill", {"place": place})
            if status != 200:
                self.refused.emit(_words(told))

    def _asked(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: object
    ) -> tuple[int, object]:
        head = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        if body is not None:
            head["Content-Type"] = "application/json"
        connection.request(method, path, json.dumps(body) if body is not None else None, head)
        answer = connection.getresponse()
        content = answer.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise ValueError(tr("The answer is too long for a fleet's."))
        return answer.status, json.loads(content)


def _words(told: object) -> str:
    """What an error's body says."""
    error = told.get("error") if isinstance(told, dict) else None
    said = error.get("message") if isinstance(error, dict) else None
    return said[:300] if isinstance(said, str) else ""
