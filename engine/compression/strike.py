"""Striking out what says the least, and joining what is left."""

from collections.abc import Sequence
from itertools import groupby

from engine.compression.pieces import Piece
from engine.compression.prompt_parts import rewritten
from engine.config.checks import number
from engine.config.submission import Prompt


def keep_most(pieces: Sequence[Piece], ratio: float) -> list[bool]:
    """Which pieces are kept so that, of the tokens that may be left out, no more than the share `ratio` stays: those
    with the most bits a token, of equals the earlier. What is kept at a ratio is kept at every higher one. Of a message
    of which nothing would be left, the piece that says the most stays."""
    number("ratio", ratio, 0.0, 1.0, "must be between 0 and 1: the share of tokens that stays")
    free = [i for i, piece in enumerate(pieces) if not piece.fixed]
    left = ratio * sum(pieces[i].tokens for i in free) + 1e-6
    kept = [piece.fixed for piece in pieces]
    for i in sorted(free, key=lambda i: (-pieces[i].density, i)):
        left -= pieces[i].tokens
        if left < 0:
            break
        kept[i] = True
    for _, places in groupby(range(len(pieces)), key=lambda i: pieces[i].message):
        these = list(places)
        said = [i for i in these if pieces[i].text.strip()]
        if said and not any(kept[i] for i in said):
            kept[max(said, key=lambda i: pieces[i].density)] = True
    return kept


def without(prompt: Prompt, pieces: Sequence[Piece], kept: Sequence[bool]) -> Prompt:
    """The prompt of the kept pieces."""
    texts = {}
    for message, these in groupby(zip(pieces, kept, strict=True), key=lambda pair: pair[0].message):
        texts[message] = joined(list(these))
    count = 1 if isinstance(prompt, str) else len(prompt)
    return rewritten(prompt, [texts.get(message, "") for message in range(count)])


def joined(pieces: Sequence[tuple[Piece, bool]]) -> str:
    """The kept pieces' text. Of the spaces that stood between two of them the one with the most line breaks is
    written, so that lines and paragraphs stay apart and words do not run together."""
    parts: list[str] = []
    space = ""
    for piece, kept in pieces:
        bare = piece.text.lstrip()
        own = piece.text[: len(piece.text) - len(bare)]
        space = max(space, own, key=lambda s: (s.count("\n"), bool(s)))
        if kept and bare:
            parts += [space if parts else "", bare.rstrip()]
            space = bare[len(bare.rstrip()) :]
        elif not kept and bare:
            space = max(space, bare[len(bare.rstrip()) :], key=lambda s: (s.count("\n"), bool(s)))
    return "".join(parts) + (space if parts and pieces[-1][1] else "")
