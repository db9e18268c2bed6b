"""What is sent to a server, and what of its answers is read."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from engine.compare.remote.server import Server
from engine.config.sampling_params import SamplingParams
from engine.config.submission import Prompt
from engine.trace.thoughts import THOUGHTS_CLOSED, THOUGHTS_OPENED

Json = dict[str, Any]
LONGEST_LINE = 4 << 20  # bytes of one event
LONGEST_ERROR = 64 << 10
TIMEOUT = httpx2.Timeout(600.0, connect=10.0)
AS_THEY_ARE = (
    "top_k min_p repetition_penalty frequency_penalty presence_penalty min_tokens n seed ignore_eos priority"
).split()  # fields of `SamplingParams` that servers know by these names; sent where they are not the default
CLOSED = httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError
"""What comes of a kept connection that the server has closed meanwhile: the request is sent again, once."""
LEFT_OUT = ("ignore_eos", "seed")  # where a server takes them not, it is asked without, and that is said


class ServerFailed(RuntimeError):
    """A request failed at the server; the words are for people."""


def headers(server: Server) -> dict[str, str]:
    """Raises InvalidInput where the server's key is not in the environment."""
    secret = server.secret
    return {"Authorization": f"Bearer {secret}"} if secret else {}


def route(prompt: Prompt, completions: bool) -> str:
    chat = not completions or (isinstance(prompt, list) and bool(prompt) and isinstance(prompt[0], dict))
    return "/v1/chat/completions" if chat else "/v1/completions"


def body(prompt: Prompt, params: SamplingParams, model: str, completions: bool, lacks: frozenset[str]) -> Json:
    """The request; an adapter is asked for as a model of its name. `completions` False: the server has chats alone, and
    a text becomes a user's message."""
    told: Json = {"model": params.adapter or model, "stream": True, "max_tokens": params.max_tokens}
    told |= {"temperature": params.temperature, "top_p": params.top_p}
    told |= {
        name: value
        for name in AS_THEY_ARE
        if (value := getattr(params, name)) != getattr(SamplingParams(), name)
        and not (name in LEFT_OUT and name in lacks)
    }
    if params.stop:
        told["stop"] = list(params.stop)
    if params.logit_bias:
        told["logit_bias"] = {str(token): bias for token, bias in params.logit_bias}
    if params.json_schema:
        schema = {"name": "answer", "schema": json.loads(params.json_schema), "strict": True}
        told["response_format"] = {"type": "json_schema", "json_schema": schema}
    if "usage" not in lacks:
        told["stream_options"] = {"include_usage": True}
    if route(prompt, completions) == "/v1/completions":
        return told | {"prompt": prompt}
    return told | {"messages": [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt}


def cannot(params: SamplingParams) -> str:
    """What no server is asked by this protocol; "" where all of it can be asked."""
    for name in ("regex", "choices", "bad_words", "prompt_logprobs", "attention"):
        if getattr(params, name) not in (None, (), False):
            return f"{name} is this engine's own and cannot be asked of another server; leave it out"
    return "a beam search cannot be asked of another server; leave it out" if params.beam_width > 1 else ""


async def events(response: httpx2.Response) -> AsyncIterator[Json | None]:
    """The server-sent events of an answer, None for `[DONE]`. Raises ServerFailed at what is none."""
    rest = b""
    async for data in response.aiter_bytes():
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > LONGEST_LINE:
            raise ServerFailed(f"the server sent an event of more than {LONGEST_LINE:,} bytes")
        for line in lines:
            if line.startswith(b"data:"):
                yield event_of(line[5:].strip())


def event_of(data: bytes) -> Json | None:
    """What follows `data:`, None for `[DONE]`. Raises ServerFailed at what is none."""
    if data == b"[DONE]":
        return None
    try:
        told = json.loads(data)
    except (ValueError, RecursionError):
        raise ServerFailed(f"the server sent what is no JSON: {data[:80]!r}") from None
    if not isinstance(told, dict):
        raise ServerFailed(f"the server sent an event that is no object: {data[:80]!r}")
    if told.get("error"):
        raise ServerFailed(f"the server says: {error_words(told)}")
    return told


def error_words(told: Any) -> str:
    """The message of an error's body, whatever shape it has, on one line."""
    said = told
    while isinstance(said, dict) and (inner := said.get("error") or said.get("message") or said.get("detail")):
        said = inner
    return " ".join((said if isinstance(said, str) else json.dumps(said)).split())[:300]


def status_words(status: int, data: bytes) -> str:
    """Why a server refused."""
    try:
        words = error_words(json.loads(data[:LONGEST_ERROR]))
    except (ValueError, RecursionError):
        words = " ".join(data[:300].decode("utf-8", "replace").split())
    if status in (401, 403):
        return f"the server asks for a key ({status}); name the variable that holds it: key=VARIABLE"
    return f"the server refuses ({status}): {words or 'it does not say why'}"


def tokens_of(usage: Any, name: str) -> int | None:
    """A count of a `usage`, None where it is not told."""
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if type(value) is int and 0 <= value < 1 << 24 else None


class Pieces:
    """What the events of one answer say. What a server tells of thoughts apart is put before the answer as models write
    it themselves, between tags."""

    def __init__(self) -> None:
        self._thinking: set[int] = set()  # samples

    def of(self, event: Json) -> list[tuple[int, str, str | None]]:
        """Of each choice in an event: which sample, its new text, and why it ended. Raises ServerFailed."""
        found = []
        choices = event.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                raise ServerFailed("the server sent a choice that is no object")
            delta = choice.get("delta") or choice.get("message") or {}
            delta = delta if isinstance(delta, dict) else {}
            thought = delta.get("reasoning_content") or delta.get("reasoning")
            said = delta.get("content") if choice.get("text") is None else choice["text"]
            index, finish = choice.get("index", 0), choice.get("finish_reason")
            texts = all(isinstance(each or "", str) for each in (thought, said, finish))
            if type(index) is not int or not texts:
                raise ServerFailed("the server sent a choice of another shape")
            found.append((index, self._joined(index, thought or "", said or ""), finish))
        return found

    def _joined(self, index: int, thought: str, said: str) -> str:
        if thought and index not in self._thinking:
            self._thinking.add(index)
            thought = f"{THOUGHTS_OPENED}{thought}"
        if said and index in self._thinking:
            self._thinking.discard(index)
            said = f"{THOUGHTS_CLOSED}{said}"
        return thought + said
