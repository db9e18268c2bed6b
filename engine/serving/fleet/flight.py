"""One request on its way through a fleet, wherever it is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from engine.config.sampling_params import SamplingParams
from engine.config.submission import Message, Submission
from engine.core.face import EngineFace
from engine.core.stream import Stream

STALLS = 3  # replicas that may die under a request without a token of it: it may be what ends them


class Carrier(Protocol):
    """What computes flights: one life of one replica."""

    engine: EngineFace
    flights: dict[int, Flight]


@dataclass(slots=True, eq=False)
class Flight:
    """`params` have a seed, as `asked` need not. `chain` names the prompt's full blocks, each with all before it.
    `replica` is where it is computed (None: it waits for one), `local` its number there once that is known, and `sent`
    when it went there. All times are `time.perf_counter()`'s here."""

    number: int
    prompt: list[int]
    text: str | None
    messages: tuple[Message, ...]
    asked: SamplingParams
    params: SamplingParams
    label: str
    time: float
    stream: Stream
    chain: tuple[int, ...] = ()
    replica: Carrier | None = None
    local: int = -1
    sent: float = 0.0
    told: bool = False  # its submission is in the trace
    cancelled: bool = False
    stalls: int = 0
    moves: int = 0
    known: int = 0  # tokens that it had when it was last placed
    _counted: tuple[int, int] = (0, 0)  # deltas, and the tokens in them

    @property
    def tokens(self) -> int:
        """How many it has said so far, of all samples."""
        at, tokens = self._counted
        new = self.stream.deltas[at:]
        self._counted = at + len(new), tokens + sum([len(delta.token_ids) for delta in new])
        return self._counted[1]

    @property
    def about(self) -> dict[str, int]:
        """What people are told of it, who may not know its text."""
        limit = self.params.max_tokens * self.stream.samples
        return {"request": self.number, "tokens": self.tokens, "limit": limit, "moves": self.moves}

    @property
    def said(self) -> tuple[tuple[int, ...] | None, ...]:
        """The tokens that each sample has said; None for one that is over."""
        stream = self.stream
        tokens = [list[int]() for _ in range(stream.samples)]
        for delta in stream.deltas:
            tokens[delta.sample] += delta.token_ids
        return tuple(None if i in stream.ended else tuple(tokens[i]) for i in range(stream.samples))

    def submission(self, now: float) -> Submission:
        """What the next replica is asked: all of it, or the rest."""
        params, said = self.params, self.said
        begun = any(tokens is None or tokens for tokens in said)
        if params.prompt_logprobs is not None and self.stream.prompt_scored is not None:
            params = params.with_(prompt_logprobs=None)
        self.sent = self.time if not self.moves else now
        return Submission(self.prompt, params, self.sent, str(self.number), said if begun else (), self.label)

    def moved(self) -> bool:
        """Its replica is gone. False where it should not be tried at another."""
        tokens = self.tokens
        self.stalls = 0 if tokens > self.known else self.stalls + 1
        self.known, self.replica, self.local = tokens, None, -1
        self.moves += 1
        return self.stalls < STALLS


def chained(tokens: list[int], size: int, adapter: str = "") -> tuple[int, ...]:
    """A name for each full block of the tokens but the last, which is always computed: of its tokens and all before,
    and of the adapter that they go through."""
    names, name = [], hash(adapter) if adapter else 0
    for at in range(0, len(tokens) - size, size):
        name = hash((name, *tokens[at : at + size]))
        names.append(name)
    return tuple(names)
