"""What a model thinks before it answers, told from its text. No Qt in here.

Reasoning models write their thoughts between <think> and </think> (DeepSeek-R1, Qwen3). Some have the first of these at
the end of their chat template, so that their text begins amid them: it is put before what they say (`Heard`). gpt-oss'
channels come from the engine in the same form (`engine.decoding.channels`).
"""

from typing import NamedTuple

BEGIN, END = "<think>", "</think>"


class Said(NamedTuple):
    """`thinking`: its thoughts go on."""

    thoughts: str
    answer: str
    thinking: bool = False


def split(text: str) -> Said:
    """Thoughts and answer, each without the lines that set them apart. Where no thoughts begin it, all is answer."""
    if not thinks(text):
        return Said("", text)
    thoughts, ended, answer = text.lstrip().removeprefix(BEGIN).partition(END)
    return Said(thoughts.strip(), answer.lstrip(), not ended)


def thinks(text: str) -> bool:
    """Whether it begins with thoughts."""
    return text.lstrip().startswith(BEGIN)


def ends_amid(prompt: str) -> bool:
    """Whether what follows a prompt begins amid thoughts."""
    return prompt.rstrip().endswith(BEGIN)
