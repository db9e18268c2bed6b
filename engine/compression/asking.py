"""One request at a time for who compresses: asked, waited for, cancelled."""

import threading
from collections.abc import Callable

from engine.config.checks import InvalidInput
from engine.config.sampling_params import SamplingParams
from engine.config.submission import Prompt
from engine.core import EngineFace, Stream
from engine.jobs import LoadCancelled, LoadProgress
from engine.trace import FinishReason, PromptScored

Report = Callable[[LoadProgress], None]
GLANCE = 0.05  # seconds between looks at whether the work was cancelled
GREEDY = SamplingParams(temperature=0.0)


class Asker:
    """Sends requests to one engine, each under the `label`. Raises LoadCancelled once `cancelled` is set, and
    InvalidInput where a request is refused or fails."""

    def __init__(
        self, engine: EngineFace, label: str, report: Report | None, cancelled: threading.Event | None
    ) -> None:
        self.engine, self._label, self._report = engine, label, report
        self._cancelled = cancelled or threading.Event()

    def say(self, stage: str, done: int = 0, total: int = 0) -> None:
        if self._report is not None:
            self._report(LoadProgress(stage, done, total))

    def __call__(self, prompt: Prompt, params: SamplingParams) -> Stream:
        """A request that is over, and went well."""
        self._look()
        stream = self.engine.submit(prompt, params, self._label)
        while True:
            try:
                done = stream.result(GLANCE)
            except TimeoutError:
                if self._cancelled.is_set():
                    stream.cancel()
                self._look()
                continue
            self._look()
            if done.finish_reason is FinishReason.CANCELLED:
                raise LoadCancelled("the request was stopped")
            if done.finish_reason is FinishReason.ERROR:
                raise InvalidInput(f"{self._label}: {done.error}")
            return stream

    def _look(self) -> None:
        if self._cancelled.is_set():
            raise LoadCancelled("the compression was stopped")

    def scored(self, prompt: Prompt, alternatives: int = 0) -> PromptScored:
        """How likely the model finds the prompt."""
        told = self(prompt, GREEDY.with_(max_tokens=1, prompt_logprobs=alternatives)).prompt_scored
        assert told is not None, "a request that went well was told of its prompt"
        return told

    def tokens(self, prompt: Prompt) -> int:
        """How many tokens the engine makes of a prompt, with what a chat's template adds. Nothing is computed of it
        that is not under way by then."""
        self._look()
        stream = self.engine.submit(prompt, GREEDY.with_(max_tokens=1), self._label)
        stream.cancel()
        return stream.prompt_tokens
