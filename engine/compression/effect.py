"""What a shorter prompt buys and what it costs: tokens and time to the first token, and how far the answer moved."""

import threading
from dataclasses import asdict, dataclass
from math import exp, log
from statistics import median
from typing import Any

from engine.compression.asking import GREEDY, Asker, Report
from engine.config.checks import InvalidInput, whole
from engine.config.submission import Prompt
from engine.core import EngineFace, Stream
from engine.trace import PromptScored

ANSWER = 32  # tokens
ROUNDS = 3
LIKELIEST = 20  # tokens whose probabilities are compared, the rest as one
LABEL = "measuring a compressed prompt"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two prompts: its `tokens`, and its greedy answer. `ttft` and `prefill` are seconds, one of each round:
    from submitting to the first token, and from the first step with the prompt to that token."""

    tokens: int
    ttft: tuple[float, ...]
    prefill: tuple[float, ...]
    text: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """The original prompt (`before`) beside the shorter one (`after`), measured in turns without anything else.

    `divergence[i]`: KL(before || after) in nats of the distributions of the answer's token i, both prompts followed by
    the original's answer up to there. It is taken over the tokens that are among the likeliest of both and all others
    as one, which by the data processing inequality is at most the divergence of the whole distributions.
    """

    before: Side
    after: Side
    divergence: tuple[float, ...]

    @property
    def saved(self) -> int:
        """Tokens."""
        return self.before.tokens - self.after.tokens

    @property
    def speed_up(self) -> float:
        """Times to the first token, medians: the original's over the shorter one's."""
        return median(self.before.ttft) / median(self.after.ttft)

    @property
    def front(self) -> int:
        """How many tokens of both answers are equal before the first that is not."""
        pairs = zip(self.before.token_ids, self.after.token_ids)
        return next((i for i, (one, other) in enumerate(pairs) if one != other), self._shorter)

    @property
    def agreement(self) -> float:
        """The share of the answers' places at which both have the same token."""
        longer = max(len(self.before.token_ids), len(self.after.token_ids))
        same = sum(one == other for one, other in zip(self.before.token_ids, self.after.token_ids))
        return same / longer if longer else 1.0

    @property
    def kl(self) -> float:
        """The mean divergence."""
        return sum(self.divergence) / len(self.divergence) if self.divergence else 0.0

    @property
    def _shorter(self) -> int:
        return min(len(self.before.token_ids), len(self.after.token_ids))

    def to_json(self) -> dict[str, Any]:
        told = {"saved": self.saved, "speed_up": self.speed_up, "front": self.front, "agreement": self.agreement}
        return asdict(self) | told | {"kl": self.kl}


def compare_compressed(
    engine: EngineFace,
    original: Prompt,
    compressed: Prompt,
    *,
    answer: int = ANSWER,
    rounds: int = ROUNDS,
    report: Report | None = None,
    cancelled: threading.Event | None = None,
) -> Effect:
    """Both prompts in turns on an engine that nobody else uses: `rounds` times for the time to the first token, and
    `answer` tokens of each. Blocks. Raises InvalidInput and LoadCancelled."""
    whole("answer", answer)
    whole("rounds", rounds)
    if engine.config.prefix_caching:
        raise InvalidInput(
            "prefix_caching=True: a prompt that was sent before would be found in the cache, and its time to the first "
            "token say nothing; switch it off to measure"
        )
    ask, total = Asker(engine, LABEL, report, cancelled), 2 * rounds + 4
    prompts, done = (original, compressed), 0
    answers, first = [], [list[Stream](), list[Stream]()]
    for prompt in prompts:  # and with that both are warm
        ask.say("answering", done, total)
        answers.append(ask(prompt, GREEDY.with_(max_tokens=answer)))
        done += 1
    for _ in range(rounds):
        for prompt, streams in zip(prompts, first):
            ask.say("measuring the time to the first token", done, total)
            streams.append(ask(prompt, GREEDY.with_(max_tokens=1)))
            done += 1
    said, told = list(answers[0].result().token_ids), []
    for stream in answers:
        ask.say("comparing distributions", done, total)
        ids = engine.trace.requests[stream.request].prompt_ids.tolist()
        end = (engine.card.context or 1 << 30) - 1  # so many tokens a prompt may have
        told.append(_last(ask.scored((ids + said)[:end], LIKELIEST), len(ids), len(said)))
        done += 1
    divergence = tuple(divergence_of(one, other) for one, other in zip(*told))
    sides = [_side(engine, stream, streams) for stream, streams in zip(answers, first)]
    return Effect(sides[0], sides[1], divergence)


def _side(engine: EngineFace, answered: Stream, first: list[Stream]) -> Side:
    done, ttft, prefill = answered.result(), [], []
    for stream in first:
        view, seconds = engine.trace.requests[stream.request], stream.result().metrics.ttft or 0.0
        waited = view.scheduled - view.submitted if view.scheduled is not None else 0.0
        ttft.append(seconds)
        prefill.append(max(0.0, seconds - waited))
    return Side(answered.prompt_tokens, tuple(ttft), tuple(prefill), done.text, done.token_ids)


Likeliest = dict[int, float]  # log-probabilities of some tokens


def _last(scored: PromptScored, first: int, count: int) -> list[Likeliest]:
    """The log-probabilities known at the places of the tokens [first, first + count), as far as those were told of."""
    found, k = [], scored.alternatives
    for at in range(first - 1, min(first - 1 + count, len(scored.logprob))):
        places = slice(at * k, (at + 1) * k)
        likeliest = dict(zip(scored.alt_token[places].tolist(), scored.alt_logprob[places].tolist()))
        found.append(likeliest | {int(scored.token[at + 1]): float(scored.logprob[at])})
    return found


def divergence_of(one: Likeliest, other: Likeliest) -> float:
    """KL(one || other) in nats over the tokens that both tell of and all others as one: at most that of the whole
    distributions (Cover and Thomas, Elements of Information Theory, 2.7: the log sum inequality)."""
    both = one.keys() & other.keys()
    rests = [max(1e-12, 1 - sum(exp(told[token]) for token in both)) for told in (one, other)]
    parts = sum(exp(one[token]) * (one[token] - other[token]) for token in both)
    return max(0.0, parts + rests[0] * log(rests[0] / rests[1]))
