"""What the composer's text stands for: which prompts, how many, and about how long. No Qt."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine import InvalidInput, SamplingParams, Submission
from engine.config import Message, Prompt
from engine.workloads import expand_template, template_size

CHARACTERS_A_TOKEN = 4.0
MOST = 100_000


@dataclass(frozen=True, slots=True)
class Draft:
    """A text, or the prompts of a file, to be sent `count` times.

    `each_line` makes every line a prompt of its own. Templates such as {fox|owl} are filled in a text, never in a file.
    """

    text: str
    count: int = 1
    each_line: bool = False
    file: tuple[str, ...] = field(default=())
    system: str = ""
    chat: bool = True

    @property
    def sources(self) -> Sequence[str]:
        if self.file:
            return self.file
        if self.each_line:
            return [line for line in self.text.splitlines() if line.strip()]
        return [self.text] if self.text.strip() else []

    @property
    def total(self) -> int:
        return len(self.sources) * self.count

    @property
    def different(self) -> int:
        """How many different prompts there are among them."""
        if self.file:
            return len(set(self.file))
        return sum(min(self.count, template_size(source)) for source in self.sources)

    def texts(self) -> list[str]:
        if self.file:
            return [text for text in self.file for _ in range(self.count)]
        return [text for source in self.sources for text in expand_template(source, self.count)]

    def submissions(self, params: SamplingParams) -> list[Submission]:
        """One submission a prompt, each with a seed of its own. Raises InvalidInput when there is nothing to send."""
        if not self.total:
            raise InvalidInput("Nothing to send: write a prompt first.")
        if self.total > MOST:
            raise InvalidInput(f"{self.total:,} requests at once are too many: send at most {MOST:,}.")
        first = random.getrandbits(31) if params.seed is None else params.seed
        prompts: Sequence[Prompt] = self.texts()
        if self.chat:
            system: list[Message] = [{"role": "system", "content": self.system}] if self.system.strip() else []
            prompts = [[*system, {"role": "user", "content": text}] for text in self.texts()]
        return [Submission(each, params.with_(seed=(first + i) % 2**31)) for i, each in enumerate(prompts)]

    def summary(self, characters_a_token: float = CHARACTERS_A_TOKEN) -> str:
        """The draft in words: "16 different prompts · about 24 tokens each"."""
        total, different, sample = self.total, self.different, self.sources[:50]
        if not total:
            return ""
        characters = sum(len(expand_template(s, 1)[0]) if not self.file else len(s) for s in sample) / len(sample)
        characters += len(self.system) if self.chat else 0
        tokens = max(1, round(characters / characters_a_token))
        if total == 1:
            return f"about {tokens:,} tokens"
        which = f"{total:,} times the same prompt" if different == 1 else f"{different:,} different prompts"
        if 1 < different < total:
            which += f" in {total:,} requests"
        return f"{which} · about {tokens:,} tokens each"
