"""gpt-oss' channels become the form that other reasoning models write by themselves."""

from functools import cache
from typing import Any

import pytest

from engine.decoding.channels import NAMES
from engine.decoding.detokenizer_factory import DetokenizerFactory
from tests.engine.decoding.tokenizer_kinds import KINDS, tokenizer

OF_BYTES = "demo", "byte level with added words"  # as gpt-oss' is


@cache
def with_channels(kind: str) -> Any:
    """A tokenizer of this kind that has gpt-oss' special tokens."""
    made = KINDS[kind]()
    made.add_special_tokens({"additional_special_tokens": [*NAMES, "<|return|>"]})
    return made


def told(kind: str, text: str) -> str:
    made = with_channels(kind)
    detokenizer = DetokenizerFactory(made)()
    ids = made(text, add_special_tokens=False).input_ids
    return "".join([detokenizer.push(token) for token in ids] + [detokenizer.flush()])


THOUGHT = "<|channel|>analysis<|message|>the fox is near<|end|>"
ANSWER = "<|start|>assistant<|channel|>final<|message|>a story about the fox<|return|>"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (THOUGHT + ANSWER, "<think>\nthe fox is near\n</think>\n\na story about the fox"),
        (ANSWER.removeprefix("<|start|>assistant"), "a story about the fox"),
        (THOUGHT, "<think>\nthe fox is near"),
        (THOUGHT + "<|start|>assistant" + THOUGHT + ANSWER,
         "<think>\nthe fox is near\n\nthe fox is near\n</think>\n\na story about the fox"),
        (THOUGHT + "<|start|>assistant<|channel|>fi", "<think>\nthe fox is near"),
        ("the fox", "the fox"),
    ],
)  # fmt: skip
def test_thoughts_stand_between_tags_and_no_header_is_shown(text: str, expected: str) -> None:
    for kind in OF_BYTES:
        assert told(kind, text) == expected


def test_a_tokenizer_without_them_has_a_plain_detokenizer() -> None:
    plain = tokenizer("demo")
    ids = plain("the fox", add_special_tokens=False).input_ids
    detokenizer = DetokenizerFactory(plain)()
    assert type(detokenizer).__name__ == "ByteLevelDetokenizer"
    assert "".join(map(detokenizer.push, ids)) + detokenizer.flush() == "the fox"
