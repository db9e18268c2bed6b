"""Bodies of requests, answered by a server without a socket."""

import asyncio
import json
import os
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from engine.config.checks import InvalidInput
from engine.config.specs import EngineConfig, ModelSpec
from tests.hardening.mutators import broken_text

FOX = [
    {"role": "user", "content": "Tell me of a fox."},
    {"role": "assistant", "content": [{"type": "text", "text": "No"}]},
]
FOX.append({"role": "user", "content": "Do."})
SCHEMA = {"type": "object", "properties": {"hero": {"type": "string", "maxLength": 4}}, "required": ["hero"]}
COMMON: dict[str, Any] = {
    "model": "demo-draft",
    "max_tokens": 2,
    "temperature": 0.7,
    "top_p": 0.9,
    "seed": 1,
    "stop": ["."],
}
COMMON |= {"n": 2, "logit_bias": {"5": 1.5}, "top_k": 5, "min_p": 0.01, "repetition_penalty": 1.1, "ignore_eos": False}
BODIES = {
    "chat.completions": COMMON | {"messages": FOX, "logprobs": True, "top_logprobs": 2, "frequency_penalty": 0.5},
    "chat.completions.stream": COMMON
    | {"messages": FOX, "stream": True, "stream_options": {"include_usage": True}, "max_completion_tokens": 2},
    "chat.completions.schema": {"model": "demo-draft", "messages": FOX, "max_tokens": 3}
    | {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
    "chat.completions.choice": {"model": "demo-draft", "messages": FOX, "max_tokens": 3}
    | {"response_format": {"type": "choice", "choices": ["yes", "no"]}},
    "completions": COMMON | {"prompt": ["Once", "The cat"], "logprobs": 2, "presence_penalty": 0.1},
    "completions.ids": COMMON | {"prompt": [[5, 6, 7], [8]], "echo": True, "min_tokens": 1},
    "completions.regex": {"model": "demo-draft", "prompt": "Once", "max_tokens": 3}
    | {"response_format": {"type": "regex", "regex": "[a-z]{1,3}"}},
    "tokenize": {"model": "demo-draft", "messages": FOX},
    "detokenize": {"model": "demo-draft", "tokens": [5, 6, 7]},
}
ANSWERED = 5.0  # seconds after which the client has seen enough of an answer


def make_bodies(folder: Path) -> None:
    for name, body in BODIES.items():
        (folder / f"{name}.json").write_text(json.dumps(body))


def break_body(path: Path, rng: Random) -> None:
    """Changes a body in place."""
    path.write_bytes(broken_text(path.read_text(), rng))


@lru_cache(maxsize=1)
def _server() -> tuple[Any, asyncio.Runner]:
    os.environ["BATCHSCOPE_NATIVE"] = "0"  # compiling would take longer than all answers
    from engine.core.engine import Engine
    from engine.serving.app import Gates, make_app
    from engine.serving.service import Service
    from engine.serving.settings import ServingSettings
    from engine.serving.watch import Hub

    engine = Engine(
        ModelSpec("demo-draft"), EngineConfig(max_running=8, token_budget=512, kv_memory=8 << 20), threads=1
    )
    settings = ServingSettings(queue=24)
    gates = Gates(settings)
    service = Service(engine, "demo-draft", settings)
    return make_app(service, gates, Hub(service, gates.control()), settings), asyncio.Runner()


def answer_body(path: Path) -> None:
    """As the server does. Raises InvalidInput where it is refused in the clients' shape."""
    app, runner = _server()
    words = path.name.split(".")
    route = f"/v1/{'/'.join(words[:2])}" if words[0] == "chat" else f"/v1/{words[0]}"
    route = route.removeprefix("/v1") if words[0].endswith("tokenize") else route
    status, said = runner.run(_post(app, route, path.read_bytes()))
    if status != 200:
        error = json.loads(said)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert 400 <= status < 500, (status, error)
        raise InvalidInput(error["message"])


async def _post(app: Any, route: str, body: bytes) -> tuple[int, bytes]:
    scope = {"type": "http", "method": "POST", "path": route, "raw_path": route.encode(), "query_string": b""}
    scope |= {"headers": [(b"host", b"localhost")], "http_version": "1.1", "scheme": "http", "root_path": ""}
    sent, received = asyncio.Event(), []

    async def receive() -> dict[str, Any]:
        if not sent.is_set():
            sent.set()
            return {"type": "http.request", "body": body, "more_body": False}
        await asyncio.sleep(ANSWERED)
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        received.append(message)

    await app(scope, receive, send)
    status = received[0]["status"] if received else 200  # the client went first
    return status, b"".join(message.get("body", b"") for message in received)
