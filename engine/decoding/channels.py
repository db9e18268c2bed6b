"""Channels of gpt-oss' answers as text. Its messages are set apart by special tokens ("harmony"), which a text does
not show:

    <|channel|>analysis<|message|>THOUGHTS<|end|><|start|>assistant<|channel|>final<|message|>ANSWER<|return|>

What it thinks is given the form that other reasoning models write by themselves: <think>, the thoughts, </think>, the
answer. So whoever reads an answer knows one form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from engine.decoding.detokenizer import Detokenizer

NAMES = "<|start|>", "<|channel|>", "<|message|>", "<|end|>"
FINAL = "final"  # the channel that a person is answered on
BEGIN, END = "<think>\n", "\n</think>\n\n"


@dataclass(frozen=True, slots=True)
class ChannelTokens:
    start: int
    channel: int
    message: int
    end: int

    @classmethod
    def of(cls, tokenizer: Any) -> ChannelTokens | None:
        """Those of a tokenizer; None where it has none."""
        ids: Mapping[int, Any] = tokenizer.added_tokens_decoder
        known = {token.content: id for id, token in ids.items() if token.special}
        return cls(*(known[name] for name in NAMES)) if known.keys() >= set(NAMES) else None


class ChannelDetokenizer:
    """Around another one, of which each message has its own. Headers are not shown; a message's end is told with what
    comes next, so that thoughts over several messages are one."""

    def __init__(self, tokens: ChannelTokens, make: Callable[[], Detokenizer]) -> None:
        self._tokens, self._make, self._inner = tokens, make, make()
        self._header: list[str] | None = None  # the words of one that is being read
        self._thinks = False

    def push(self, token: int) -> str:
        names = self._tokens
        if token == names.end:
            return self._inner.flush()
        if token in (names.start, names.channel):
            held = self._inner.flush()
            self._header, self._inner = [], self._make()
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
        words, self._header, self._inner = "".join(self._header or [FINAL]), None, self._make()
        thinks, before = not words.strip().startswith(FINAL), self._thinks
        self._thinks = thinks
        if thinks:
            return "\n\n" if before else BEGIN
        return END if before else ""
