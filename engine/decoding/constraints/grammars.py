"""From what a request asks for to a matcher: compiled once a grammar, on the thread that submits it.

Three libraries were compared on this tokenizer (3,072 tokens) and on one of 128,000, 64 rows on one thread of a shared
EPYC: a JSON schema of three bounded strings, compiled, and the mask and the step after a token, a row (median; the
slowest token of the answer in brackets).

| | compile 3k | mask 3k | token | compile 128k | mask 128k | beside torch it needs |
|---|--:|--:|--:|--:|--:|---|
| llguidance 1.9 | 0.6 ms | 3 µs (32) | 0.9 µs | 0.6 ms | 0.10 ms (0.8) | nothing, 8 MB |
| xgrammar 0.2 | 106 ms | 2.5 µs (27) | 1.1 µs | 5.8 s | 1.2 ms (8.2) | tvm-ffi; imports torch, 17 MB |
| outlines-core 0.2 | 42 ms | 4 µs (4) | 0.1 µs | 6.8 s | 0.17 ms (0.2) | nothing, 5 MB |

llguidance is kept: nothing is computed beforehand, so that a schema can be sent with every request; it names the
keyword of a schema that it cannot hold to, where outlines-core drops it and never reaches the longer of two choices
that begin alike.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from engine.config.checks import InvalidInput, shown
from engine.config.sampling_params import SamplingParams
from engine.decoding.constraints.matcher import Matcher, first_line

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

LIBRARY, REMEDY = "llguidance", "pip install 'batchscope[constrained]'"
KEPT = 64  # compiled grammars
# As `json.dumps` writes it: a choice of blanks would only be more tokens, and at temperature 0 perhaps no end of them.
LAYOUT = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False}
_SPECIAL = frozenset(r"\.+*?()|[]{}^$#&-~/")  # of a regular expression


def missing() -> str:
    """Why no output can be constrained here, with the remedy; "" where nothing is missing."""
    return "" if find_spec(LIBRARY) else f"{LIBRARY} is not installed: {REMEDY}"


class Grammars:
    """The grammars of one model, compiled when they are first asked for; safe from any thread."""

    def __init__(self, tokenizer: Any, vocabulary: int, eos: Iterable[int]) -> None:
        self._tokenizer, self._vocabulary, self._eos = tokenizer, vocabulary, sorted(eos)
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], LLMatcher] = OrderedDict()
        self._tokens: LLTokenizer | None = None

    def matchers(self, params: SamplingParams, count: int) -> list[Matcher | None]:
        """Fresh matchers, one for each of `count` branches; Nones where the request asks for no grammar. Raises
        InvalidInput naming what is wrong with it."""
        asked = _asked(params)
        if asked is None:
            return [None] * count
        name, grammar, given = asked
        if why := missing():
            raise InvalidInput(f"{name}: {why}")
        with self._lock:
            machine = self._known.pop((name, grammar), None)
            if machine is None:
                machine = self._compile(name, grammar, given)
            self._known[name, grammar] = machine
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
            words = -(-self._token_table().vocab_size // 32)
            return [Matcher(machine.deep_copy(), words) for _ in range(count)]

    def _compile(self, name: str, grammar: str, given: object) -> LLMatcher:
        from llguidance import LLMatcher

        if name == "json_schema":
            told = LLMatcher.grammar_from_json_schema(grammar, defaults=LAYOUT)  # type: ignore[arg-type]
        else:
            told = LLMatcher.grammar_from_regex(grammar)
        machine = LLMatcher(self._token_table(), told, log_level=0)
        if machine.is_error():
            raise InvalidInput(f"{name}={shown(given)}: {_reason(machine.get_error())}")
        return machine

    def _token_table(self) -> LLTokenizer:
        if self._tokens is None:
            from llguidance.hf import from_tokenizer

            if getattr(self._tokenizer, "backend_tokenizer", None) is None:
                raise InvalidInput("regex, choices and json_schema need a fast tokenizer, and this model has none")
            size = max(self._vocabulary, len(self._tokenizer))
            try:
                self._tokens = from_tokenizer(self._tokenizer, n_vocab=size, eos_token=self._eos or None)
            except ValueError as error:
                raise InvalidInput(f"the tokenizer cannot follow a grammar: {first_line(str(error))}") from error
        return self._tokens


def _asked(params: SamplingParams) -> tuple[str, str, object] | None:
    """The name of the argument, its grammar, and what was given."""
    if params.json_schema:
        return "json_schema", params.json_schema, params.json_schema
    if params.regex:
        return "regex", params.regex, params.regex
    if params.choices:
        return "choices", "|".join(map(_literal, params.choices)), params.choices
    return None


def _literal(text: str) -> str:
    """The regular expression of this text alone."""
    return "".join(f"\\{c}" if c in _SPECIAL else json.dumps(c)[1:-1] if c in "\n\r\t" else c for c in text)


def _reason(message: str) -> str:
    """What the library says is wrong, in one line."""
    lines = [line.strip() for line in message.strip().splitlines()]
    named = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    told = named[0] if named else lines[0] if lines else "it cannot be compiled"
    if told.startswith("Unimplemented keys: "):
        keys = told.removeprefix("Unimplemented keys: ").strip("[]")
        return f"no output can be held to {keys}; leave it out"
    return told
