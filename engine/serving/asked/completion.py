"""The body of /v1/completions."""

from typing import Any

from pydantic import Field, field_validator, model_validator

from engine.serving.asked.sampled import Sampled

DEFAULT_TOKENS = 16  # as OpenAI has it


class AskedCompletion(Sampled):
    prompt: list[str | list[int]]
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool | None = None

    @field_validator("prompt", mode="plain")
    @classmethod
    def _prompts(cls, given: Any) -> list[str | list[int]]:
        """A text, token ids, or a list of either."""
        if isinstance(given, str) or _ids(given):
            return [given]
        if isinstance(given, list) and given and all(isinstance(one, str) or _ids(one) for one in given):
            return given
        raise ValueError("must be a text, a list of token ids, or a list of texts or of lists of token ids")

    @model_validator(mode="after")
    def _agree(self) -> "AskedCompletion":
        if self.echo and self.logprobs is not None:
            raise ValueError("echo with logprobs is not supported; leave one of them out")
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        return self.prompt

    @property
    def echoes(self) -> bool:
        return bool(self.echo)

    @property
    def tells_logprobs(self) -> bool:
        return self.logprobs is not None

    @property
    def alternatives(self) -> int:
        return self.logprobs or 0

    @property
    def most_tokens(self) -> int | None:
        return DEFAULT_TOKENS if self.max_tokens is None else self.max_tokens


def _ids(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(type(one) is int for one in given)
