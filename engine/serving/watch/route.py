"""GET /v1/watch: where a window at another desk joins."""

import asyncio
import contextlib
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from engine.remote.frames import PROTOCOL
from engine.serving.errors import ApiError
from engine.serving.fleet import Fleet
from engine.serving.service import Service
from engine.serving.settings import ServingSettings
from engine.serving.watch.control import Seat
from engine.serving.watch.hub import Hub
from engine.serving.watch.watcher import Watcher, said_by
from engine.trace.records import VERSION

HELLO_SECONDS = 10.0  # that a window may take to say what it wants


class WatchRoute:
    """An ASGI endpoint for WebSockets. A page in a browser, which no same-origin rule keeps from one, is refused unless
    its origin may call the server."""

    def __init__(self, service: Service, hub: Hub, settings: ServingSettings) -> None:
        self._service, self._hub, self._settings = service, hub, settings

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        socket = WebSocket(scope, receive, send)
        origin = socket.headers.get("origin")
        if origin is not None and origin not in self._settings.origins:
            said = "a page of another origin may not watch; see --cors"
            await socket.send_denial_response(ApiError(403, said, None, "origin").response)
            return
        caller = scope["caller"]
        if said := self._hub.full(caller):
            await socket.send_denial_response(ApiError(429, said, None, "rate_limit_exceeded", 10).response)
            return
        self._hub.watchers[caller] += 1
        try:
            with contextlib.suppress(WebSocketDisconnect):
                await socket.accept()
                await self._greet(socket)
        finally:
            self._hub.watchers[caller] -= 1

    async def _greet(self, socket: WebSocket) -> None:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                asked = await said_by(socket, self._service)
        except TimeoutError:
            asked = {}
        match asked:
            case {"do": "hello", "protocol": int(protocol), "records": int(records)} if (protocol, records) != (
                PROTOCOL,
                VERSION,
            ):
                newer = (protocol, records) > (PROTOCOL, VERSION)
                older = "the server" if newer else "this window"
                said = (
                    f"the window speaks version {protocol}.{records}, the server {PROTOCOL}.{VERSION}: update {older}"
                )
                await self._refuse(socket, said)
            case {"do": "hello", "client": str(client), "run": str(run), "position": int(position)} if (
                16 <= len(client) <= 64 and position >= 0
            ):
                await self._live(socket, client, asked.get("control") is True, run, position)
            case _:
                await self._refuse(socket, "that is no window of Batchscope")

    async def _refuse(self, socket: WebSocket, why: str) -> None:
        await socket.send_json({"say": "refused", "call": -1, "why": why})
        await socket.close(4400)

    async def _live(self, socket: WebSocket, client: str, wants: bool, run: str, position: int) -> None:
        caller, known, left = socket.scope["caller"], socket.scope["known"], asyncio.Event()
        seat = Seat(self._hub.control, client, caller, left.set)
        if wants:
            seat.take()
        watcher = Watcher(socket, self._service, self._hub, seat, lambda: known() and not left.is_set())
        try:
            about = {"protocol": PROTOCOL, "records": VERSION, "model": self._service.model}
            engine = self._service.engine
            about |= {"replicas": engine.size if isinstance(engine, Fleet) else 0, "caller": caller}
            await watcher.say(say="welcome", **about, **watcher.standing)
            await watcher.live(run, position)
        finally:
            seat.lose(watcher.left_for_good)
