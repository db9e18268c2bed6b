"""Channels of gpt-oss' answers as text. Its messages are set apart by special tokens ("harmony"), which a text does
not show:

    <|channel|>analysis<|message|>THOUGHTS<|end|><|start|>assistant<|channel|>final<|message|>ANSWER<|return|>

What it thinks, and says to tools, is given the form that other reasoning models write by themselves: <think>, the
thoughts, </think>, the answer. So whoever reads an answer knows one form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.decoding.detokenizer import Detokenizer
from engine.trace.thoughts import THOUGHTS_CLOSED, THOUGHTS_OPENED

NAMES = "<|start|>", "<|channel|>", "<|message|>", "<|end|>"
ANALYSIS, COMMENTARY = "analysis", "commentary"  # channels: of thoughts, and of what is told about calls of tools


@dataclass(frozen=True, slots=True)
class ChannelTokens:
    start: int
    channel: int
    message: int
    end: int

    @classmethod
    def of(cls, tokenizer: Any) -> ChannelTokens | None:
        """Those of a tokenizer; None where it has none."""
        try:
            ids: Mapping[int, Any] = tokenizer.added_tokens_decoder
        except (AttributeError, NotImplementedError):  # a tokenizer of another library
            return None
        known = {token.content: id for id, token in ids.items() if token.special}
        return cls(*(known[name] for name in NAMES)) if known.keys() >= set(NAMES) else None


class ChannelDetokenizer:
    """Around another one, of which each message has its own. Headers are not shown; a message's end is told with what
    comes next, so that thoughts over several messages are one."""

    def __init__(self, tokens: ChannelTokens, make: Callable[[], Detokenizer]) -> None:
        self._tokens, self._make, self._inner = tokens, make, make()
        self._header: list[str] | None = None  # the words of one that is being read
        self._named = False  # whether it names a channel
        self._thinks = False
        self.marked = False

    def push(self, token: int) -> str:
        names, self.marked = self._tokens, token == self._tokens.message
        if token == names.end:
            return self._inner.flush()
        if token in (names.start, names.channel):
            held = self._inner.flush()
            self._header, self._inner, self._named = [], self._make(), token == names.channel
            return held
        if token == names.message:
            return self._began()
        if self._header is not None:
            self._header.append(self._inner.push(token))
            return ""
        return self._inner.push(token)

    def flush(self) -> str:
        return "" if self._header is not None else self._inner.flush()

    def _began(self) -> str:
        """What the beginning of a message says of the channel that its header names."""
        words, named = "".join(self._header or ()).strip(), self._named
        self._header, self._inner, self._named = None, self._make(), False
        to_a_tool = words.startswith(COMMENTARY) and " to=" in words
        thinks, before = named and (words.startswith(ANALYSIS) or to_a_tool), self._thinks
        self._thinks = thinks
        if thinks:
            return "\n\n" if before else THOUGHTS_OPENED
        return THOUGHTS_CLOSED if before else ""
