"""What is heard of one sample of a request, as records."""

from dataclasses import dataclass

import numpy as np

from engine.trace.records import Ended, FinishReason

UNTOLD = -1  # the id of a token of which the text alone is known
REASONS = {"length": FinishReason.LENGTH, "error": FinishReason.ERROR, "abort": FinishReason.ERROR}


@dataclass(slots=True)
class Sample:
    """`heard` pieces of text came, each told as one token; `last` is when the latest did. The text that came together
    with the end waits in `tail` until it is known whether a token of its own brought it."""

    heard: int = 0
    last: float = 0.0
    tail: str = ""
    finish: str | None = None
    finished: float = 0.0

    def ended(self, request: int, branch: int, tokens: int | None, prompt_tokens: int) -> Ended:
        """Its end. `tokens` as the server counts them, None where it does not. Those that came without a piece of their
        own, since the server sends several at once, came by the last piece."""
        more = max(0, (self.heard + bool(self.tail) if tokens is None else tokens) - self.heard)
        time = self.last if more and not self.tail and self.heard else self.finished
        return Ended(
            time=time,
            request=request,
            reason=REASONS.get(self.finish or "", FinishReason.STOP),
            text=self.tail,
            error="the server ended it with an error" if REASONS.get(self.finish or "") is FinishReason.ERROR else "",
            branch=branch,
            token=np.full(more, UNTOLD, np.int32),
            logprob=np.zeros(more, np.float32),
            text_end=np.zeros(more, np.int32),
            prompt_tokens=prompt_tokens,
        )
