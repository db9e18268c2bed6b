"""An exchange in numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.config.sampling_params import SamplingParams
from engine.config.submission import Prompt
from engine.core.stream import Stream
from engine.serving.exchange.exchange import Exchange
from engine.serving.metrics.observer import REASONS


@dataclass(frozen=True, slots=True)
class Facts:
    """Moments (`received`, `scheduled`, `first`, `last`, `ended`) are Unix time, None where they did not come:
    `scheduled` is when the first step that has it began, `first` and `last` are the first and last token's. `finish`
    has a reason for each choice. `error` has no word of what was sent; `message`, `prompts` and `texts` do."""

    id: str
    route: str
    caller: str
    model: str
    traceparent: str
    tracestate: str
    params: SamplingParams | None
    streamed: bool
    received: float
    scheduled: float | None
    first: float | None
    last: float | None
    ended: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    finish: tuple[str, ...]
    status: int
    error: str
    message: str
    prompts: Sequence[Prompt]
    texts: tuple[str, ...]

    @property
    def latency(self) -> float:
        """Seconds from the request's arrival to its answer's end."""
        return self.ended - self.received

    @property
    def ttft(self) -> float | None:
        """Seconds from its arrival to the first token."""
        return self.first - self.received if self.first is not None else None

    @property
    def queue(self) -> float | None:
        """Seconds from its arrival to the first step that has it."""
        return self.scheduled - self.received if self.scheduled is not None else None

    @property
    def per_token(self) -> float | None:
        """Seconds a token after the first, of the mean sample."""
        if self.first is None or self.last is None or (later := self.output_tokens / len(self.finish) - 1) <= 0:
            return None
        return (self.last - self.first) / later

    @classmethod
    def of(cls, exchange: Exchange) -> "Facts":
        """The facts of an exchange that is over. A sample whose end is still to come was aborted."""
        streams, begin = exchange.streams, exchange.received + exchange.submitted - exchange.began
        moments = [begin + time - stream.submitted for stream in streams for time in _token_times(stream)]
        steps = [begin + stream.scheduled - stream.submitted for stream in streams if stream.scheduled is not None]
        return cls(
            exchange.id,
            exchange.route,
            exchange.caller,
            exchange.model,
            exchange.traceparent,
            exchange.tracestate,
            exchange.params,
            exchange.streamed,
            exchange.received,
            min(steps, default=None),
            min(moments, default=None),
            max(moments, default=None),
            exchange.received + exchange.ended - exchange.began,
            sum(stream.prompt_tokens for stream in streams),
            sum(stream.reused for stream in streams),
            sum(len(delta.token_ids) for stream in streams for delta in stream.deltas),
            tuple(_reason(stream, sample) for stream in streams for sample in range(stream.samples)),
            exchange.status,
            exchange.error,
            exchange.message,
            exchange.prompts,
            tuple(text for stream in streams for text in _texts(stream)),
        )


def _token_times(stream: Stream) -> list[float]:
    """Of its first token and its last."""
    times = [delta.time for delta in stream.deltas if delta.token_ids]
    return [times[0], times[-1]] if times else []


def _reason(stream: Stream, sample: int) -> str:
    ended = stream.ended.get(sample)
    return REASONS[ended.reason] if ended is not None else "abort"


def _texts(stream: Stream) -> list[str]:
    parts: list[list[str]] = [[] for _ in range(stream.samples)]
    for delta in stream.deltas:
        parts[delta.sample].append(delta.text)
    return ["".join(part) for part in parts]
