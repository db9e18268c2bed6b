"""What a model thinks before it answers, told from its text.

Reasoning models write their thoughts between <think> and </think> (DeepSeek-R1, Qwen3). Some have the first of these at
the end of their chat template, so that their text begins amid them. gpt-oss' channels come from the detokenizer in the
same form (`engine.decoding.channels`).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from engine.config.sampling_params import SamplingParams

THOUGHTS_BEGIN, THOUGHTS_END = "<think>", "</think>"
THOUGHTS_OPENED, THOUGHTS_CLOSED = f"{THOUGHTS_BEGIN}\n", f"\n{THOUGHTS_END}\n\n"  # as models write them
_BEGIN, _AMID = re.compile(rf"\s*{THOUGHTS_BEGIN}"), re.compile(rf"{THOUGHTS_BEGIN}\s*\Z")
_NEAR = 64  # characters of a prompt's end


class Said(NamedTuple):
    """`thinking`: its thoughts go on."""

    thoughts: str
    answer: str
    thinking: bool = False


def split_thoughts(text: str) -> Said:
    """Thoughts and answer, each without the lines that set them apart. Where no thoughts begin it, all is answer."""
    if not thinks(text):
        return Said("", text)
    thoughts, ended, answer = text.lstrip().removeprefix(THOUGHTS_BEGIN).partition(THOUGHTS_END)
    return Said(thoughts.strip(), answer.lstrip(), not ended)


def thinks(text: str) -> bool:
    """Whether it begins with thoughts."""
    return _BEGIN.match(text) is not None


def begins_amid(prompt: str, params: SamplingParams) -> bool:
    """Whether what follows a prompt begins amid thoughts. An answer that is held to a grammar which says nothing of
    their end has none."""
    amid = _AMID.search(prompt[-_NEAR:]) is not None
    return amid and (not params.constrained or THOUGHTS_END in (params.regex or ""))


def answer_begins(text: str, amid: bool = False) -> int | None:
    """At which character of a text its answer begins; 0 where nothing is thought, None while it is. `amid`: the text
    begins amid thoughts."""
    if not (amid or thinks(text)):
        return 0
    end = text.find(THOUGHTS_END)
    if end < 0:
        return None
    after = text[end + len(THOUGHTS_END) :]
    return len(text) - len(after.lstrip()) if after.strip() else None


def thought_tokens(text: str, text_ends: Sequence[int], amid: bool = False) -> int:
    """How many of a text's tokens come before the first that says something of the answer itself; `text_ends` says
    where each one's part of `text` ends."""
    begins = answer_begins(text, amid)
    return len(text_ends) if begins is None else bisect_right(text_ends, begins) if begins else 0


class Parting:
    """Parts an answer as it comes into thoughts and answer, as `split_thoughts` does a whole one: without the tags, and
    the lines that set them apart. What may be the beginning of a tag is held back until that is told."""

    def __init__(self, amid: bool = False) -> None:
        """`amid`: the text begins amid thoughts."""
        self.tokens = 0  # those before the first that says something of the answer
        self._thinks: bool | None = True if amid else None  # whether it is amid thoughts; None: not told yet
        self._held, self._pending = "", 0  # text, and tokens of which it is not told what they say
        self._blank = True  # nothing of what it is in was said

    @property
    def answers(self) -> bool:
        """All that comes is of the answer."""
        return self._thinks is False and not self._blank

    def push(self, text: str, tokens: int = 1) -> tuple[str, str]:
        """What is new of the thoughts, and of the answer, after so many tokens."""
        self._pending += tokens
        thinking = len(self._held) + len(text) if self._thinks is not False else 0
        both = self._parted(text)
        if self._thinks is not None:
            thought = self._pending
            if self.answers:  # what was pushed may have brought both: tokens in proportion to their text, one at least
                rest = len(both[1])
                share = 1 - rest / thinking if thinking else 0.0
                thought = max(0, min(round(thought * share), thought - 1))
            self.tokens += thought
            self._pending = 0
        return both

    def _parted(self, text: str) -> tuple[str, str]:
        self._held += text
        if self._thinks is None:
            begun = self._held.lstrip()
            if begun != THOUGHTS_BEGIN and THOUGHTS_BEGIN.startswith(begun):
                return "", ""
            self._thinks = begun.startswith(THOUGHTS_BEGIN)
            self._held = begun.removeprefix(THOUGHTS_BEGIN) if self._thinks else self._held
            self._blank = self._thinks
        thought = ""
        if self._thinks:
            before, end, after = self._held.partition(THOUGHTS_END)
            thought, self._held = (before, "") if end else self._told(before)
            thought = self._first(thought.rstrip() if end else thought)
            if not end:
                return thought, ""
            self._thinks, self._blank, self._held = False, True, after
        answer, self._held = self._first(self._held), ""
        return thought, answer

    def flush(self) -> tuple[str, str]:
        """What was held back, at the text's end."""
        held, self._held = self._held, ""
        return (self._first(held.rstrip()), "") if self._thinks else ("", held)

    def _first(self, text: str) -> str:
        """Without blanks where nothing was said before."""
        text = text.lstrip() if self._blank else text
        self._blank = self._blank and not text
        return text

    @staticmethod
    def _told(text: str) -> tuple[str, str]:
        """Thoughts that are no part of a tag, and what may be: blanks before one too."""
        at = text.rfind("<")
        cut = at if at >= 0 and THOUGHTS_END.startswith(text[at:]) else len(text)
        cut = len(text[:cut].rstrip())
        return text[:cut], text[cut:]
