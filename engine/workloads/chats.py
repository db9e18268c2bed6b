"""What a chat says before its last ask: a story that is asked for again, examples that are to be followed."""

from itertools import product
from random import Random

from engine.config.specs import Message
from engine.workloads.texts import SLOT, stories


def asked_again(told: str) -> list[Message]:
    """The answer that was told, and the wish to hear it once more."""
    return [{"role": "assistant", "content": told}, {"role": "user", "content": stories().again}]


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
