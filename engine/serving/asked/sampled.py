"""What both kinds of request say of their sampling."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from engine.config.checks import InvalidInput
from engine.config.sampling_params import SamplingParams
from engine.config.submission import Prompt
from engine.serving.asked.output_format import OutputFormat
from engine.serving.asked.reading import Asked
from engine.serving.errors import refused

MOST_STOPS = 16
MOST_BIASES = 1024
SAME = (
    "n temperature top_p top_k min_p frequency_penalty presence_penalty repetition_penalty seed ignore_eos min_tokens "
    "priority"
).split()  # fields that `SamplingParams` has by these names


class StreamOptions(Asked):
    include_usage: bool | None = None


class Sampled(Asked):
    """`None` stands for a field that was left out."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=MOST_BIASES)] | None = None
    seed: int | None = None
    stop: tuple[str, ...] | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    priority: int | None = None
    response_format: OutputFormat | None = None

    @field_validator("stop", mode="before")
    @classmethod
    def _stops(cls, given: Any) -> Any:
        stops = (given,) if isinstance(given, str) else given
        if stops is None:
            return None
        listed = isinstance(stops, (list, tuple)) and all(isinstance(stop, str) and stop for stop in stops)
        if not listed or len(stops) > MOST_STOPS:
            raise ValueError(f"must be a text that is not empty, or up to {MOST_STOPS} of them")
        return tuple(stops)

    @model_validator(mode="after")
    def _streams(self) -> "Sampled":
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options is for stream: true")
        return self

    @property
    def prompts(self) -> Sequence[Prompt]:
        raise NotImplementedError

    @property
    def tells_logprobs(self) -> bool:
        raise NotImplementedError

    @property
    def echoes(self) -> bool:
        """Whether the prompt stands before the answer."""
        return False

    @property
    def alternatives(self) -> int:
        """How many tokens are told beside each one that was said."""
        raise NotImplementedError

    @property
    def most_tokens(self) -> int | None:
        return self.max_tokens

    @property
    def usage_streamed(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def params(self, most_tokens: int) -> SamplingParams:
        """`most_tokens`: where the request leaves it open. Raises ApiError."""
        given = {name: value for name in SAME if (value := getattr(self, name)) is not None}
        given["max_tokens"] = most_tokens if self.most_tokens is None else self.most_tokens
        given |= {"stop": self.stop or (), "logit_bias": self.logit_bias or (), "logprobs": self.alternatives}
        if self.response_format is not None:
            given |= self.response_format.rules()
        try:
            return SamplingParams(**given)
        except InvalidInput as error:
            raise refused(error) from None
