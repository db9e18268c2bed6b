"""What windows have sent in: it goes on while a connection is lost, and is told of as all others' requests are."""

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from engine.config.checks import InvalidInput
from engine.config.submission import Prompt, Submission
from engine.core.stream import Stream
from engine.remote.asks import heard
from engine.remote.frames import PATH
from engine.serving.errors import ApiError, engine_failed, refused
from engine.serving.exchange import Exchange
from engine.serving.service import Service
from engine.trace.records import FinishReason

MOST_AT_ONCE = 4_096  # submissions of one message
TOKEN_BYTES = 8  # of a prompt's token id, about


class WindowRequests:
    """Each is an exchange of its own, by the name of the window's key: so all others see it too, who are to be told
    no words of the window's own, and nobody speaks in another's name. On the event loop's thread alone."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._open: dict[str, tuple[Exchange, ExitStack]] = {}
        self._tasks: set[asyncio.Task[list[Stream]]] = set()

    async def submit(self, asked: dict[str, Any], caller: str, barred: str) -> list[Stream]:
        """Of one message; `barred` is why its window may send nothing. Raises ApiError, and then none was taken. Who
        gives up waiting for it changes nothing: what the engine was sent is known here."""
        task = asyncio.create_task(self._submit(asked, caller, barred))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[list[Stream]]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # asyncio would print one that nobody took, and with it what was sent

    async def _submit(self, asked: dict[str, Any], caller: str, barred: str) -> list[Stream]:
        exchanges = [self._exchange(caller)]
        with ExitStack() as end:
            end.enter_context(self._service.open(exchanges[0]))  # a message that is refused is one exchange
            if barred:
                raise ApiError(403, barred, None, "no_control")
            try:
                submissions = _submissions(asked)
            except InvalidInput as error:
                raise refused(error) from None
            exchanges += [self._exchange(caller) for _ in submissions[1:]]
            for exchange, one in zip(exchanges, submissions, strict=True):
                exchange.prompts, exchange.params, exchange.size = [one.prompt], one.params, _size(one.prompt)
                exchange.label, exchange.submitted = caller or one.label, one.time or 0.0
            await self._service.submit(exchanges, asked.get("more") is True)
            ends = [end.pop_all(), *(ExitStack() for _ in exchanges[1:])]
        streams = []
        for exchange, each in zip(exchanges, ends, strict=True):
            if exchange is not exchanges[0]:
                each.enter_context(self._service.open(exchange))
            self._open[exchange.id] = exchange, each
            (stream,) = exchange.streams
            self._service.delivery.follow(stream, partial(self._over, exchange.id))
            streams.append(stream)
        return streams

    def _exchange(self, caller: str) -> Exchange:
        return Exchange(f"window-{uuid.uuid4().hex}", PATH, caller, self._service.model, streamed=True)

    def _over(self, name: str) -> None:
        exchange, end = self._open.pop(name)
        for ended in exchange.streams[0].ended.values():
            if ended.reason is FinishReason.ERROR:
                exchange.refuse(engine_failed(ended))
            elif ended.reason is FinishReason.CANCELLED:
                exchange.leave()
        end.close()

    def close(self) -> None:
        """The server ends: so do those that are open."""
        for exchange, end in self._open.values():
            exchange.refuse(ApiError(503, "the server ended", None, "unavailable"))
            for stream in exchange.streams:
                stream.cancel()
            end.close()
        self._open.clear()


def _submissions(asked: dict[str, Any]) -> Sequence[Submission]:
    """Raises InvalidInput."""
    given = asked.get("submissions")
    if not isinstance(given, list) or not 0 < len(given) <= MOST_AT_ONCE:
        raise InvalidInput(f"submissions: must be a list of 1 to {MOST_AT_ONCE:,}")
    return [heard(one) for one in given]


def _size(prompt: Prompt) -> int:
    """Bytes, about."""
    if isinstance(prompt, str):
        return len(prompt)
    return sum(len(part["content"]) if isinstance(part, dict) else TOKEN_BYTES for part in prompt)
