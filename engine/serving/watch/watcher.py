"""One connection of a window: what it is sent, at its own pace, and what it asks for."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from engine.config.checks import InvalidInput
from engine.config.live_budget import BudgetChanges
from engine.remote.asks import heard, token_ids
from engine.remote.frames import STATE, pack
from engine.serving.errors import ApiError
from engine.serving.service import Service
from engine.serving.watch.control import Seat
from engine.serving.watch.hub import FRAME, Gap, Hub

WINDOW = 256 << 10  # bytes that may be under way to a window: one that takes none is sent none
PAUSE = 0.033  # seconds between looks at the trace
PULSE = 1.0  # seconds between words on where the trace ends
LONG = 64 << 10  # characters of a message from which on it is read off the event loop
READS = ("encode", "decode", "pieces")

Json = dict[str, Any]


class Watcher:
    """`known`: whether its key is still good."""

    def __init__(self, socket: WebSocket, service: Service, hub: Hub, seat: Seat, known: Callable[[], bool]) -> None:
        self._socket, self._service, self._hub = socket, service, hub
        self._seat, self._known = seat, known
        self._stood = self.standing
        self._position = 0  # of the first record that it was not sent
        self._caller: str = socket.scope["caller"]
        self._sent = self._took = 0  # bytes of frames
        self._took_more = asyncio.Event()
        self._turn = asyncio.Lock()  # held while a request comes in: its answer goes out before its records
        self.left_for_good = False

    async def live(self, run: str, position: int) -> None:
        """From `position` of `run` on, where that is this one and is still there; else from how things stand."""
        tasks = [asyncio.create_task(part) for part in (self._tell(run, position), self._listen())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # a socket that closes while it is written
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def say(self, **words: Any) -> None:
        await self._socket.send_text(json.dumps(words))

    @property
    def standing(self) -> Json:
        """What it may do here, as it is told."""
        return self._seat.standing._asdict() | {"texts": self._texts}

    @property
    def _texts(self) -> bool:
        """Whether it may read what is said."""
        return self._hub.share_texts or not self._seat.standing.observes

    # -- what it is sent ------------------------------------------------------------------------------------------

    async def _tell(self, run: str, position: int) -> None:
        hub, records = self._hub, self._hub.trace.records
        async with self._turn:
            self._position = position
            if run == hub.run and records.first <= position <= len(records):
                await self.say(say="resume", run=run, position=position)
            else:
                await self._begin("behind" if run == hub.run else "")
        told = 0.0
        while True:
            await self._say_standing()
            if time.monotonic() - told > PULSE:
                told = time.monotonic()
                if not self._known():
                    return await self._dismiss()
                await self.say(say="at", end=len(records))
            async with self._turn:
                end = len(records)
                new = self._position < end and self._sent - self._took < WINDOW
                if new:
                    try:
                        next_frame = hub.frame, self._position, end, self._texts
                        frame, self._position = await self._service.aside(*next_frame)
                        await self._send(frame)
                    except Gap:
                        await self._begin("behind")
            if self._position < end and not new:  # its window is full: it is behind, and the engine does not wait
                self._took_more.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._took_more.wait(), PULSE)
            elif not new or end - self._position < 1:
                await asyncio.sleep(PAUSE)

    async def _begin(self, why: str) -> None:
        """Tells how things stand, from where on records follow, and why that is told: the window is "behind", or reads
        "texts" from now on."""
        told, begins = await self._service.aside(self._hub.beginning, self._texts)
        lost = begins - self._position if why == "behind" else 0
        await self.say(say="begin", run=self._hub.run, position=begins, state=len(told), lost=lost, why=why)
        while told:
            frame, count = await self._service.aside(pack, STATE, told, FRAME)
            await self._send(frame)
            told = told[count:]
        self._position = begins

    async def _send(self, frame: bytes) -> None:
        self._sent += len(frame)
        await self._socket.send_bytes(frame)

    async def _dismiss(self) -> None:
        """Who takes nothing is not waited for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PULSE):
                await self._socket.close(4401, "the key is no longer known, or another connection took its place")

    async def _say_standing(self) -> None:
        """Where that has changed."""
        if (stands := self.standing) != self._stood:
            self._stood = stands
            await self.say(say="stands", **stands)

    # -- what it asks for -----------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while self._socket.client_state is WebSocketState.CONNECTED:
            asked = await said_by(self._socket, self._service)
            if not self._known():
                return await self._dismiss()
            match asked:
                case {"do": "took", "bytes": int(took)}:
                    self._took = min(max(took, self._took), self._sent)
                    self._took_more.set()
                case {"do": "bye"}:
                    self.left_for_good = True
                    return
                case {"do": "cancel", "requests": requests}:
                    with contextlib.suppress(InvalidInput):
                        self._cancel(requests)
                case {"do": str(verb), "call": int(call)}:
                    await self._answer(verb, call, asked)
                case _:
                    await self._socket.close(4400, "that is no message")
                    return

    async def _answer(self, verb: str, call: int, asked: Json) -> None:
        try:
            if verb == "submit":
                async with self._turn:
                    await self.say(say="told", call=call, answer=await self._submit(asked))
            elif verb == "control":
                await self._control(asked.get("take") is True)
                await self.say(say="told", call=call, answer=None)
            elif verb == "steer":
                await self.say(say="told", call=call, answer=await self._steer(asked))
            elif verb in READS:
                await self.say(say="told", call=call, answer=await self._read(verb, asked))
            else:
                raise InvalidInput(f"{verb[:40]!r} is nothing that a window can ask for")
        except (InvalidInput, ApiError) as error:
            await self.say(say="refused", call=call, why=str(error))

    def _controls(self) -> None:
        if why := self._seat.standing.observes:
            raise InvalidInput(why)

    async def _control(self, take: bool) -> None:
        """Takes control, or gives it back. Who has it now, and read no texts before, is told anew what runs: before the
        answer, and so before anything that it sends."""
        async with self._turn:
            read = self._texts
            if take and (why := self._seat.take()):
                raise InvalidInput(why)
            if not take:
                self._seat.give_back()
            await self._say_standing()
            if self._texts and not read:
                await self._begin("texts")

    async def _submit(self, asked: Json) -> list[Json]:
        streams = await self._hub.requests.submit(asked, self._caller, self._seat.standing.observes)
        names = "request", "submitted", "prompt_tokens", "samples"
        return [{name: getattr(stream, name) for name in names} for stream in streams]

    def _cancel(self, requests: Any) -> None:
        self._controls()
        self._service.engine.cancel(None if requests is None else token_ids(requests))

    async def _steer(self, asked: Json) -> Json:
        self._controls()
        given: Json = {name: asked[name] for name in BudgetChanges.__annotations__ if asked.get(name) is not None}
        return asdict(await self._service.ask(lambda: self._service.engine.steer(**given)))

    async def _read(self, verb: str, asked: Json) -> Any:
        engine, given = self._service.engine, asked.get("given")
        with self._service.admission.enter(self._caller):
            if verb == "encode":
                prompt = heard({"prompt": given, "params": {}, "age": 0, "label": ""}).prompt
                return await self._service.ask(lambda: engine.encode(prompt))
            tokens = token_ids(given)
            return await self._service.ask(lambda: getattr(engine, verb)(tokens))


async def said_by(socket: WebSocket, service: Service) -> Json:
    """The next message of a window; {} for what is none. Raises WebSocketDisconnect."""
    try:
        message = await socket.receive_text()
        value = json.loads(message) if len(message) < LONG else await service.aside(json.loads, message)
    except (ValueError, RecursionError, KeyError):  # the last one: bytes
        return {}
    return value if isinstance(value, dict) else {}
