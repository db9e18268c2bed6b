"""Which parts of a prompt may be compressed, and the prompt again with less, or something else, in their place."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from engine.config.checks import InvalidInput, shown
from engine.config.submission import Message, Prompt

INSTRUCTIONS, QUESTION = "instructions", "question"
KEEPS = {
    INSTRUCTIONS: "the system message",
    QUESTION: "the last turn of the user; where it is the only one, and of plain text, its last paragraph or line",
}
BETWEEN = "\n\n"  # of messages, where their texts are read as one


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of the text of message `message` (0 for plain text). `fixed`: it is kept whole."""

    message: int
    text: str
    fixed: bool


def parts_of(prompt: Prompt, keep: Collection[str] = tuple(KEEPS)) -> list[Part]:
    """The prompt's parts in order; those of a message, joined, are its text. Raises InvalidInput where none of them may
    be compressed."""
    for name in keep:
        if name not in KEEPS:
            raise InvalidInput(f"keep={name!r}: known are {', '.join(KEEPS)}")
    if isinstance(prompt, str):
        found = _last_apart(0, prompt) if QUESTION in keep else [Part(0, prompt, False)]
    elif prompt and all(isinstance(message, dict) for message in prompt):
        found = _of_chat([message for message in prompt if isinstance(message, dict)], keep)
    else:
        raise InvalidInput(f"prompt={shown(prompt)}: give text or chat messages; token ids have no words to leave out")
    if not any(part.text.strip() for part in found if not part.fixed):
        raise InvalidInput("prompt: all of it is kept whole, nothing is left to compress; keep less of it")
    return found


def _of_chat(messages: Sequence[Message], keep: Collection[str]) -> list[Part]:
    turns = [i for i, message in enumerate(messages) if message["role"] != "system"]
    last = max((i for i in turns if messages[i]["role"] == "user"), default=-1)
    found: list[Part] = []
    for i, message in enumerate(messages):
        text = message["content"]
        if i == last and QUESTION in keep and len(turns) == 1:
            asked = _last_apart(i, text)
            found += [Part(i, text, True)] if len(asked) < 2 and len(messages) > 1 else asked
        else:
            fixed = (i == last and QUESTION in keep) or (message["role"] == "system" and INSTRUCTIONS in keep)
            found.append(Part(i, text, fixed))
    return found


def _last_apart(message: int, text: str) -> list[Part]:
    """The last paragraph, or the last line where there is one paragraph, is kept; of one line nothing is."""
    for border in (r"\n\s*\n", r"\n"):
        borders = [found.end() for found in re.finditer(border, text.rstrip())]
        if borders and text[: borders[-1]].strip():
            return [Part(message, text[: borders[-1]], False), Part(message, text[borders[-1] :], True)]
    return [Part(message, text, False)]


def rewritten(prompt: Prompt, texts: Sequence[str]) -> Prompt:
    """The prompt with these texts, one for each message, or the one text."""
    if isinstance(prompt, str):
        return texts[0]
    return [
        {**message, "content": text} for message, text in zip(prompt, texts, strict=True) if isinstance(message, dict)
    ]


def replaced(prompt: Prompt, parts: Sequence[Part], text: str) -> Prompt:
    """The prompt with `text` in place of all that may be compressed: before what is kept of the last turn of the user.
    Messages of which nothing is kept are gone."""
    if isinstance(prompt, str):
        return _before(text, "".join(part.text for part in parts if part.fixed))
    messages = [message for message in prompt if isinstance(message, dict)]
    last = max(i for i, message in enumerate(messages) if message["role"] == "user")
    found: list[Message] = []
    for i, message in enumerate(messages):
        kept = "".join(part.text for part in parts if part.fixed and part.message == i)
        if i == last:
            kept = _before(text, kept)
        if kept.strip():
            found.append({**message, "content": kept})
    return found


def _before(text: str, kept: str) -> str:
    return f"{text.strip()}{BETWEEN}{kept.lstrip()}" if kept.strip() else text.strip()
