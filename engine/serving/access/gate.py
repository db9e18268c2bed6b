"""What stands before every route: the name it is called by, who calls, and how much they send. Pure ASGI."""

import logging
import socket
import traceback
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.serving.access.keys import KeyRing
from engine.serving.access.tokens import TokenReader
from engine.serving.errors import ApiError
from engine.serving.settings import LOCAL, ServingSettings

OPEN = "/health"  # the one route that asks for no key
STARTS = ("http.response.start", "websocket.http.response.start", "websocket.accept")  # of an answer
log = logging.getLogger("batchscope.serving")


def _host(header: str) -> str:
    """A Host header's name without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


class HostGate:
    """Refuses requests for another host's name, as a page in a browser could send them here (DNS rebinding): known are
    addresses, this machine's names and those allowed. Its errors, and those of all behind it, are told to nobody but
    the log, which says where and never what."""

    def __init__(self, app: ASGIApp, settings: ServingSettings) -> None:
        self._app = app
        names = {*LOCAL, settings.host, *settings.allowed_hosts}
        if not settings.loopback:
            names |= {socket.gethostname(), socket.getfqdn()}
        self._names = {name.lower() for name in names}

    def _known(self, header: str) -> bool:
        name = _host(header).lower()
        if name in self._names:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def told(message: Message) -> None:
            nonlocal started
            started = started or message["type"] in STARTS
            await send(message)

        if not self._known(Headers(scope=scope).get("host", "")):
            wrong = ApiError(400, "the Host header names another host; see --allow-host", None, "invalid_host")
            await wrong.response(scope, receive, send)
            return
        try:
            await self._app(scope, receive, told)
        except Exception as error:
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s %s: %s\n%s", scope.get("method", "WATCH"), scope["path"], type(error).__name__, where)
            if not started:
                await ApiError(500, "the server failed; its log says where").response(scope, receive, send)


class KeyGate:
    """Asks every caller but of /health for a key or a token, where there are any. The scope then has the `caller`'s
    name, and in `known` a function that tells whether the key is still good: a watcher stays for hours."""

    def __init__(self, app: ASGIApp, keys: KeyRing, tokens: TokenReader | None) -> None:
        self._app, self._keys, self._tokens = app, keys, tokens
        self._required = keys.required or tokens is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["caller"], scope["known"] = "", lambda: True
        if self._required and scope["path"] != OPEN:
            kind, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
            given = given.strip() if kind.lower() == "bearer" else ""
            caller = self._caller(given) if given else None
            if caller is None:
                said = "this key is not known" if given else "a key is needed: send Authorization: Bearer KEY"
                await ApiError(401, said, None, "invalid_api_key").response(scope, receive, send)
                return
            scope["caller"], scope["known"] = caller, lambda: self._caller(given) == caller
        await self._app(scope, receive, send)

    def _caller(self, given: str) -> str | None:
        if (name := self._keys.name_of(given)) is not None:
            return name
        return self._tokens.subject_of(given) if self._tokens is not None else None


class BodyGate:
    """Refuses bodies over `most` bytes, told or sent."""

    def __init__(self, app: ASGIApp, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        told = Headers(scope=scope).get("content-length", "0")
        if told.isdecimal() and int(told[:20]) > self._most:
            await self._too_long().response(scope, receive, send)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                raise self._too_long()
            return message

        await self._app(scope, counted, send)

    def _too_long(self) -> ApiError:
        return ApiError(413, f"the body has more than {self._most:,} bytes, the most that is taken", None, "too_large")
