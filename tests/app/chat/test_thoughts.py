"""Thoughts are told from answers, however a model sets them apart."""

import numpy as np

from app.chat.heard import Heard, Hearing
from app.chat.store.tree import Facts, Role, Turn, messages
from app.chat.transcript.words import thought_words
from engine import SamplingParams, Trace
from engine.trace import Said, Submitted, split_thoughts


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


def test_thoughts_end_when_their_last_tag_is_whole_however_it_comes() -> None:
    heard = Heard()
    for moment, piece in enumerate(("<th", "ink>a </th", "ink> b", " </thi", "nk> c", " </think> d")):
        heard.emitted(1, piece, float(moment))
    assert (heard.thought, heard.thoughts) == (2.0, 2), "the third says something of the answer"
    plain = Heard()
    for piece in ("Close it with ", "</think>", "."):
        plain.emitted(1, piece, 0.0)
    assert plain.thought is None


def test_a_prompt_that_ends_amid_thoughts_has_the_answer_begin_there() -> None:
    trace = Trace()
    hearing = Hearing(trace)
    heard = hearing.listen(0, 0)
    prompt = "<|user|>Hi<|assistant|><think>\n"
    trace.append(Submitted(0.0, 0, prompt, np.array([1, 2], np.int32), SamplingParams()))
    hearing.hear()
    heard.emitted(1, "Greet", 1.0)
    assert split_thoughts(heard.text) == Said("Greet", "", True)


def test_behind_such_a_prompt_an_answer_that_is_held_to_a_grammar_is_no_thought() -> None:
    trace = Trace()
    hearing = Hearing(trace)
    heard = hearing.listen(0, 0)
    params = SamplingParams(choices=("yes", "no"))
    trace.append(Submitted(0.0, 0, "<|assistant|><think>\n", np.array([1], np.int32), params))
    hearing.hear()
    heard.emitted(1, "yes", 1.0)
    assert split_thoughts(heard.text) == Said("", "yes")
    assert heard.thought is None
