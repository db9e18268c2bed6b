"""One connection of a window: what it is sent, at its own pace, and what it asks for."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from engine.config.checks import InvalidInput, number, whole
from engine.core.stream import Stream
from engine.remote.asks import heard, token_ids
from engine.remote.frames import STATE, pack
from engine.serving.errors import ApiError
from engine.serving.service import Service
from engine.serving.watch.hub import FRAME, Gap, Hub

WINDOW = 256 << 10  # bytes that may be under way to a window: one that takes none is sent none
PAUSE = 0.033  # seconds between looks at the trace
PULSE = 1.0  # seconds between words on where the trace ends
MOST_AT_ONCE = 4_096  # submissions of one message
READS = ("encode", "decode", "pieces")

Json = dict[str, Any]


class Watcher:
    """`texts`: it may read what is said. `observes`: why it may only look, "" where it has control. `known`: whether
    its key is still good."""

    def __init__(
        self, socket: WebSocket, service: Service, hub: Hub, *, texts: bool, observes: str, known: Callable[[], bool]
    ) -> None:
        self._socket, self._service, self._hub = socket, service, hub
        self._texts, self._observes, self._known = texts, observes, known
        self._caller: str = socket.scope["caller"]
        self._sent = self._took = 0  # bytes of frames
        self._took_more = asyncio.Event()
        self._turn = asyncio.Lock()  # held while a request comes in: its answer goes out before its records
        self._open: list[tuple[list[Stream], ExitStack]] = []  # what it has sent in, and its place in the queue
        self.left_for_good = False

    async def live(self, run: str, position: int) -> None:
        """From `position` of `run` on, where that is this one and is still there; else from how things stand."""
        tasks = [asyncio.create_task(part) for part in (self._listen(), self._tell(run, position))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # a socket that closes while it is written
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for _, place in self._open:
                place.close()

    async def say(self, **words: Any) -> None:
        await self._socket.send_text(json.dumps(words))

    # -- what it is sent ------------------------------------------------------------------------------------------

    async def _tell(self, run: str, position: int) -> None:
        hub, records = self._hub, self._hub.trace.records
        if run == hub.run and records.first <= position <= len(records):
            await self.say(say="resume", run=run, position=position)
        else:
            position = await self._begin(0)
        told = 0.0
        while True:
            if time.monotonic() - told > PULSE:
                told = time.monotonic()
                self._let_go()
                if not self._known():
                    await self._socket.close(4401, "the key is no longer known, or another connection took its place")
                    return
                await self.say(say="at", end=len(records))
            async with self._turn:
                end = len(records)
                new = position < end and self._sent - self._took < WINDOW
                if new:
                    try:
                        frame, position = await self._service.aside(hub.frame, position, end, self._texts)
                        await self._send(frame)
                    except Gap:
                        position = await self._begin(position)
            if position < end and not new:  # its window is full: it is behind, and the engine does not wait
                self._took_more.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._took_more.wait(), PULSE)
            elif not new or end - position < 1:
                await asyncio.sleep(PAUSE)

    async def _begin(self, position: int) -> int:
        """Tells how things stand; returns from where on records follow."""
        told, begins = await self._service.aside(self._hub.beginning, self._texts)
        lost = begins - position if position else 0
        await self.say(say="begin", run=self._hub.run, position=begins, state=len(told), lost=lost)
        while told:
            frame, count = await self._service.aside(pack, STATE, told, FRAME)
            await self._send(frame)
            told = told[count:]
        return begins

    async def _send(self, frame: bytes) -> None:
        self._sent += len(frame)
        await self._socket.send_bytes(frame)

    def _let_go(self) -> None:
        """Of the places in the queue of requests that are over."""
        for streams, place in self._open:
            if all(stream.done for stream in streams):
                place.close()
        self._open = [(streams, place) for streams, place in self._open if not all(s.done for s in streams)]

    # -- what it asks for -----------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        while self._socket.client_state is WebSocketState.CONNECTED:
            asked = await said_by(self._socket)
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
            elif verb == "steer":
                await self.say(say="told", call=call, answer=await self._steer(asked))
            elif verb in READS:
                await self.say(say="told", call=call, answer=await self._read(verb, asked))
            else:
                raise InvalidInput(f"{verb[:40]!r} is nothing that a window can ask for")
        except (InvalidInput, ApiError) as error:
            await self.say(say="refused", call=call, why=str(error))

    def _controls(self) -> None:
        if self._observes:
            raise InvalidInput(self._observes)

    async def _submit(self, asked: Json) -> list[Json]:
        self._controls()
        given = asked.get("submissions")
        if not isinstance(given, list) or not 0 < len(given) <= MOST_AT_ONCE:
            raise InvalidInput(f"submissions: must be a list of 1 to {MOST_AT_ONCE:,}")
        submissions = [heard(one) for one in given]
        more = asked.get("more") is True
        self._let_go()
        with ExitStack() as place:
            place.enter_context(self._service.admission.enter(self._caller, sum(s.params.n for s in submissions)))
            call = partial(self._service.engine.submit_many, submissions, more)
            streams = await self._service.ask(call)
            self._open.append((streams, place.pop_all()))
        names = "request", "submitted", "prompt_tokens", "samples"
        return [{name: getattr(stream, name) for name in names} for stream in streams]

    def _cancel(self, requests: Any) -> None:
        self._controls()
        self._service.engine.cancel(None if requests is None else token_ids(requests))

    async def _steer(self, asked: Json) -> Json:
        self._controls()
        given: Json = {}
        for name in ("token_budget", "max_running"):
            if asked.get(name) is not None:
                given[name] = whole(name, asked[name])
        if (share := asked.get("prefill_share")) is not None:
            given["prefill_share"] = number("prefill_share", share, 0.0, 1.0, "must be above 0 and at most 1")
        budget = await self._service.ask(lambda: self._service.engine.steer(**given))
        return {name: getattr(budget, name) for name in ("token_budget", "max_running", "prefill_share")}

    async def _read(self, verb: str, asked: Json) -> Any:
        engine, given = self._service.engine, asked.get("given")
        with self._service.admission.enter(self._caller):
            if verb == "encode":
                prompt = heard({"prompt": given, "params": {}, "age": 0, "label": ""}).prompt
                return await self._service.ask(lambda: engine.encode(prompt))
            tokens = token_ids(given)
            return await self._service.ask(lambda: getattr(engine, verb)(tokens))


async def said_by(socket: WebSocket) -> Json:
    """The next message of a window; {} for what is none. Raises WebSocketDisconnect."""
    try:
        value = json.loads(await socket.receive_text())
    except (ValueError, RecursionError, KeyError):  # the last one: bytes
        return {}
    return value if isinstance(value, dict) else {}
