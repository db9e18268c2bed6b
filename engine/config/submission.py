"""One prompt on its way to an engine, with how it is to be continued."""

from __future__ import annotations

from dataclasses import dataclass, field

from engine.config.sampling_params import SamplingParams

Message = dict[str, str]
Prompt = str | list[int] | list[Message]


@dataclass(frozen=True, slots=True)
class Submission:
    """One prompt on its way in. `time` is `time.perf_counter()` where the caller stood; `label` is for people, and
    says whose it is where shares are fair, unless `client` does.

    `said` (paged modes) is of a request that began at another engine, with the same seed: the tokens of each of its
    samples there, None for one that is over. It goes on as if it had been here all the time, and says what follows.
    """

    prompt: Prompt
    params: SamplingParams = field(default_factory=SamplingParams)
    time: float | None = None
    label: str = ""
    said: tuple[tuple[int, ...] | None, ...] = ()
    client: str | None = None

    @property
    def whose(self) -> str:
        """To whose share it counts."""
        return self.label if self.client is None else self.client
