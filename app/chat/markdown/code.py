"""Code by what each piece of it is. No Qt in here."""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, Operator, String, _TokenType
from pygments.util import ClassNotFound

LONGEST = 20_000  # characters that are told apart: what is longer stands plain


class Ink(StrEnum):
    PLAIN = "plain"
    KEYWORD = "keyword"
    STRING = "string"
    NUMBER = "number"
    COMMENT = "comment"
    NAME = "name"  # what is defined here


INKS = (
    (Comment, Ink.COMMENT),
    (String, Ink.STRING),
    (Generic.Inserted, Ink.STRING),
    (Number, Ink.NUMBER),
    (Literal, Ink.NUMBER),
    (Keyword, Ink.KEYWORD),
    (Operator.Word, Ink.KEYWORD),
    (Name.Tag, Ink.KEYWORD),
    (Name.Function, Ink.NAME),
    (Name.Class, Ink.NAME),
    (Name.Attribute, Ink.NAME),
    (Generic.Heading, Ink.NAME),
)


@lru_cache(maxsize=32)
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def pieces(code: str, language: str) -> list[tuple[str, Ink]]:
    """The code in order, piece by piece, neighbours of one kind together."""
    lexer = _lexer(language) if language and len(code) <= LONGEST else None
    if lexer is None:
        return [(code, Ink.PLAIN)]
    found: list[tuple[str, Ink]] = []
    for kind, text in lexer.get_tokens(code):
        ink = _ink(kind)
        if found and (found[-1][1] is ink or not text.strip()):
            found[-1] = (found[-1][0] + text, found[-1][1])
        else:
            found.append((text, ink))
    return found if "".join(text for text, _ in found) == code else [(code, Ink.PLAIN)]


@lru_cache(maxsize=256)
def _ink(kind: _TokenType) -> Ink:
    return next((ink for family, ink in INKS if kind in family), Ink.PLAIN)
