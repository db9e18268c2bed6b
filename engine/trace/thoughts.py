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

THOUGHTS_BEGIN, THOUGHTS_END = "<think>", "</think>"
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


def ends_amid(prompt: str) -> bool:
    """Whether what follows a prompt begins amid thoughts."""
    return _AMID.search(prompt[-_NEAR:]) is not None


def answer_begins(prompt: str, text: str) -> int | None:
    """At which character of what follows a prompt its answer begins; 0 where nothing is thought, None while it is."""
    if not (thinks(text) or ends_amid(prompt)):
        return 0
    end = text.find(THOUGHTS_END)
    if end < 0:
        return None
    after = text[end + len(THOUGHTS_END) :]
    return len(text) - len(after.lstrip()) if after.strip() else None


def thought_tokens(prompt: str, text: str, text_ends: Sequence[int]) -> int:
    """How many of an answer's tokens come before the first that says something of the answer itself; `text_ends` says
    where each one's part of `text` ends."""
    begins = answer_begins(prompt, text)
    return len(text_ends) if begins is None else bisect_right(text_ends, begins) if begins else 0
