"""Thoughts are told from texts, and what they cost from traces."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import SamplingParams
from engine.trace import Said, measure, split_thoughts
from engine.trace.measures.formulas import MEASURES
from engine.trace.records import Ended, FinishReason
from engine.trace.thoughts import Parting, answer_begins, begins_amid, thought_tokens
from engine.trace.trace import Trace
from tests.engine.trace.hand_made import D, P, step, submitted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nTwo and two.\n</think>\n\nFour.", Said("Two and two.", "Four.")),
        ("Close it with </think>. So.", Said("", "Close it with </think>. So.")),
        ("<think>Is it </think>?", Said("Is it", "?")),
        ("<think>\nTwo", Said("Two", "", True)),
        ("<think>\n\n</think>\n\nFour.", Said("", "Four.")),
        ("Four.", Said("", "Four.")),
        ("Say <think> to me.", Said("", "Say <think> to me.")),
        ("", Said("", "")),
    ],
)
def test_a_text_is_split(text: str, expected: Said) -> None:
    assert split_thoughts(text) == expected


AMID = "<|user|>Hi<|assistant|><think>\n"


@pytest.mark.parametrize(
    ("prompt", "pieces", "thought", "begins"),
    [
        ("Hi", ["<th", "ink>", "Two", "</think>", "\n\n", "Fo", "ur"], 5, "Four"),
        ("Hi", ["<think>", "Two", "</think>\n\nFo", "ur"], 2, "Four"),  # a token that brings both is of the answer
        ("Hi", ["<think>", "Two", "</think>", "\n"], 4, None),
        ("Hi", ["<think>", "Two"], 2, None),
        (AMID, ["Two", "</think>", "Four"], 2, "Four"),
        (AMID, ["Two"], 1, None),
        (AMID, [], 0, None),
        ("Hi", ["Two", "</think>", "Four"], 0, "Two</think>Four"),
        ("Write <think> twice.", ["Two"], 0, "Two"),
    ],
)
def test_the_tokens_before_an_answer_are_counted(
    prompt: str, pieces: list[str], thought: int, begins: str | None
) -> None:
    text, ends = "".join(pieces), [len("".join(pieces[: i + 1])) for i in range(len(pieces))]
    amid = begins_amid(prompt, SamplingParams())
    assert thought_tokens(text, ends, amid) == thought
    at = answer_begins(text, amid)
    assert (None if at is None else text[at:]) == begins


def test_the_time_to_an_answer_and_the_share_of_thoughts_are_as_defined() -> None:
    """Request 0 thinks from 1 s and answers at 4 s, 1 answers at 2 s, 2 thinks to its end."""
    both = [(0, 0, 4, P), (1, 0, 2, P), (2, 0, 2, P)]
    trace = Trace([
        submitted(0.5, 0, 4), submitted(1.0, 1, 2), submitted(1.0, 2, 2),
        step(0, 1.0, 2.0, both, {0: 1, 1: 2, 2: 3}, texts=["<think>", "Four", "<think>"]),
        step(1, 2.0, 3.0, [(0, 4, 1, D), (2, 2, 1, D)], {0: 1, 1: 3}, texts=["</think>", "Two"]),
        step(2, 3.0, 4.0, [(0, 5, 1, D)], {0: 1}, texts=["Four"]),
        *(Ended(4.0, request, FinishReason.LENGTH) for request in range(3)),
    ])  # fmt: skip
    found = measure(trace)
    assert [view.thoughts for view in trace.requests.values()] == [[2], [0], [2]]
    assert [view.ttfo for view in trace.requests.values()] == [3.5, 1.0, None]
    assert found.ttfo is not None
    assert found.ttfo.mean == 2.25, "of those that answer; TTFT where nothing is thought"
    assert found.thought_share == 4 / 6
    assert MEASURES["thought_share"].text(found.thought_share) == "66.7 %"
    assert MEASURES["ttfo.mean"].read(found) == 2.25


def test_an_answer_that_is_held_to_a_grammar_thinks_only_where_that_says_so() -> None:
    assert begins_amid(AMID, SamplingParams())
    assert not begins_amid(AMID, SamplingParams(json_schema={"type": "object"}))
    assert not begins_amid(AMID, SamplingParams(choices=("yes", "no")))
    assert begins_amid(AMID, SamplingParams(regex="[a-z]{5}</think>[A-Z]"))
    assert not begins_amid("Hi", SamplingParams())


def test_a_piece_of_many_tokens_that_brings_both_is_shared_out_by_its_text() -> None:
    parting = Parting()
    assert parting.push("<think>\nTwo and", 4) == ("Two and", "")
    assert parting.push(" two.</think>\n\nFour", 5) == (" two.", "Four")
    assert parting.tokens == 4 + 4
    parting = Parting()
    assert parting.push("Four, of course", 5) == ("", "Four, of course")
    assert parting.tokens == 0


def test_nobody_thinks_in_most_runs() -> None:
    trace = Trace([submitted(0.0, 0, 4), step(0, 0.0, 1.0, [(0, 0, 4, P)], {0: 7}, texts=["</think>"])])
    assert (measure(trace).ttfo, measure(trace).thought_share) == (None, None)


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<th", "ink>", "</", "think>", "<", "a", " b", "\n", "\n\n", ""])),
    st.integers(0, 6),
)
def test_an_answer_that_comes_in_pieces_is_parted_as_the_whole_one(words: list[str], cut: int) -> None:
    text = "".join(words)
    pieces = [text[i : i + cut] for i in range(0, len(text), cut)] if cut else words
    parting = Parting()
    parts = [*map(parting.push, pieces), parting.flush()]
    thoughts, answer = ("".join(each) for each in zip(*parts))
    whole = split_thoughts(text)
    assert thoughts == whole.thoughts
    assert answer == whole.answer
    ends = [len("".join(pieces[: i + 1])) for i in range(len(pieces))]
    if whole.answer:
        assert parting.tokens == thought_tokens(text, ends)


def test_what_begins_amid_thoughts_is_parted_too() -> None:
    parting = Parting(amid=True)
    assert [parting.push(piece) for piece in ("\n", "Two", " </thi", "nk>\n", "\nFour", "</think>")] == [
        ("", ""), ("Two", ""), ("", ""), ("", ""), ("", "Four"), ("", "</think>"),
    ]  # fmt: skip
    assert parting.tokens == 4
    assert parting.flush() == ("", "")
