"""What the two forms of an answer share."""

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic_core import to_json

from engine.serving.answers.told import TokensTold

Json = dict[str, Any]


class Form(ABC):
    """The bodies of one answer. `finish` is why a choice ended, None while it goes on."""

    prefix: ClassVar[str]
    whole: ClassVar[str]
    part: ClassVar[str]
    parted: ClassVar[bool] = False  # thoughts are told apart

    def __init__(self, model: str) -> None:
        self.id, self.model = f"{self.prefix}-{uuid.uuid4().hex}", model
        self._about = {"id": self.id, "created": int(time.time()), "model": model}
        self._frames: dict[bool, bytes] = {}

    def name(self, model: str) -> None:
        """It is answered under the name that was asked for, before anything of it is sent."""
        self.model = self._about["model"] = model

    @abstractmethod
    def choice(self, index: int, text: str, told: TokensTold | None, finish: str, thoughts: str = "") -> Json:
        """One sample, whole; `thoughts` stand before its text."""

    @abstractmethod
    def delta(self, index: int, text: str, told: TokensTold | None, finish: str | None, thoughts: str = "") -> Json:
        """What is new of a sample."""

    def first(self, index: int) -> Json | None:
        """What is told of a sample before its text."""
        return None

    def body(self, choices: list[Json], usage: Json) -> Json:
        return {**self._about, "object": self.whole, "choices": choices, "usage": usage}

    def chunk(self, choices: list[Json], usage: Json) -> Json:
        """The last one of a stream that tells its usage."""
        return {**self._about, "object": self.part, "choices": choices, "usage": usage}

    def events(self, choices: Sequence[Json], usage_later: bool) -> bytes:
        """A server-sent event for each. What all have in common is written once: this is done for every token."""
        if usage_later not in self._frames:
            beside = {**self._about, "object": self.part, **({"usage": None} if usage_later else {})}
            self._frames[usage_later] = b"data: " + to_json(beside)[:-1] + b',"choices":['
        frame = self._frames[usage_later]
        return b"".join([frame + to_json(choice) + b"]}\n\n" for choice in choices])


def usage(prompt: int, completion: int, thought: int = 0) -> Json:
    """`thought`: so many of the completion's tokens."""
    told: Json = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return told | ({"completion_tokens_details": {"reasoning_tokens": thought}} if thought else {})
