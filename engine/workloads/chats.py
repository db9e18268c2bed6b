"""What a chat says before its last ask: a story that is asked for again, examples that are to be followed."""

import re
from itertools import product
from random import Random

import resources
from engine.config.submission import Message
from engine.workloads.texts import SLOT, stories

TURNS = re.compile(r"<\|user\|>(.*?)</s><\|assistant\|>(.*?)</s>")


def told_stories(count: int, rng: Random) -> list[tuple[str, str]]:
    """Asks for stories in the demo model's words, and the stories: all different as long as there are enough."""
    text = resources.path("texts/stories.txt").read_text(encoding="utf-8")
    told = TURNS.findall(text)
    rng.shuffle(told)
    return [told[i % len(told)] for i in range(count)]


def asked_again(asked: str, told: str) -> list[Message]:
    """A story that was asked for and told, and the wish to hear it once more."""
    again: Message = {"role": "user", "content": stories().again}
    return [{"role": "user", "content": asked}, {"role": "assistant", "content": told}, again]


def with_examples(system: list[Message], shown: int, count: int, rng: Random) -> tuple[list[Message], list[str]]:
    """A chat of `system` and `shown` questions with their answers, and `count` questions to ask after it: all
    different as long as there are enough."""
    question, answer = stories().example
    slots = SLOT.findall(question)
    casts = [dict(zip(slots, chosen, strict=True)) for chosen in product(*(stories().words[slot] for slot in slots))]
    rng.shuffle(casts)
    cycle = [casts[i % len(casts)] for i in range(shown + count)]
    messages = list(system)
    for cast in cycle[:shown]:
        messages += [{"role": "user", "content": question.format(**cast)}]
        messages += [{"role": "assistant", "content": answer.format(**cast)}]
    return messages, [question.format(**cast) for cast in cycle[shown:]]
