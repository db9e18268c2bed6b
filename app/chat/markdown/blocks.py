"""A growing text as Markdown blocks: those that are settled are parsed once, only the last one again. No Qt in here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

LISTS = ("bullet_list_open", "ordered_list_open")


class Kind(StrEnum):
    PROSE = "prose"
    CODE = "code"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Block:
    """A piece that can be written by itself: a paragraph, one item of a list, a fence. `[begin, end)` are its lines."""

    kind: Kind
    tokens: Sequence[Token]
    begin: int
    end: int

    @property
    def code(self) -> str:
        return self.tokens[0].content.removesuffix("\n")

    @property
    def language(self) -> str:
        """As the fence names it, "" where it does not."""
        return (self.tokens[0].info.split() or [""])[0].lower()


def parser() -> MarkdownIt:
    """CommonMark with tables. Tags are text, and so is what would define links for elsewhere in the text."""
    made = MarkdownIt("commonmark", {"html": False})
    return made.enable(["table", "strikethrough"]).disable(["reference", "html_block", "html_inline"])


class GrowingText:
    """A text that only grows. `settled` blocks stay as they are, whatever is added."""

    def __init__(self) -> None:
        self.text = ""
        self._parser = parser()
        self._open = 0  # where the last block begins, in characters

    def grow(self, text: str) -> tuple[list[Block], Block | None]:
        """The blocks that are settled since the last call, and the last one, which may go on: None where nothing is
        written yet. Lines end with a new line alone. Costs what is new and the last block."""
        assert text.startswith(self.text[-64:], max(0, len(self.text) - 64)), "a text only grows; begin anew"
        self.text = text
        rest, begin = text[self._open :], 0
        blocks = split(self._parser.parse(rest))
        if not blocks:
            return [], None
        *settled, last = blocks
        for _ in range(last.begin):
            begin = rest.index("\n", begin) + 1
        self._open += begin
        return settled, last


def split(tokens: Sequence[Token]) -> list[Block]:
    """Blocks of the outermost level; of a list each item, with the list's own opening and closing around it."""
    found: list[Block] = []
    for begin, end in _groups(tokens, 0, len(tokens), 0):
        first = tokens[begin]
        if first.type in LISTS:
            for item, after in _groups(tokens, begin + 1, end - 1, 1):
                own = (first, *tokens[item:after], tokens[end - 1])
                found.append(_block(Kind.PROSE, own, tokens[item]))
        else:
            kind = {"fence": Kind.CODE, "code_block": Kind.CODE, "table_open": Kind.TABLE}.get(first.type, Kind.PROSE)
            found.append(_block(kind, tokens[begin:end], first))
    return found


def _block(kind: Kind, tokens: Sequence[Token], first: Token) -> Block:
    begin, end = first.map or (0, 0)
    return Block(kind, tokens, begin, end)


def _groups(tokens: Sequence[Token], begin: int, end: int, level: int) -> list[tuple[int, int]]:
    """The half-open ranges from each token that begins something on this level to the one that ends it."""
    starts = [i for i in range(begin, end) if tokens[i].level == level and tokens[i].nesting >= 0]
    return list(pairwise([*starts, end]))
