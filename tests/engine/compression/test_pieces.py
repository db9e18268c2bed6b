"""Cutting a prompt into pieces, striking out the least informative, and joining what is left."""

from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import InvalidInput
from engine.compression import Piece, joined, keep_most, parts_of, schema_of
from engine.compression.pieces import pieces_of, read_as_one, token_spans
from engine.compression.prompt_parts import replaced
from engine.compression.strike import without
from engine.trace import PromptScored

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "A fox met an owl. They sang."},
    {"role": "assistant", "content": "How nice."},
    {"role": "user", "content": "Who sang?"},
]


def scored(parts: list[str], bits: list[float]) -> PromptScored:
    """As an engine tells it: of the first token nothing."""
    none = np.empty(0, np.int32)
    ends = np.cumsum([len(part) for part in parts]).astype(np.int32)
    logprobs = np.array([-b * log(2) for b in bits[1:]], np.float32)
    ids = np.arange(len(parts), dtype=np.int32)
    return PromptScored(0.0, 0, ids, logprobs, 0, none, none.astype(np.float32), "".join(parts), ends)


def words(text: str) -> list[Piece]:
    parts = parts_of(text, ())
    return pieces_of(parts, scored(list(text), [1.0] * len(text)))


def test_a_words_bits_are_those_of_its_tokens() -> None:
    told = scored(["The", " f", "ox", " sang", "."], [9.0, 4.0, 2.0, 7.0, 1.0])
    found = pieces_of(parts_of("The fox sang.", ()), told)
    assert [(p.text, p.tokens, round(p.bits, 4)) for p in found] == [
        ("The", 1, 3.5),  # the mean: nobody knows how likely the first token is
        (" fox", 2, 6.0),
        (" sang.", 2, 8.0),
    ]


@pytest.mark.parametrize(
    ("unit", "pieces"),
    [
        ("words", ["One", " fox", " sang.", "\nWho?"]),
        ("sentences", ["One fox sang.", "\nWho?"]),
        ("tokens", ["One fo", "x sa", "ng.\nW", "ho?"]),
    ],
)
def test_units(unit: str, pieces: list[str]) -> None:
    told = scored(["One fo", "x sa", "ng.\nW", "ho?"], [1.0] * 4)
    assert [p.text for p in pieces_of(parts_of("One fox sang.\nWho?", ()), told, unit)] == pieces


def test_scripts_without_spaces_are_cut_sign_by_sign() -> None:
    assert [p.text for p in words("狐狸 sang 歌。")] == ["狐", "狸", " sang", " 歌", "。"]


@given(st.text(alphabet=st.sampled_from("ab .!?\n\t狐é"), max_size=40))
def test_pieces_joined_are_the_text(text: str) -> None:
    if text.strip():
        for unit in ("words", "sentences", "tokens"):
            found = pieces_of(parts_of(text, ()), scored(list(text), [1.0] * len(text)), unit)
            assert "".join(p.text for p in found) == text
            assert sum(p.tokens for p in found) == len(text)


def test_a_tokenizer_that_writes_its_own_spaces_is_followed() -> None:
    told = scored(["", " The", " fox", "…", " sang"], [0.0, 1.0, 1.0, 1.0, 1.0])
    assert token_spans("The fox... sang", told) == [(0, 0), (0, 3), (3, 7), (7, 7), (7, 15)]


def test_instructions_and_the_question_are_kept_whole() -> None:
    assert [part.fixed for part in parts_of(CHAT)] == [True, False, False, True]
    assert [part.fixed for part in parts_of(CHAT, ("question",))] == [False, False, False, True]
    assert [(p.text, p.fixed) for p in parts_of("A fox.\n\nAn owl.\n\nWho sang?")] == [
        ("A fox.\n\nAn owl.\n\n", False),
        ("Who sang?", True),
    ]
    assert [p.fixed for p in parts_of([{"role": "user", "content": "A fox.\nWho?"}])] == [False, True]
    assert [p.fixed for p in parts_of("A fox sang.")] == [False]
    assert [p.fixed for p in parts_of([CHAT[0], CHAT[3]], ("question",))] == [False, True]


def test_what_keeps_nothing_to_strike_out_is_refused() -> None:
    with pytest.raises(InvalidInput, match="nothing is left to compress; keep less"):
        parts_of([CHAT[0], CHAT[3]])
    with pytest.raises(InvalidInput, match=r"keep='all': known are instructions, question"):
        parts_of(CHAT, ("all",))
    with pytest.raises(InvalidInput, match=r"prompt=\[1, 2\]: give text or chat"):
        parts_of([1, 2])


def piece(text: str, bits: float, tokens: int = 1, fixed: bool = False, message: int = 0) -> Piece:
    return Piece(message, text, bits, tokens, fixed)


def test_what_says_the_most_in_a_token_stays() -> None:
    pieces = [piece("a", 1.0), piece(" b", 9.0, 3), piece(" c", 4.0), piece(" d", 0.1, fixed=True)]
    assert keep_most(pieces, 0.2) == [False, False, True, True]
    assert keep_most(pieces, 0.8) == [False, True, True, True]
    assert keep_most(pieces, 1.0) == [True] * 4


@given(
    st.lists(st.tuples(st.floats(0, 20), st.integers(1, 4)), min_size=1, max_size=30), st.floats(0, 1), st.floats(0, 1)
)
def test_what_is_kept_at_a_ratio_is_kept_at_every_higher_one(
    given_: list[tuple[float, int]], one: float, other: float
) -> None:
    pieces = [piece(" w", bits, tokens) for bits, tokens in given_]
    less, more = keep_most(pieces, min(one, other)), keep_most(pieces, max(one, other))
    assert all(much or not little for little, much in zip(less, more))
    assert sum(less) == 1 or sum(p.tokens for p, kept in zip(pieces, less) if kept) <= one_of(pieces, min(one, other))


def one_of(pieces: list[Piece], ratio: float) -> float:
    return ratio * sum(p.tokens for p in pieces) + 1e-6


def test_of_every_message_something_stays() -> None:
    pieces = [piece("dull", 1.0), piece(" news", 2.0), piece("wild", 9.0, message=1)]
    assert keep_most(pieces, 0.0) == [False, True, True]


@pytest.mark.parametrize(
    ("struck", "left"),
    [
        ({"The"}, "fox sang.\n\nWho?"),
        ({" fox"}, "The sang.\n\nWho?"),
        ({"\n\nWho?"}, "The fox sang."),
        ({" sang."}, "The fox\n\nWho?"),
        (set(), "The fox sang.\n\nWho?"),
    ],
)
def test_lines_stay_apart_and_words_too(struck: set[str], left: str) -> None:
    pieces = words("The fox sang.\n\nWho?")
    assert joined([(p, p.text not in struck) for p in pieces]) == left


def test_a_line_that_is_struck_out_leaves_its_break() -> None:
    pieces = words("One fox\nTwo owls\nThree")
    assert joined([(p, p.text not in {"\nTwo", " owls"}) for p in pieces]) == "One fox\nThree"
    assert joined([(p, p.text != "\nTwo") for p in pieces]) == "One fox\nowls\nThree"


def test_a_chat_stays_a_chat() -> None:
    parts = parts_of(CHAT)
    text = read_as_one(parts)
    pieces = pieces_of(parts, scored(list(text), [1.0] * len(text)))
    kept = [p.fixed or p.text.strip() in ("fox", "sang.", "nice.") for p in pieces]
    assert [m["content"] for m in without(CHAT, pieces, kept)] == ["Be brief.", "fox sang.", "nice.", "Who sang?"]
    assert replaced(CHAT, parts, "Song.") == [CHAT[0], {"role": "user", "content": "Song.\n\nWho sang?"}]
    assert replaced("A fox.\nWho?", parts_of("A fox.\nWho?"), " Song. ") == "Song.\n\nWho?"


def test_fields_are_names_or_a_schema() -> None:
    assert '"required": ["who", "where"]' in schema_of(["who", " where"])
    assert schema_of({"type": "object"}) == '{"type": "object"}'
    for wrong in ([], ["who", "who"], [""], [3]):
        with pytest.raises(InvalidInput, match=r"fields=.*give names, each once"):
            schema_of(wrong)  # type: ignore[arg-type]
