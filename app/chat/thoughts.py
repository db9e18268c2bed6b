"""What a model thinks before it answers, told from its text. No Qt in here.

Reasoning models write their thoughts between <think> and </think> (DeepSeek-R1, Qwen3); some have the first of these in
their chat template, so their text begins amid them. gpt-oss' channels come from the engine in the same form
(`engine.decoding.channels`).
"""

from typing import NamedTuple

BEGIN, END = "<think>", "</think>"


class Said(NamedTuple):
    """`thinking`: its thoughts go on."""

    thoughts: str
    answer: str
    thinking: bool = False


def split(text: str) -> Said:
    """Thoughts and answer, each without the lines that set them apart."""
    before, ended, after = text.partition(END)
    head = before.lstrip()
    if ended:
        return Said(head.removeprefix(BEGIN).strip(), after.lstrip())
    if head.startswith(BEGIN):
        return Said(head.removeprefix(BEGIN).strip(), "", True)
    return Said("", text)
