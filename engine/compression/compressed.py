"""Making a prompt shorter: by the information of its words, by a summary, or by fields.

By information: Selective Context (Li et al. 2023, "Compressing Context to Enhance Inference Efficiency of Large
Language Models", section 3), with words for its phrases and bits a token for their order; a smaller model may do the
scoring, as in LLMLingua (Jiang et al. 2023).
"""

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import perf_counter

from engine.compression.asking import GREEDY, Asker, Report
from engine.compression.fields import Fields, names_of, schema_of
from engine.compression.pieces import Piece, pieces_of, read_as_one
from engine.compression.prompt_parts import KEEPS, Part, parts_of, replaced
from engine.compression.strike import keep_most, without
from engine.config.checks import InvalidInput, number
from engine.config.specs import COLOCATED_MODES, EngineConfig, ModelSpec
from engine.config.submission import Prompt
from engine.core import EngineFace, EngineProcess
from engine.trace import FinishReason

METHODS = {
    "information": "strikes out the words that say the least",
    "summary": "the model writes a summary in their place",
    "fields": "the model fills in fields, as JSON",
}
SCORER_MEMORY = 256 << 20  # bytes of the KV pool of a model that is loaded to score a prompt
LEAST_SUMMARY = 16  # tokens
MOST_FIELDS = 1024
SUMMARIZE = "Summarize the following text in at most {words} words. Keep names, numbers and facts.\n\n{text}"
FILL_IN = "Read the following text and write down {what} of it as JSON.\n\n{text}"


@dataclass(frozen=True, slots=True)
class Scored:
    """A prompt with the information of its pieces under a model, `scored_by`: what is struck out at any ratio follows
    from it. `seconds`: how long scoring took."""

    prompt: Prompt
    pieces: tuple[Piece, ...]
    scored_by: str
    seconds: float

    @property
    def tokens(self) -> int:
        """Of its text, as the model that scored it has them."""
        return sum(piece.tokens for piece in self.pieces)

    def kept(self, ratio: float) -> tuple[bool, ...]:
        """Which pieces stay, as `keep_most` has it."""
        return tuple(keep_most(self.pieces, ratio))

    def compressed(self, ratio: float) -> Prompt:
        """The prompt of what stays."""
        return without(self.prompt, self.pieces, self.kept(ratio))


@dataclass(frozen=True, slots=True)
class Compressed:
    """A prompt made shorter. `pieces` are those of the original, `kept` says which of them stayed; of a summary and of
    fields, whose `text` stands in place of what did not, nobody measured their information. `tokens_before` and
    `tokens_after` are of the whole prompts as the engine reads them; `seconds`: how long all of it took."""

    method: str
    original: Prompt
    prompt: Prompt
    pieces: tuple[Piece, ...]
    kept: tuple[bool, ...]
    text: str
    tokens_before: int
    tokens_after: int
    scored_by: str
    seconds: float

    @property
    def ratio(self) -> float:
        """The share of the tokens that is left."""
        return self.tokens_after / self.tokens_before


def score(
    engine: EngineFace,
    prompt: Prompt,
    *,
    unit: str = "words",
    keep: Collection[str] = tuple(KEEPS),
    scorer: ModelSpec | None = None,
    report: Report | None = None,
    cancelled: threading.Event | None = None,
) -> Scored:
    """The information of each piece of a prompt (text, or chat messages) under the engine's model, or under `scorer`,
    which is loaded for it in a process of its own: beside a model on a GPU on the CPU, unless it names a device.
    `unit`: words, sentences or tokens; `keep`: what is kept whole. Messages are read one after another, without a
    template. Raises InvalidInput and LoadCancelled."""
    begun, parts = perf_counter(), parts_of(prompt, keep)
    if scorer is None and engine.config.mode not in COLOCATED_MODES:
        raise InvalidInput(
            f"mode {engine.config.mode!r} cannot tell how likely a prompt's words are; load the model in one of "
            f"{', '.join(COLOCATED_MODES)}, or let another model do the scoring"
        )
    with _scorer(engine, scorer, report, cancelled) as by:
        ask = Asker(by, "scoring a prompt", report, cancelled)
        ask.say("scoring the prompt")
        told = ask.scored(read_as_one(parts))
        on_cpu = by.card.device == "cpu" and engine.card.device != "cpu"
        name = f"{by.card.name} (CPU)" if on_cpu else by.card.name
        return Scored(prompt, tuple(pieces_of(parts, told, unit)), name, perf_counter() - begun)


@contextmanager
def _scorer(
    engine: EngineFace, spec: ModelSpec | None, report: Report | None, cancelled: threading.Event | None
) -> Iterator[EngineFace]:
    if spec is None:
        yield engine
    else:
        if engine.card.device.startswith("cuda") and spec.device == "auto":
            spec = replace(spec, device="cpu")  # the engine's pool has what is left of its GPU
        config = EngineConfig(max_running=1, kv_memory=SCORER_MEMORY, cuda_graphs=False)
        with EngineProcess(spec, config, progress=report, cancelled=cancelled) as other:
            yield other


def compress(
    engine: EngineFace,
    prompt: Prompt,
    *,
    method: str = "information",
    ratio: float = 0.5,
    unit: str = "words",
    fields: Fields | None = None,
    keep: Collection[str] = tuple(KEEPS),
    scorer: ModelSpec | None = None,
    report: Report | None = None,
    cancelled: threading.Event | None = None,
) -> Compressed:
    """The prompt made shorter by one of METHODS. `ratio`: of the tokens that may be left out, the share that stays, or
    that a summary may have; fields are as long as they are. See `score` for the rest. Blocks. Raises InvalidInput and
    LoadCancelled."""
    number("ratio", ratio, 0.0, 1.0, "must be between 0 and 1: the share of tokens that stays")
    if method not in METHODS:
        raise InvalidInput(f"method={method!r}: must be one of {', '.join(METHODS)}")
    if (method == "fields") is (fields is None):
        raise InvalidInput('fields: are what method "fields" fills in; give both, or neither')
    begun, ask = perf_counter(), Asker(engine, "compressing a prompt", report, cancelled)
    pieces: tuple[Piece, ...]
    if method == "information":
        watched = {"report": report, "cancelled": cancelled}
        scored = score(engine, prompt, unit=unit, keep=keep, scorer=scorer, **watched)  # type: ignore[arg-type]
        pieces, kept, text, by = scored.pieces, scored.kept(ratio), "", scored.scored_by
        new = scored.compressed(ratio)
    else:
        parts = parts_of(prompt, keep)
        pieces = tuple(Piece(part.message, part.text, 0.0, 0, part.fixed) for part in parts)
        kept, by = tuple(part.fixed for part in parts), engine.card.name
        ask.say("the model writes")
        text = summary(ask, parts, ratio) if fields is None else filled_in(ask, parts, fields)
        new = replaced(prompt, parts, text)
    before, after = ask.tokens(prompt), ask.tokens(new)
    return Compressed(method, prompt, new, pieces, kept, text, before, after, by, perf_counter() - begun)


def summary(ask: Asker, parts: list[Part], ratio: float) -> str:
    """What the model writes in place of the parts that may be compressed, in at most `ratio` of their tokens."""
    text = _free_text(parts)
    most = max(LEAST_SUMMARY, round(ratio * ask.tokens(text)))
    words = max(1, most * 3 // 4)  # of English, about
    asked = _asked(ask, SUMMARIZE.format(words=words, text=text), "Summary:")
    said = ask(asked, GREEDY.with_(max_tokens=most)).result().text.strip()
    if not said:
        raise InvalidInput(f"{ask.engine.card.name} wrote nothing as a summary; use another method, or another model")
    return said


def filled_in(ask: Asker, parts: list[Part], fields: Fields) -> str:
    """The fields of the parts that may be compressed, as JSON."""
    schema = schema_of(fields)
    what = ", ".join(names_of(schema)) or "the fields"
    asked = _asked(ask, FILL_IN.format(what=what, text=_free_text(parts)), "JSON:")
    done = ask(asked, replace(GREEDY, max_tokens=MOST_FIELDS, json_schema=schema)).result()
    if done.finish_reason is FinishReason.LENGTH:
        raise InvalidInput(
            f"the fields are not complete after {len(done.token_ids):,} tokens; ask for fewer or shorter"
        )
    return done.text.strip()


def _free_text(parts: list[Part]) -> str:
    return read_as_one([part for part in parts if not part.fixed]).strip()


def _asked(ask: Asker, text: str, begun: str) -> Prompt:
    """A request of the model: as a chat where it has a template."""
    return [{"role": "user", "content": text}] if ask.engine.card.chat else f"{text}\n\n{begun}"
