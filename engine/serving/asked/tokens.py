"""The bodies of /tokenize and /detokenize, as vLLM has them."""

from pydantic import Field, model_validator

from engine.config.submission import Message
from engine.serving.asked.chat import ChatMessage
from engine.serving.asked.reading import Asked


class AskedText(Asked):
    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = Field(None, min_length=1)

    @model_validator(mode="after")
    def _one(self) -> "AskedText":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give prompt or messages, one of them")
        return self

    @property
    def whole(self) -> str | list[Message]:
        return self.prompt if self.messages is None else [m.plain for m in self.messages]  # type: ignore[return-value]


class AskedTokens(Asked):
    model: str | None = None
    tokens: list[int]
