"""The connection to a server, and the thread that keeps it: one that is lost is made again, sooner at first."""

import json
import ssl
import threading
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from engine.config.checks import InvalidInput
from engine.remote.address import ServerAddress
from engine.remote.frames import LARGEST

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

OPENING = 10.0  # seconds that a server may take to let a window in
SILENCE = 20.0  # seconds without a word, of which a server says one each second, after which a connection is dead
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0  # seconds between attempts
FOR_GOOD = (4400, 4401)  # codes with which a server says that another attempt fares no better


class ConnectionLost(RuntimeError):
    """The server cannot be reached now."""


class Refused(InvalidInput):
    """The server does not let this window in, whenever it asks."""


def connection_to(address: ServerAddress) -> "ClientConnection":
    """Raises ConnectionLost and Refused, with words for people that never show the key."""
    if find_spec("websockets") is None:
        raise InvalidInput("a window at a server needs websockets: pip install 'batchscope[serve]'")
    from websockets.exceptions import InvalidStatus, WebSocketException
    from websockets.sync.client import connect

    headers = {"Authorization": f"Bearer {address.key}"} if address.key else {}
    try:
        return connect(
            address.socket,
            additional_headers=headers,
            proxy=None if address.local else True,
            compression=None,
            max_size=LARGEST,
            open_timeout=OPENING,
            close_timeout=1.0,
            legacy=True,
        )
    except InvalidStatus as error:
        status, said = error.response.status_code, _message(error.response.body)
        if status in (401, 403):
            raise Refused(f"{address.url} does not let this window in: {said or f'status {status}'}") from None
        if status in (400, 404, 405, 426):
            told = said or "it is no Batchscope server, or an older one"
            raise Refused(f"{address.url} has nothing to watch: {told}") from None
        raise ConnectionLost(f"{address.url} answers {status}{f': {said}' if said else ''}") from None
    except ssl.SSLError as error:
        why = error.reason or error
        remedy = "$SSL_CERT_FILE may name its certificate"
        raise ConnectionLost(f"{address.url} cannot be trusted: {why}; {remedy}") from None
    except (OSError, WebSocketException) as error:
        why = getattr(error, "strerror", None) or str(error) or "it does not answer"
        raise ConnectionLost(f"{address.url} cannot be reached: {why}") from None


def _message(body: bytes | bytearray) -> str:
    """Of an error in OpenAI's form."""
    try:
        return str(json.loads(body)["error"]["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return ""


class Link:
    """Says `hello()` on every new connection, hands what comes to `take` on its thread, and tells of a connection that
    was `lost`. `failed` hears why there will be no other; so it does of whatever `take` raises."""

    def __init__(
        self,
        address: ServerAddress,
        hello: Callable[[], dict[str, Any]],
        take: Callable[[str | bytes], None],
        lost: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self._address, self._hello, self._take, self._lost, self._failed = address, hello, take, lost, failed
        self._closing = threading.Event()
        self._connection: ClientConnection | None = connection_to(address)
        self._thread = threading.Thread(target=self._keep, name="engine-link", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def say(self, words: dict[str, Any]) -> None:
        """From any thread. Raises ConnectionLost."""
        from websockets.exceptions import ConnectionClosed

        connection = self._connection
        if connection is None:
            raise ConnectionLost(f"{self._address.url} cannot be reached now")
        try:
            connection.send(json.dumps(words))
        except (ConnectionClosed, OSError):
            raise ConnectionLost(f"the connection to {self._address.url} was lost") from None

    def close(self) -> None:
        """Ends it, and its thread. Idempotent."""
        self._closing.set()
        if (connection := self._connection) is not None:
            connection.close()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # -- on its thread --------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        try:
            while (connection := self._connection) is not None:
                self._hear(connection)
                self._connection = None
                connection.close()
                if self._closing.is_set():
                    return
                self._lost()
                self._connection = self._again()
        except Exception as error:  # a refusal, or what cannot be read: from a network, that can be anything
            if (connection := self._connection) is not None:
                self._connection = None
                connection.close()
            if not self._closing.is_set():
                self._failed(str(error) if isinstance(error, ValueError) else f"{self._address.url}: {error!r:.200}")

    def _hear(self, connection: "ClientConnection") -> None:
        """Until the connection is over. Raises Refused, and ValueError where something else came than a server says."""
        from websockets.exceptions import ConnectionClosed

        try:
            connection.send(json.dumps(self._hello()))
            while not self._closing.is_set():
                self._take(connection.recv(SILENCE))
        except (ConnectionClosed, ConnectionLost, TimeoutError, OSError):
            if connection.close_code in FOR_GOOD:  # also where that is learnt as something is said
                raise Refused(f"{self._address.url} ended the connection: {connection.close_reason}") from None

    def _again(self) -> "ClientConnection | None":
        pause = FIRST_PAUSE
        while not self._closing.wait(pause):
            try:
                return connection_to(self._address)
            except ConnectionLost:
                pause = min(2 * pause, LONGEST_PAUSE)
        return None
