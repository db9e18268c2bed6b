"""One request that generates, whoever sent it, from its body to the end of its answer. What it costs is a few
assignments: facts are worked out later, on another thread."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.config.sampling_params import SamplingParams
from engine.config.submission import Prompt
from engine.core.stream import Stream
from engine.serving.errors import ApiError

LEFT = 499  # as nginx has it: the client went away first
LONGEST_HEADER = 512  # characters of a trace context that are looked at


@dataclass(slots=True)
class Exchange:
    """`received` is Unix time; `began`, `submitted` and `ended` are of `time.perf_counter`. `status` is what was sent,
    or would have been. `traceparent` and `tracestate` are the client's (W3C). `label` is what the trace names it by,
    `places` how many samples of it are counted as open."""

    id: str
    route: str
    caller: str
    model: str
    size: int = 0  # bytes of the body
    label: str = ""
    traceparent: str = ""
    tracestate: str = ""
    received: float = field(default_factory=time.time)
    began: float = field(default_factory=time.perf_counter)
    params: SamplingParams | None = None
    streamed: bool = False
    prompts: Sequence[Prompt] = ()
    submitted: float = 0.0
    streams: Sequence[Stream] = ()
    places: int = 0
    status: int = 200
    error: str = ""
    message: str = ""
    ended: float = 0.0

    def refuse(self, error: ApiError) -> None:
        """It ends with this error, whose words may quote what was sent; so may the name of a field that is none."""
        self.status, self.message = error.status, str(error)
        named = error.param if error.code != "unknown_parameter" else None
        self.error = ": ".join(filter(None, (error.code or "invalid_request", named)))

    def leave(self) -> None:
        """The client goes away before it ends."""
        self.status, self.error = LEFT, "client_left"
