from __future__ import annotations

import pytest

from app.play.prompts import MOST, Draft
from engine import InvalidInput, SamplingParams

TEMPLATE = "a {fox|owl} and a {kite|boat}"


def test_a_template_becomes_different_prompts() -> None:
    draft = Draft(TEMPLATE, 4)
    assert len(set(draft.texts())) == draft.different == 4


def test_more_prompts_than_a_template_has_repeat_it() -> None:
    draft = Draft(TEMPLATE, 8)
    assert len(draft.texts()) == 8
    assert draft.different == 4
    assert draft.summary() == "4 different prompts in 8 requests · about 4 tokens each"


def test_every_line_is_a_prompt_when_asked_for() -> None:
    draft = Draft("one\n\n  \ntwo {a|b}", 2, each_line=True)
    assert len(draft.texts()) == draft.total == 4
    assert draft.texts()[:2] == ["one", "one"]


def test_a_text_of_several_lines_is_one_prompt_otherwise() -> None:
    assert Draft("one\ntwo").texts() == ["one\ntwo"]


def test_prompts_of_a_file_are_taken_as_they_are() -> None:
    assert Draft("ignored", 2, file=("a {x|y}", "b")).texts() == ["a {x|y}", "a {x|y}", "b", "b"]


def test_a_chat_begins_with_the_system_prompt_if_there_is_one() -> None:
    (with_system,) = Draft("hello", system="be kind").submissions(SamplingParams())
    assert with_system.prompt == [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hello"}]
    (without,) = Draft("hello").submissions(SamplingParams())
    assert without.prompt == [{"role": "user", "content": "hello"}]


def test_raw_text_goes_in_as_it_stands_without_the_system_prompt() -> None:
    (submission,) = Draft("hello", system="be kind", chat=False).submissions(SamplingParams())
    assert submission.prompt == "hello"


def test_copies_of_a_prompt_have_seeds_of_their_own_that_a_fixed_seed_repeats() -> None:
    params = SamplingParams(seed=7)
    assert [s.params.seed for s in Draft("hello", 3).submissions(params)] == [7, 8, 9]
    seeds = [s.params.seed for s in Draft("hello", 3).submissions(SamplingParams())]
    assert len(set(seeds)) == 3
    assert None not in seeds


@pytest.mark.parametrize("text", ["", "   \n "])
def test_nothing_to_send_is_said(text: str) -> None:
    with pytest.raises(InvalidInput, match="write a prompt first"):
        Draft(text, 4).submissions(SamplingParams())
    assert Draft(text, 4).summary() == ""


def test_far_too_many_requests_are_refused_before_they_are_made() -> None:
    with pytest.raises(InvalidInput, match="at most 100,000"):
        Draft("", MOST, file=("a", "b")).submissions(SamplingParams())


def test_the_summary_says_how_many_and_how_long() -> None:
    assert Draft("Tell me a story about it.", 1).summary() == "about 6 tokens"
    assert Draft("hello", 32).summary(5.0) == "32 times the same prompt · about 1 tokens each"
