"""What the composer's text stands for: which prompts, how many, and about how long. No Qt."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

from app.language import tr
from engine import InvalidInput, SamplingParams, Submission
from engine.config import Prompt
from engine.workloads import Arrival, as_prompt, expand_template, is_unclosed, template_size, unwrapped

CHARACTERS_A_TOKEN = 4.0  # of a model whose tokenizer is not at hand
COUNTED = 2000  # characters of a prompt that are counted; what follows is taken to be like them
MOST = 100_000
_UNSAID = SamplingParams()


def guessed(text: str) -> float:
    """Tokens of a text, as far as its length tells."""
    return len(text) / CHARACTERS_A_TOKEN


def _tokens(text: str, count: Callable[[str], float]) -> float:
    return count(text[:COUNTED]) * max(1.0, len(text) / COUNTED) if text else 0.0


@dataclass(frozen=True, slots=True)
class Draft:
    """A text, or the prompts of a file, to be sent `count` times.

    `each_line` makes every line a prompt of its own. Templates such as {fox|owl} are filled in a text, never in a file,
    whose prompts may be chats already, and say how they are sampled.
    """

    text: str
    count: int = 1
    each_line: bool = False
    file: tuple[Arrival, ...] = field(default=())
    system: str = ""
    chat: bool = True

    @property
    def sources(self) -> Sequence[str]:
        if self.file:
            return [text_of(arrival.prompt) for arrival in self.file]
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
            return len(set(self.sources))
        return sum(min(self.count, template_size(source)) for source in self.sources)

    def arrivals(self) -> list[Arrival]:
        """What a file holds, or the written texts, as often as wanted; as chats where that is chosen."""
        if self.file:
            return [self._told(arrival) for arrival in self.file for _ in range(self.count)]
        texts = [text for source in self.sources for text in expand_template(source, self.count)]
        return [self._told(Arrival(0.0, as_prompt(text, self.chat))) for text in texts]

    def _told(self, arrival: Arrival) -> Arrival:
        """With the system prompt before a chat that has none; a chat of one text as that text, where none is wanted."""
        if not self.chat:
            return replace(arrival, prompt=unwrapped(arrival.prompt))
        messages = [part for part in arrival.prompt if isinstance(part, dict)]
        if messages and self.system.strip() and messages[0]["role"] != "system":
            return replace(arrival, prompt=[{"role": "system", "content": self.system}, *messages])
        return arrival

    def submissions(self, params: SamplingParams, turns: Sequence[str] = ()) -> list[Submission]:
        """One submission a prompt, each with a seed of its own, and through the adapters in `turns` one after another,
        where there are any. Raises InvalidInput when there is nothing to send."""
        if not self.total:
            raise InvalidInput(tr("Nothing to send: write a prompt first."))
        if self.total > MOST:
            raise InvalidInput(
                tr("{count:,} requests at once are too many: send at most {most:,}.", count=self.total, most=MOST)
            )
        first = random.getrandbits(31) if params.seed is None else params.seed
        told = []
        for i, arrival in enumerate(self.arrivals()):
            own = {f.name: getattr(arrival.params, f.name) for f in fields(SamplingParams)}
            own = {name: value for name, value in own.items() if value != getattr(_UNSAID, name)}
            through = {"adapter": turns[i % len(turns)]} if turns else {}
            sampled = params.with_(**{"seed": (first + i) % 2**31, **through, **own})
            told.append(Submission(arrival.prompt, sampled, label=arrival.label))
        return told

    def summary(self, count: Callable[[str], float] = guessed) -> str:
        """The draft in words: "16 different prompts · about 24 tokens each". `count` tells the tokens of a text."""
        total, different, sample = self.total, self.different, self.sources[:50]
        if not total:
            return ""
        texts = [source if self.file else expand_template(source, 1)[0] for source in sample]
        tokens = sum(_tokens(text, count) for text in texts) / len(texts)
        tokens = max(1, round(tokens + (_tokens(self.system, count) if self.chat else 0)))
        if not self.file and any(map(is_unclosed, sample)):
            return tr("a {{ is not closed, and sent as it stands · about {tokens:,} tokens", tokens=tokens)
        if total == 1:
            return tr("about {tokens:,} tokens", tokens=tokens)
        if different == 1:
            which = tr("{count:,} times the same prompt", count=total)
        elif different < total:
            which = tr("{different:,} different prompts in {all:,} requests", different=different, all=total)
        else:
            which = tr("{different:,} different prompts", different=different)
        return tr("{prompts} · about {tokens:,} tokens each", prompts=which, tokens=tokens)


def text_of(prompt: Prompt) -> str:
    """A prompt's own words: of a chat, what its messages say; of token ids, their numbers."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(part["content"] if isinstance(part, dict) else str(part) for part in prompt)
