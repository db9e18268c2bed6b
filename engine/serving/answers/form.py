"""What the two forms of an answer share."""

import time
import uuid
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from engine.serving.answers.told import TokensTold

Json = dict[str, Any]


class Form(ABC):
    """The bodies of one answer. `finish` is why a choice ended, None while it goes on."""

    prefix: ClassVar[str]
    whole: ClassVar[str]
    part: ClassVar[str]

    def __init__(self, model: str) -> None:
        self._about = {"id": f"{self.prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}

    @abstractmethod
    def choice(self, index: int, text: str, told: TokensTold | None, finish: str) -> Json:
        """One sample, whole."""

    @abstractmethod
    def delta(self, index: int, text: str, told: TokensTold | None, finish: str | None) -> Json:
        """What is new of a sample."""

    def first(self, index: int) -> Json | None:
        """What is told of a sample before its text."""
        return None

    def body(self, choices: list[Json], usage: Json) -> Json:
        return {**self._about, "object": self.whole, "choices": choices, "usage": usage}

    def chunk(self, choices: list[Json]) -> Json:
        return {**self._about, "object": self.part, "choices": choices}


def usage(prompt: int, completion: int) -> Json:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
