"""The body of /v1/chat/completions."""

from typing import Literal

from pydantic import Field, model_validator

from engine.config.submission import Message
from engine.serving.asked.reading import Asked
from engine.serving.asked.sampled import Sampled


class TextPart(Asked):
    type: Literal["text"]
    text: str


class ChatMessage(Asked):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    reasoning_content: str | None = None  # of an answer that is sent back: no model is to read its thoughts again

    @property
    def plain(self) -> Message:
        """As the engine takes it. `developer` is OpenAI's newer word for `system`, which templates know."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return {"role": "system" if self.role == "developer" else self.role, "content": text}


class AskedChat(Sampled):
    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)

    @model_validator(mode="after")
    def _agree(self) -> "AskedChat":
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise ValueError("max_tokens and max_completion_tokens differ; give one of them")
        return self

    @property
    def prompts(self) -> list[list[Message]]:
        return [[message.plain for message in self.messages]]

    @property
    def tells_logprobs(self) -> bool:
        return bool(self.logprobs)

    @property
    def alternatives(self) -> int:
        return self.top_logprobs or 0

    @property
    def most_tokens(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
