import pytest

from app.play.prompts import MOST, Draft, text_of
from engine import InvalidInput, SamplingParams
from engine.workloads import Arrival

TEMPLATE = "a {fox|owl} and a {kite|boat}"
TWO = (Arrival(0.0, "a {x|y}"), Arrival(0.0, "b"))


def texts(draft: Draft) -> list[str]:
    return [text_of(arrival.prompt) for arrival in draft.arrivals()]


def test_a_template_becomes_different_prompts() -> None:
    draft = Draft(TEMPLATE, 4)
    assert len(set(texts(draft))) == draft.different == 4


@pytest.mark.parametrize(
    ("text", "open_"),
    [
        ("a {fox|owl", True),
        ("a {fox|owl and a {kite|boat}", True),
        ("a {fox|owl} and a {kite|bo", True),
        ("a {fox|owl} and a {kite|boat}", False),
        ("a { brace, and a | bar", True),
        ("def f(): return {1: 2}", False),
        ("a | b {c", False),
        ("", False),
    ],
)
def test_a_choice_that_is_not_closed_is_told(text: str, open_: bool) -> None:
    assert ("is not closed" in Draft(text).summary()) is open_
    assert "is not closed" not in Draft("", file=(Arrival(0.0, "a {fox|owl"),)).summary()


def test_more_prompts_than_a_template_has_repeat_it() -> None:
    draft = Draft(TEMPLATE, 8)
    assert len(texts(draft)) == 8
    assert draft.different == 4
    assert draft.summary() == "4 different prompts in 8 requests · about 4 tokens each"


def test_every_line_is_a_prompt_when_asked_for() -> None:
    draft = Draft("one\n\n  \ntwo {a|b}", 2, each_line=True)
    assert len(texts(draft)) == draft.total == 4
    assert texts(draft)[:2] == ["one", "one"]


def test_a_text_of_several_lines_is_one_prompt_otherwise() -> None:
    assert texts(Draft("one\ntwo")) == ["one\ntwo"]


def test_prompts_of_a_file_are_taken_as_they_are() -> None:
    assert texts(Draft("ignored", 2, file=TWO)) == ["a {x|y}", "a {x|y}", "b", "b"]


def test_what_a_file_says_of_sampling_and_of_chats_holds_and_the_rest_is_chosen_here() -> None:
    chat = [{"role": "user", "content": "hi"}]
    told = Arrival(0.0, chat, SamplingParams(max_tokens=5), "first")
    whole = Arrival(0.0, [{"role": "system", "content": "short"}, *chat])
    params = SamplingParams(temperature=0.5, max_tokens=99, seed=3)
    one, two, three = Draft("", file=(told, whole, Arrival(0.0, "plain")), system="be kind").submissions(params)
    assert (one.params, one.label) == (SamplingParams(temperature=0.5, max_tokens=5, seed=3), "first")
    assert [m["content"] for m in one.prompt if isinstance(m, dict)] == ["be kind", "hi"]
    assert (two.prompt, two.params.max_tokens) == (whole.prompt, 99)
    assert three.prompt == "plain"
    assert Draft("", file=(told,), chat=False).submissions(params)[0].prompt == "hi"


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
        Draft("", MOST, file=TWO).submissions(SamplingParams())


def test_the_summary_says_how_many_and_how_long() -> None:
    assert Draft("Tell me a story about it.", 1).summary() == "about 6 tokens"
    assert Draft("hello", 32).summary(lambda text: len(text) / 5) == "32 times the same prompt · about 1 tokens each"
