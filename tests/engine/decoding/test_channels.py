"""gpt-oss' channels become the form that other reasoning models write by themselves."""

from functools import cache
from typing import Any

import pytest

from engine import SamplingParams
from engine.decoding.channels import NAMES, ChannelTokens
from engine.decoding.detokenizer_factory import DetokenizerFactory
from engine.decoding.output import Output
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
THOUGHT_AND_ANSWER = "<think>\nthe fox is near\n</think>\n\na story about the fox"
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
        ("<|start|>assistant<|message|>the fox<|return|>", "the fox"),
        ("<|channel|>commentary<|message|>the fox<|end|>" + ANSWER, "the foxa story about the fox"),
        ("<|channel|>commentary to=functions.a<|message|>the fox<|end|>" + ANSWER,
         "<think>\nthe fox\n</think>\n\na story about the fox"),
    ],
)  # fmt: skip
def test_thoughts_stand_between_tags_and_no_header_is_shown(text: str, expected: str) -> None:
    for kind in OF_BYTES:
        assert told(kind, text) == expected


@pytest.mark.parametrize(
    ("stop", "expected"),
    [("\n", THOUGHT_AND_ANSWER), ("<", THOUGHT_AND_ANSWER), ("story", "<think>\nthe fox is near\n</think>\n\na ")],
)
def test_no_stop_string_is_looked_for_in_what_sets_thoughts_apart(stop: str, expected: str) -> None:
    made = with_channels("demo")
    output = Output(DetokenizerFactory(made)(), SamplingParams(stop=(stop,)), frozenset(), 1000)
    text = ""
    for token in made(THOUGHT + ANSWER, add_special_tokens=False).input_ids:
        more, reason = output.push(token)
        text += more
        if reason is not None:
            break
    assert text + ("" if reason else output.flush()) == expected


def test_prompts_are_told_as_they_are() -> None:
    made = with_channels("demo")
    said = DetokenizerFactory(made).plain()
    ids = made("<|start|>user<|message|>the fox<|end|>", add_special_tokens=False).input_ids
    assert "".join(map(said.push, ids)) + said.flush() == "userthe fox"


class OfAnotherLibrary:
    @property
    def added_tokens_decoder(self) -> dict[int, object]:
        raise NotImplementedError


def test_a_tokenizer_that_tells_no_added_tokens_has_no_channels() -> None:
    assert ChannelTokens.of(OfAnotherLibrary()) is None


def test_a_tokenizer_without_them_has_a_plain_detokenizer() -> None:
    plain = tokenizer("demo")
    ids = plain("the fox", add_special_tokens=False).input_ids
    detokenizer = DetokenizerFactory(plain)()
    assert type(detokenizer).__name__ == "ByteLevelDetokenizer"
    assert "".join(map(detokenizer.push, ids)) + detokenizer.flush() == "the fox"
