"""The routes that generate: from a body to streams, and from streams to an answer, whole or as events."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine.config.submission import Prompt
from engine.core.stream import Delta
from engine.serving.answers import Form, TokensTold
from engine.serving.answers.form import Json, usage
from engine.serving.asked import Sampled, read
from engine.serving.delivery import News, Reader
from engine.serving.errors import ApiError, engine_failed
from engine.serving.exchange import Exchange
from engine.serving.exchange.exchange import LONGEST_HEADER
from engine.serving.service import Service
from engine.trace.records import Ended, FinishReason
from engine.trace.thoughts import Parting

BODY_SECONDS = 60.0  # that a client may take to send a body
WORDS = {FinishReason.STOP: "stop", FinishReason.LENGTH: "length"}
HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


async def body_of(request: Request) -> bytes:
    """Raises ApiError where it takes too long."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.body()
    except TimeoutError:
        raise ApiError(408, f"the body took longer than {BODY_SECONDS:.0f} s", None, "timeout") from None


class Answering:
    """One generating route, as an ASGI endpoint. A client that goes away cancels what it asked for."""

    def __init__(self, service: Service, asked: type[Sampled], form: type[Form]) -> None:
        self._service, self._asked, self._form = service, asked, form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(ClientDisconnect):
            body = await body_of(Request(scope, receive))
            form = self._form(self._service.model)
            with self._service.open(_exchange(form, scope, len(body))) as exchange:
                await self._answer(read(self._asked, body), form, exchange, scope, receive, send)

    async def _answer(
        self, asked: Sampled, form: Form, exchange: Exchange, scope: Scope, receive: Receive, send: Send
    ) -> None:
        service = self._service
        exchange.streamed = bool(asked.stream)
        adapter = service.adapter(asked.model)
        form.name(asked.model)
        exchange.model, exchange.prompts = asked.model, asked.prompts
        exchange.params = asked.params(service.most_tokens).with_(adapter=adapter)
        await service.submit([exchange])
        with service.delivery.reading(exchange.streams) as reader:
            echoed = [await self._text(prompt) for prompt in asked.prompts] if asked.echoes else []
            watch = asyncio.create_task(_watch(receive, reader))
            try:
                answer = Answer(service, asked, form, reader, echoed)
                await (answer.stream(send) if asked.stream else answer.whole(scope, receive, send))
            finally:
                watch.cancel()
            if answer.failure is not None:
                exchange.refuse(answer.failure)
            elif reader.left:
                exchange.leave()

    async def _text(self, prompt: Prompt) -> str:
        if isinstance(prompt, str):
            return prompt
        return await self._service.ask(lambda: self._service.engine.decode(prompt))  # type: ignore[arg-type]


def _exchange(form: Form, scope: Scope, size: int) -> Exchange:
    headers = Headers(scope=scope)
    parent, state = (headers.get(name, "")[:LONGEST_HEADER] for name in ("traceparent", "tracestate"))
    caller: str = scope["caller"]
    return Exchange(form.id, scope["path"], caller, form.model, size, caller, parent, state)


async def _watch(receive: Receive, reader: Reader) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reader.leave()


class Answer:
    """One request's answer as it comes. Sample s of prompt p is choice p·n + s. `failure` is an error that came too
    late for a status."""

    def __init__(self, service: Service, asked: Sampled, form: Form, reader: Reader, echoed: Sequence[str]) -> None:
        self._service, self._asked, self._form, self._reader = service, asked, form, reader
        self._samples = reader.streams[0].samples
        self._echoed = [text for text in echoed for _ in range(self._samples)]
        self._length = [0] * (len(reader.streams) * self._samples)  # characters that each choice has so far
        self._tokens = 0
        self._partings: dict[int, Parting] = {}  # by choice, from its first text on
        self.failure: ApiError | None = None

    async def whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends it when all of it is there. Raises ApiError where a sample failed."""
        count = len(self._length)
        texts: list[list[str]] = [[text] for text in self._echoed] or [[] for _ in range(count)]
        thoughts: list[list[str]] = [[] for _ in range(count)]
        told: list[list[TokensTold]] = [[] for _ in range(count)]
        finish = [""] * count
        while news := await self._reader.news():
            for one in news:
                index = self._index(one)
                thought, text = self._parted(one)
                thoughts[index].append(thought)
                texts[index].append(text)
                if (new := await self._told(one)) is not None:
                    told[index].append(new)
                if one.ended is not None:
                    finish[index] = _finish(one.ended)
        if self._reader.left:
            return
        all_told = [TokensTold.joined(parts) if parts else None for parts in told]
        choices = [
            self._form.choice(i, "".join(texts[i]), all_told[i], finish[i], "".join(thoughts[i])) for i in range(count)
        ]
        content = to_json(self._form.body(choices, self._usage))
        await Response(content, media_type="application/json")(scope, receive, send)

    async def stream(self, send: Send) -> None:
        """Sends it as server-sent events: what has come of a sample since the last one is one event."""
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        firsts = [self._form.first(i) for i in range(len(self._length))]
        begun = [choice for choice in firsts if choice is not None]
        begun += [self._form.delta(i, text, None, None) for i, text in enumerate(self._echoed)]
        later = self._asked.usage_streamed
        await _send(send, self._form.events(begun, later))
        try:
            while news := await self._reader.news():
                new = [choice for one in news if (choice := await self._delta(one)) is not None]
                await _send(send, self._form.events(new, later))
        except ApiError as error:  # too late for a status: an event tells it, and no [DONE] follows
            self.failure = error
            await _send(send, b"data: " + to_json(error.body) + b"\n\n")
        else:
            if self._reader.left:
                return
            if later:
                await _send(send, b"data: " + to_json(self._form.chunk([], self._usage)) + b"\n\n")
            await _send(send, b"data: [DONE]\n\n")
        await send({"type": "http.response.body", "body": b""})

    async def _delta(self, one: News) -> Json | None:
        """What is new of a sample; nothing where all of its text is held back."""
        told = await self._told(one)
        finish = _finish(one.ended) if one.ended is not None else None
        thoughts, text = self._parted(one)
        if not text and not thoughts and told is None and finish is None:
            return None
        return self._form.delta(self._index(one), text, told, finish, thoughts)

    def _parted(self, one: News) -> tuple[str, str]:
        """What is new of a sample's thoughts, where the form tells them apart, and of its text."""
        deltas = one.deltas
        text = deltas[0].text if len(deltas) == 1 else "".join([delta.text for delta in deltas])
        if not self._form.parted:
            return "", text
        index = self._index(one)
        if index not in self._partings:  # a fleet's stream knows by now how its prompt ends
            self._partings[index] = Parting(self._reader.streams[one.stream].amid)
        parting = self._partings[index]
        if parting.answers:  # most of all answers, from their first token on
            return "", text
        parts = [parting.push(delta.text, len(delta.token_ids)) for delta in deltas]
        parts += [parting.flush()] if one.ended is not None else []
        return "".join([thought for thought, _ in parts]), "".join([said for _, said in parts])

    def _index(self, one: News) -> int:
        return one.stream * self._samples + one.sample

    async def _told(self, one: News) -> TokensTold | None:
        """Counts the tokens; tells of them where that was asked for."""
        deltas = one.deltas
        self._tokens += sum([len(delta.token_ids) for delta in deltas])
        if not self._asked.tells_logprobs or not deltas:
            return None
        tokens = [token for delta in deltas for token in delta.token_ids]
        logprobs = [value for delta in deltas for value in delta.logprobs]
        others = [beside for delta in deltas for beside in _beside(delta)]
        return TokensTold(await self._service.vocabulary.pieces(tokens), logprobs, others, self._offsets(one))

    def _offsets(self, one: News) -> list[int]:
        index, found = self._index(one), []
        for delta in one.deltas:
            found += [self._length[index]] * len(delta.token_ids)
            self._length[index] += len(delta.text)
        return found

    @property
    def _usage(self) -> dict[str, Any]:
        thought = sum(parting.tokens for parting in self._partings.values())
        return usage(sum(stream.prompt_tokens for stream in self._reader.streams), self._tokens, thought)


async def _send(send: Send, events: bytes) -> None:
    if events:
        await send({"type": "http.response.body", "body": events, "more_body": True})


def _beside(delta: Delta) -> Sequence[Sequence[tuple[int, float, str]]]:
    return delta.alternatives or [()] * len(delta.token_ids)


def _finish(ended: Ended) -> str:
    """Why a sample ended. Raises ApiError where that was no answer."""
    match ended.reason:
        case FinishReason.ERROR:
            raise engine_failed(ended)
        case FinishReason.CANCELLED:
            raise ApiError(503, "the request was stopped by the server", None, "unavailable", 1)
        case reason:
            return WORDS[reason]
