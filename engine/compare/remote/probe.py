"""What a server can do, found out by asking it before the clock runs."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import Any

import httpx2

from engine.compare.remote.asking import CLOSED, Json, Pieces, body, error_words, headers, status_words, tokens_of
from engine.compare.remote.server import Server
from engine.config.checks import InvalidInput
from engine.config.sampling_params import SamplingParams
from engine.jobs.progress import LoadCancelled

PROMPT = "Once upon a time"
SHORT = SamplingParams(max_tokens=2, temperature=0)
LARGEST = 4 << 20  # bytes of an answer
TIMEOUT = httpx2.Timeout(120.0, connect=5.0)
MOST_NAMED = 8
ABILITIES = {
    "completions": "plain prompts: texts go as a user's message, so the server's chat template is around them",
    "usage": "counts in its streams: each piece of text counts as one token, prompts as none",
    "done": "[DONE] after its streams: an answer is whole that has its finish reason",
    "token_ids": "prompts of token ids",
    "ignore_eos": "ignore_eos: its answers end where its model ends them",
    "seed": "seeds: what is drawn there is another text each time",
    "logprobs": "log-probabilities",
    "n": "several samples of a prompt (n)",
}
"""What may be missing, in words after "no"."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """`model` as the server calls it; `lacks`: those of `ABILITIES` that it has not."""

    model: str
    lacks: frozenset[str] = frozenset()

    @property
    def words(self) -> tuple[str, ...]:
        """What it cannot do, a phrase each."""
        return tuple(f"no {words}" for name, words in ABILITIES.items() if name in self.lacks)


def probe(server: Server, cancelled: Event | None = None) -> Capabilities:
    """Asks a server for a few tokens in several ways. Raises InvalidInput where nothing can be played there, and
    LoadCancelled."""
    with httpx2.Client(
        base_url=server.url, headers=headers(server), timeout=TIMEOUT, trust_env=not server.local
    ) as http:
        asked = _Asked(server, http, cancelled)
        try:
            return asked.all()
        except httpx2.TimeoutException as error:
            raise InvalidInput(f"{server.url} does not answer in time; see whether it is busy") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise InvalidInput(f"nothing answers at {server.url} ({why}); start the server, or mend the address") from (
                error
            )


class _Asked:
    def __init__(self, server: Server, http: httpx2.Client, cancelled: Event | None) -> None:
        self._server, self._http, self._cancelled = server, http, cancelled
        self._model, self._completions = server.model, True

    def all(self) -> Capabilities:
        self._model = self._find_model()
        lacks = self._stream()
        tests: dict[str, Callable[[], bool]] = {
            "token_ids": lambda: self._completions and self._answer({"prompt": [1, 2, 3]}) is not None,
            "ignore_eos": lambda: self._answer({"ignore_eos": True}) is not None,
            "seed": self._repeats,
            "logprobs": self._tells_logprobs,
            "n": lambda: len(_choices(self._answer({"n": 2, "temperature": 1.0}))) == 2,
        }
        lacks |= {name for name, able in tests.items() if not able()}
        return Capabilities(self._model, frozenset(lacks))

    def _find_model(self) -> str:
        status, data = self._ask("GET", "/v1/models")
        if status in (401, 403):
            raise InvalidInput(f"{self._server.url}: {status_words(status, data)}")
        try:
            told = json.loads(data)["data"] if status == 200 else []
            names = [each["id"] for each in told if isinstance(each["id"], str)]
        except (ValueError, LookupError, TypeError, RecursionError):
            names = []
        if self._model:  # a server may know more names than it lists
            return self._model
        if len(names) == 1:
            return str(names[0])
        listed = f"it has {', '.join(names[:MOST_NAMED])}" if names else "it does not list any"
        raise InvalidInput(f"{self._server.url}: name the model (model=NAME); {listed}")

    def _stream(self) -> set[str]:
        """Plays one stream, in the simplest way that the server takes. Raises InvalidInput where there is none."""
        why = ""
        for lacks in (set(), {"usage"}, {"completions"}, {"completions", "usage"}):
            self._completions = "completions" not in lacks
            given = body(PROMPT, SHORT, self._model, self._completions, frozenset(lacks))
            status, data = self._ask("POST", self._route, given)
            if status == 200:
                return lacks | self._streamed(data)
            why = why or status_words(status, data)
            if status in (401, 403, 429) or status >= 500:
                break
        raise InvalidInput(f"{self._server.url}, model {self._model!r}: {why}")

    def _streamed(self, data: bytes) -> set[str]:
        """What a stream that came to its end lacked. Raises InvalidInput where it was no whole stream."""
        lines = [line[5:].strip() for line in data.splitlines() if line.startswith(b"data:")]
        if not lines:
            raise InvalidInput(f"{self._server.url} does not stream: no lane can be drawn of it")
        try:
            told = [json.loads(line) for line in lines if line != b"[DONE]"]
            failed = next((each for each in told if each.get("error")), None)
            pieces = Pieces()
            ended = any(finish for each in told for _, _, finish in pieces.of(each))
            counted = any(tokens_of(each.get("usage"), "completion_tokens") is not None for each in told)
        except (ValueError, AttributeError, RuntimeError, RecursionError):
            raise InvalidInput(f"{self._server.url} streams what is no answer of OpenAI's shape") from None
        if failed:
            raise InvalidInput(f"{self._server.url}: the server says: {error_words(failed)}")
        if not ended:
            raise InvalidInput(f"{self._server.url}: its stream ends without a finish reason")
        return {name for name, told in (("done", lines[-1] == b"[DONE]"), ("usage", counted)) if not told}

    @property
    def _route(self) -> str:
        return "/v1/completions" if self._completions else "/v1/chat/completions"

    def _answer(self, changes: Json) -> Json | None:
        """An answer as a whole; None where the server refuses."""
        given = body(PROMPT, SHORT, self._model, self._completions, frozenset({"usage"})) | {"stream": False} | changes
        status, data = self._ask("POST", self._route, given)
        try:
            told = json.loads(data) if status == 200 else None
        except (ValueError, RecursionError):
            return None
        return told if isinstance(told, dict) and not told.get("error") else None

    def _repeats(self) -> bool:
        drawn = {"temperature": 1.0, "seed": 7, "max_tokens": 8}
        first, second = (_choices(self._answer(drawn)) for _ in range(2))
        return bool(first) and [_said(each) for each in first] == [_said(each) for each in second]

    def _tells_logprobs(self) -> bool:
        asked: Json = {"logprobs": 1} if self._completions else {"logprobs": True, "top_logprobs": 1}
        return any(each.get("logprobs") for each in _choices(self._answer(asked)))

    def _ask(self, method: str, path: str, given: Json | None = None) -> tuple[int, bytes]:
        if self._cancelled is not None and self._cancelled.is_set():
            raise LoadCancelled("asking the server was cancelled")
        try:
            return self._once(method, path, given)
        except CLOSED:
            return self._once(method, path, given)

    def _once(self, method: str, path: str, given: Json | None) -> tuple[int, bytes]:
        with self._http.stream(method, path, json=given) as response:
            data = b""
            for part in response.iter_bytes():
                data += part
                if len(data) > LARGEST:
                    raise InvalidInput(f"{self._server.url} sends more than {LARGEST:,} bytes for a few tokens")
            return response.status_code, data


def _choices(told: Json | None) -> list[Json]:
    choices = (told or {}).get("choices")
    return [each for each in choices if isinstance(each, dict)] if isinstance(choices, list) else []


def _said(choice: Json) -> Any:
    return choice.get("text") or (choice.get("message") or {}).get("content")
