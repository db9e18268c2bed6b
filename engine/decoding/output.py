"""What a branch says: its tokens as text, and when it ends."""

from engine.config.sampling_params import SamplingParams
from engine.decoding.constraints import Matcher
from engine.decoding.detokenizer import Detokenizer
from engine.decoding.stop import StopStrings
from engine.trace.records import FinishReason


class Output:
    """Takes committed tokens; gives text that is certain and the reason for the end, if this token is it. `matcher`
    follows them where they are held to a grammar."""

    def __init__(
        self,
        detokenizer: Detokenizer,
        params: SamplingParams,
        eos: frozenset[int],
        limit: int,
        matcher: Matcher | None = None,
    ) -> None:
        self._detokenizer = detokenizer
        self._stops = StopStrings(params.stop) if params.stop else None
        self._eos = frozenset() if params.ignore_eos else eos
        self._left = limit
        self._stoppable = limit - params.min_tokens  # of what is left, below which it may stop
        self.matcher = matcher

    @property
    def fault(self) -> str:
        """Why the branch ends as an error; empty where it does not."""
        return self.matcher.fault if self.matcher is not None else ""

    def push(self, token: int) -> tuple[str, FinishReason | None]:
        self._left -= 1
        if self.matcher is not None and not self.matcher.advance(token):
            return self.flush(), FinishReason.ERROR
        if token in self._eos:
            return self.flush(), FinishReason.STOP
        said = self._detokenizer
        text = said.push(token)
        if self._stops is not None and self._left < self._stoppable:
            text, stopped = (self._stops.flush() + text, False) if said.marked else self._stops.push(text)
            if stopped:
                return text, FinishReason.STOP
        if self.matcher is not None and self.matcher.ended:
            return text + self.flush(), FinishReason.STOP
        if self._left <= 0:
            return text + self.flush(), FinishReason.LENGTH
        return text, None

    def flush(self) -> str:
        """Everything held back, at an end that no stop string caused; a stop string completed by it still cuts."""
        text = self._detokenizer.flush()
        if self._stops is None:
            return text
        text, stopped = self._stops.push(text)
        return text if stopped else text + self._stops.flush()
