"""Thoughts are told from answers, however a model sets them apart."""

import pytest

from app.chat.store.tree import Facts, Role, Turn, messages
from app.chat.thoughts import Said, split
from app.chat.transcript.words import thought_words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nTwo and two.\n</think>\n\nFour.", Said("Two and two.", "Four.")),
        ("Two and two.\n</think>\n\nFour.", Said("Two and two.", "Four.")),  # begun by the chat template
        ("<think>\nTwo", Said("Two", "", True)),
        ("<think>\n\n</think>\n\nFour.", Said("", "Four.")),
        ("Four.", Said("", "Four.")),
        ("Say <think> to me.", Said("", "Say <think> to me.")),
        ("", Said("", "")),
    ],
)
def test_a_text_is_split(text: str, expected: Said) -> None:
    assert split(text) == expected


def test_thoughts_are_not_sent_again() -> None:
    turns = [
        Turn(1, None, Role.USER, "<think> is a tag"),
        Turn(2, 1, Role.ASSISTANT, "<think>A tag.</think>\n\nIt is."),
        Turn(3, 2, Role.USER, "And?"),
        Turn(4, 3, Role.ASSISTANT, "<think>Cut off"),
        Turn(5, 4, Role.USER, "Go on."),
    ]
    assert [m["content"] for m in messages(turns)] == ["<think> is a tag", "It is.", "And?", "Go on."]


def test_the_line_above_them_says_how_long_it_took() -> None:
    facts = Facts(tokens=80, thought=2.06, thoughts=61)
    assert thought_words(facts, thinking=False) == "Thought for 2.06 s  ·  61 tokens"
    assert thought_words(facts, thinking=True) == "Thinking …  ·  80 tokens"
    assert thought_words(Facts(tokens=80), thinking=False) == "Thoughts", "cut off"
