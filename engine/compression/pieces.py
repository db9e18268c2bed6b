"""A prompt cut into the pieces that are kept or struck out, each with the information of its tokens."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log

from engine.compression.prompt_parts import BETWEEN, Part
from engine.config.checks import one_of
from engine.trace import PromptScored

_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # signs of scripts that write no spaces
_CUTS = {
    "words": re.compile(rf"\s*(?:[{_ALONE}]|[^\s{_ALONE}]+)"),
    "sentences": re.compile(r"\s*\S(?:[^\n]*?[.!?。！？…]+[\"'”’»)\]]*(?=\s|\Z|[^\x00-\x7f])|[^\n]*)"),
}
UNITS = {
    "words": "each word by itself, with the space before it",
    "sentences": "sentence by sentence",
    "tokens": "token by token: words lose their endings",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the text of message `message`, with the space before it. `bits` is the sum of its tokens'
    self-information, -log2 of their probability given all before them; `tokens` how many those are. `fixed`: it is kept
    whatever it says."""

    message: int
    text: str
    bits: float
    tokens: int
    fixed: bool

    @property
    def density(self) -> float:
        """Bits a token, by which pieces are ranked: what is kept then says the most in so many tokens."""
        return self.bits / self.tokens if self.tokens else 0.0


def read_as_one(parts: Sequence[Part]) -> str:
    """The text of all parts, as a model reads it that scores them."""
    return "".join(text for text, _ in _laid_out(parts))


def _laid_out(parts: Sequence[Part]) -> Iterator[tuple[str, Part]]:
    """Each part with its text, and before that of another message what stands between messages."""
    message = parts[0].message
    for part in parts:
        yield (BETWEEN if part.message != message else "") + part.text, part
        message = part.message


def pieces_of(parts: Sequence[Part], scored: PromptScored, unit: str = "words") -> list[Piece]:
    """The parts in pieces: what is fixed whole, the rest by `unit`. `scored` is of the text `read_as_one`. The pieces
    of a message, joined, are its text. Of the first token nothing is known: it counts as the mean of the others."""
    one_of("unit", unit, UNITS)
    text, begin = read_as_one(parts), 0
    spans = token_spans(text, scored)
    found: list[Piece] = []
    ends: list[int] = []  # of each piece, where its text ends
    for laid, part in _laid_out(parts):
        begin += len(laid) - len(part.text)
        end = begin + len(part.text)
        for cut in _cuts(part, unit, begin, spans):
            found.append(Piece(part.message, text[begin:cut], 0.0, 0, part.fixed))
            ends.append(cut)
            begin = cut
        begin = end
    told = [-float(p) / log(2) for p in scored.logprob]
    bits = [sum(told) / len(told) if told else 0.0, *told]
    sums, counts, at = [0.0] * len(found), [0] * len(found), 0
    for (first, last), information in zip(spans, bits):
        place = max(last - 1, first)  # a token belongs to the piece in which it ends
        while at < len(ends) - 1 and place >= ends[at]:
            at += 1
        sums[at] += information
        counts[at] += 1
    return [replace(piece, bits=s, tokens=n) for piece, s, n in zip(found, sums, counts)]


def _cuts(part: Part, unit: str, begin: int, spans: Sequence[tuple[int, int]]) -> list[int]:
    """Where the pieces of a part end, in the text read as one."""
    end = begin + len(part.text)
    if part.fixed:
        cuts = []
    elif unit == "tokens":
        cuts = sorted({last for first, last in spans if first < last and begin < last < end})
    else:
        cuts = [begin + found.end() for found in _CUTS[unit].finditer(part.text)][:-1]
    return [*cuts, end] if part.text else []  # spaces at the end stay with the last piece


def token_spans(text: str, scored: PromptScored) -> list[tuple[int, int]]:
    """Where each token's part lies in the text [first, last). What the tokenizer has changed, a space that it adds or
    signs that it writes in another way, lies where the part before it ends."""
    spans, at, before = [], 0, 0
    for end in scored.text_end.tolist():
        part, before = scored.text[before:end], end
        bare = part.strip()
        found = text.find(part, at, at + len(part)) if part else -1
        if found < 0 and bare:
            found = text.find(bare, at, at + len(bare) + 8)
            part = bare
        last = found + len(part) if found >= 0 else at
        spans.append((at, last))
        at = last
    return spans
