"""How tokens are drawn, and when an answer ends, as one request asks for it. Values are checked when made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from engine.config.checks import check, number, text, whole
from engine.config.output_rules import biases, regular_expression, schema, texts

MOST_SAMPLES = 64
MOST_PRIORITY = 1_000_000


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request's tokens are chosen and when it ends.

    `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and `min_p` 0 are off. `logprobs` asks for that many alternatives
    to each token. `seed` None takes the engine's; noise is a function of (seed, branch, position) alone. `n` samples
    of one prompt share its blocks (paged modes).

    `beam_width` above 1 searches with so many beams (paged modes), which are a request's branches: its results are that
    many texts, best first, and `n` is 1. Nothing is drawn then: `temperature` is 0. A text's score is the sum of its
    log-probabilities over its length to the power of `length_penalty`. `early_stopping`: True ends the search with the
    first `beam_width` texts that are finished, False when the best live beam scores worse than all of them, "never"
    when it could not score better at any length either.

    `frequency_penalty` is taken from a token's logit for each time that the answer has it, `presence_penalty` once
    where it has it at all. The first `min_tokens` tokens end nothing: no end of text, no stop string. `logit_bias` (a
    mapping of token ids, or pairs) is added to logits. The tokens of `bad_words`, as they are written at a text's
    beginning and after a space, are never completed.

    `prompt_logprobs` (paged modes) asks for the log-probability of each of the prompt's tokens but the first, given
    those before it, with that many alternatives: None for none of it, 0 for the tokens' own alone. Such a request reads
    no cached prefix.

    `attention` tells with each token of the answer what it attended to, in every layer and head. Steps that do so are
    not replayed.

    Where `admission` asks for it, who has the lowest `priority` joins first, of those alike who came first.

    `adapter` is the name of one of the model's adapters, "" for the model as it is.

    The output follows one grammar at most: `regex`, a regular expression for all of it; `choices`, texts of which it is
    one; or `json_schema` (a mapping, its text, or a pydantic model), kept as its text: then it is JSON on one line with
    the separators of `json.dumps`. Where max_tokens cut it off, the grammar is not complete.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    ignore_eos: bool = False
    logprobs: int = 0
    n: int = 1
    beam_width: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    min_tokens: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[str, ...] = ()
    regex: str | None = None
    choices: tuple[str, ...] = ()
    json_schema: str | None = None
    prompt_logprobs: int | None = None
    priority: int = 0
    adapter: str = ""
    attention: bool = False

    def __post_init__(self) -> None:
        whole("max_tokens", self.max_tokens)
        for name, low, high, rule in (
            ("temperature", 0.0, 100.0, "must be between 0 (greedy) and 100"),
            ("top_p", 0.0, 1.0, "must be above 0 and at most 1 (off)"),
            ("min_p", 0.0, 1.0, "must be from 0 (off) to 1"),
            ("repetition_penalty", 0.0, 100.0, "must be above 0 (1 is off)"),
            ("frequency_penalty", -100.0, 100.0, "must be from -100 to 100 (0 is off)"),
            ("presence_penalty", -100.0, 100.0, "must be from -100 to 100 (0 is off)"),
        ):
            number(name, getattr(self, name), low, high, rule)
        check(self.top_p > 0, "top_p", self.top_p, "must be above 0 and at most 1 (off)")
        check(self.repetition_penalty > 0, "repetition_penalty", self.repetition_penalty, "must be above 0 (1 is off)")
        whole("top_k", self.top_k, 0, rule="must be a whole number; 0 is off")
        for name in ("stop", "bad_words", "choices"):
            object.__setattr__(self, name, texts(name, getattr(self, name)))
        if self.seed is not None:
            whole("seed", self.seed, 0, rule="must be a whole number of at least 0, or None")
        whole("logprobs", self.logprobs, 0, 20)
        if self.prompt_logprobs is not None:
            whole("prompt_logprobs", self.prompt_logprobs, 0, 20, "must be None (off), or a whole number from 0 to 20")
        whole("n", self.n, 1, MOST_SAMPLES)
        whole("priority", self.priority, -MOST_PRIORITY, MOST_PRIORITY)
        text("adapter", self.adapter)
        check(isinstance(self.attention, bool), "attention", self.attention, "must be True or False")
        self._check_rules()
        self._check_beams()

    def _check_beams(self) -> None:
        whole("beam_width", self.beam_width, 1, MOST_SAMPLES)
        number("length_penalty", self.length_penalty, -10.0, 10.0, "must be between -10 and 10")
        stopping = isinstance(self.early_stopping, bool) or self.early_stopping == "never"
        check(stopping, "early_stopping", self.early_stopping, 'must be True, False or "never"')
        if self.beam_width == 1:
            return
        samples = f"beam_width={self.beam_width} gives that many results by itself; leave n at 1"
        check(self.n == 1, "n", self.n, samples)
        weighs = "beams are weighed by the model's own probabilities; leave it 1, or beam_width at 1"
        check(self.repetition_penalty == 1.0, "repetition_penalty", self.repetition_penalty, weighs)
        rules = ("frequency_penalty", "presence_penalty", "min_tokens", "logit_bias", "bad_words")
        for name in (*rules, "regex", "choices", "json_schema"):
            check(not getattr(self, name), name, getattr(self, name), weighs.replace("leave it 1", "leave it out"))
        told = "a beam search tells nothing of its prompt; leave it out, or beam_width at 1"
        check(self.prompt_logprobs is None, "prompt_logprobs", self.prompt_logprobs, told)
        paths = "a beam search moves its paths from row to row; leave it out, or beam_width at 1"
        check(not self.attention, "attention", self.attention, paths)
        object.__setattr__(self, "temperature", 0.0)

    @property
    def branches(self) -> int:
        """How many results a request has, and branches: samples or beams."""
        return max(self.n, self.beam_width)

    def _check_rules(self) -> None:
        """What is asked of the output, each in the form that it is kept in."""
        object.__setattr__(self, "logit_bias", biases(self.logit_bias))
        object.__setattr__(self, "regex", regular_expression(self.regex))
        object.__setattr__(self, "json_schema", schema(self.json_schema))
        most = f"must be a whole number from 0 to max_tokens ({self.max_tokens:,})"
        whole("min_tokens", self.min_tokens, 0, self.max_tokens, most)
        grammars = [name for name in ("regex", "choices", "json_schema") if getattr(self, name)]
        check(len(grammars) < 2, " and ".join(grammars), "…", "give one of them; an output follows one grammar")
        for name in ("ignore_eos", "min_tokens", "bad_words"):
            alone = f"cannot be combined with {''.join(grammars)}, which says itself what comes and when it ends"
            check(not grammars or not getattr(self, name), name, getattr(self, name), alone)

    @property
    def constrained(self) -> bool:
        """Whether the output must follow a grammar."""
        return bool(self.regex or self.choices or self.json_schema)

    def with_(self, **changes: Any) -> SamplingParams:
        """A copy with some values changed."""
        return replace(self, **changes)
