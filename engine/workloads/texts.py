"""Readable prompts of an exact length, written from the words and sentences of resources/stories.toml."""

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count
from random import Random

import resources
from engine.config.checks import InvalidInput
from engine.workloads.templates import expand_template
from engine.workloads.tokens import TokenCounter

SENTENCES_A_CAST = 6
LAST_SENTENCES = 30  # tokens in which an ending of whole sentences is looked for
FAR = 4 * LAST_SENTENCES
OFF = 4  # tokens that a sentence may have more in a text than alone, at most
LAST_WORDS = 8  # tokens for which there are the short sentences
TRIES = 50
_CAST = ("creature", "thing", "name")
SLOT = re.compile(r"\{(\w+)\}")
_FILLERS = (" and", " so", " on", ".", "!")


@dataclass(frozen=True, slots=True)
class Stories:
    """What texts are written from. `words` maps a slot such as {creature} to what may stand there; `example` is a
    question and its answer, with slots."""

    ask: str
    again: str
    example: tuple[str, str]
    system: str
    follow_ups: tuple[str, ...]
    sentences: tuple[str, ...]
    tails: tuple[str, ...]
    words: dict[str, tuple[str, ...]]


@cache
def stories() -> Stories:
    table = tomllib.loads(resources.path("stories.toml").read_text(encoding="utf-8"))
    words = {slot: tuple(text.split()) for slot, text in table["words"].items()}
    words |= {slot: tuple(p.strip() for p in text.split("|")) for slot, text in table["phrases"].items()}
    follow_ups, sentences, tails = (tuple(table[name]) for name in ("follow_ups", "sentences", "tails"))
    example = table["example"]["question"], table["example"]["answer"]
    return Stories(table["ask"], table["again"], example, table["system"], follow_ups, sentences, tails, words)


def asks(count: int, seed: int) -> list[str]:
    """`count` requests for a story; all different as long as there are enough."""
    template = SLOT.sub(lambda m: "{" + "|".join(stories().words[m[1]]) + "}", stories().ask)
    return expand_template(template, count, seed)


def _told(rng: Random) -> Iterator[str]:
    """Sentences of stories without end."""
    told = stories()
    for number in count():
        if number % SENTENCES_A_CAST == 0:
            cast = {slot: rng.choice(told.words[slot]) for slot in _CAST}
        sentence = rng.choice(told.sentences)
        words = {slot: cast.get(slot) or rng.choice(told.words[slot]) for slot in SLOT.findall(sentence)}
        yield sentence.format(**words)


def text_of(tokens: int, counter: TokenCounter, rng: Random, opening: str = "") -> str:
    """A text of exactly so many tokens that begins with `opening` as far as that fits, and goes on with a story. It
    ends with a whole sentence where one can be found. Where a tokenizer has no such text, the nearest shorter one.
    Raises InvalidInput where it makes no token of any word."""
    if not counter.reads_words:
        raise InvalidInput("this model's tokenizer makes no tokens of words: give prompts as token ids, in a file")
    told, text, size = _told(rng), opening, counter.count(opening)
    if size > tokens:
        return _fill("", opening, tokens, counter)
    parts, since = [text], 0  # sentences that were counted alone: a whole text is counted where that may matter
    while tokens - size > LAST_SENTENCES:
        parts.append(f" {next(told)}")
        since += 1
        if tokens - size > FAR + OFF * since:
            size += counter.count(parts[-1])
        else:
            parts = ["".join(parts).lstrip()]
            size, since = counter.count(parts[0]), 0
    text = "".join(parts).lstrip()
    base = counter.count(text)
    for _ in range(TRIES):
        ending, size = "", base
        while size < tokens:
            sentence = next(told) if tokens - size > LAST_WORDS else rng.choice(stories().tails)
            ending = f"{ending} {sentence}"
            size = base + counter.count(ending if text else ending.lstrip())
        ended = f"{text}{ending}".lstrip()
        if size == tokens and counter.count(ended) == tokens:
            return ended
    return _fill(text, next(told), tokens, counter)


def _fill(text: str, piece: str, tokens: int, counter: TokenCounter) -> str:
    """`text` and as many words of `piece` as make so many tokens, then small words for what is left."""
    for word in piece.split():
        longer = f"{text} {word}".lstrip()
        if counter.count(longer) > tokens:
            break
        text = longer
    size = counter.count(text)
    while size < tokens:
        for filler in _FILLERS:
            longer = (text + filler).lstrip()
            if size < (grown := counter.count(longer)) <= tokens:
                text, size = longer, grown
                break
        else:
            break
    return text
