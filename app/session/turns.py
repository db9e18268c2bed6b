"""What is sent after a request: its next turn, or the same once more. No Qt in here."""

import random

from engine import Submission
from engine.config import Message, Prompt
from engine.trace import RequestView


def next_turn(view: RequestView, text: str) -> Submission:
    """Its messages, its answer, then `text` from the user. After a raw prompt, the text so far goes on with `text`."""
    if not view.messages:
        return _like(view, view.prompt + view.text + text)
    answer: list[Message] = [{"role": "assistant", "content": view.text}, {"role": "user", "content": text}]
    return _like(view, [*view.messages, *answer])


def once_more(view: RequestView) -> Submission:
    """The same prompt with a fresh seed."""
    return _like(view, list(view.messages) if view.messages else view.prompt_ids.tolist())


def _like(view: RequestView, prompt: Prompt) -> Submission:
    return Submission(prompt, view.params.with_(seed=random.getrandbits(31)), label=view.label)
