"""What is told of each token against the records it came with, replayed here in plain arithmetic."""

import re
from dataclasses import dataclass
from itertools import pairwise
from math import exp, isnan, log
from statistics import median

import numpy as np
import pytest

from app.play.transcript.card import card_words, grammar_words, rank_words, share
from app.play.transcript.styles import TokenMode, legend
from app.play.transcript.tokens import (
    FIRST,
    LIKELY,
    SLOW,
    STALL,
    TOGETHER,
    Waits,
    shown_units,
    token_card,
    token_classes,
    visible,
)
from engine import Engine, EngineConfig, SamplingParams, Trace
from engine.trace import Ended, Step, Submitted
from tests.app.told import ToldRuns


@dataclass
class Told:
    """One token as its record told it."""

    token: int
    logprob: float
    time: float
    text: str
    step: int | None
    alternatives: list[tuple[int, float, str]]


def replay(trace: Trace) -> dict[tuple[int, int], list[Told]]:
    """Every token of every sample, in order."""
    result: dict[tuple[int, int], list[Told]] = {}
    for record in trace.records:
        if isinstance(record, Step):
            at = 0
            for i, row in enumerate(record.token_row.tolist()):
                key = int(record.request[row]), int(record.branch[row])
                others = [
                    (int(record.alt_token[j]), float(record.alt_logprob[j]), record.alt_text[j])
                    for j in range(len(record.alt_token))
                    if record.alt_token_index[j] == i
                ]
                end = int(record.text_end[i])
                told = Told(
                    int(record.token[i]), float(record.logprob[i]), record.ended, record.text[at:end], record.step,
                    others,
                )  # fmt: skip
                result.setdefault(key, []).append(told)
                at = end
        elif isinstance(record, Ended):
            tokens = result.setdefault((record.request, record.branch), [])
            at = 0
            for i, end in enumerate(record.text_end.tolist()):
                token, logprob = int(record.token[i]), float(record.logprob[i])
                tokens.append(Told(token, logprob, record.time, record.text[at:end], None, []))
                at = end
            if tokens:
                tokens[-1].text += record.text[at:]
    return result


@pytest.fixture(scope="module")
def trace(told_runs: ToldRuns) -> Trace:
    return told_runs.sampled


@pytest.fixture(scope="module")
def batch(told_runs: ToldRuns) -> Trace:
    return told_runs.delivered


def step_with(trace: Trace, time: float) -> Step | None:
    return next((step for step in trace.steps if step.ended == time), None)


def test_every_card_tells_what_the_records_told(trace: Trace) -> None:
    seen = 0
    submitted = {r.request: r for r in trace.records if isinstance(r, Submitted)}
    for (request, branch), tokens in replay(trace).items():
        view = trace.requests[request]
        emitted: list[float] = []
        for i, told in enumerate(tokens):
            card = token_card(view, branch, i, step_with(trace, told.time))
            if not emitted or told.time != emitted[-1]:
                before = emitted[-1] if emitted else submitted[request].time
                wait = told.time - before
                emitted.append(told.time)
            assert (card.token, card.text, card.step, card.time) == (told.token, told.text, told.step, told.time)
            assert card.probability == pytest.approx(exp(told.logprob))
            assert (card.wait, card.first) == (pytest.approx(wait), len(emitted) == 1)
            assert (card.index, card.count) == (i, len(tokens))
            assert card.position == len(submitted[request].token_ids) + i
            ids = [token for token, _, _ in told.alternatives]
            shown = card.alternatives[: len(ids)]
            assert [other.token for other in shown] == ids
            assert [other.text for other in shown] == [text for _, _, text in told.alternatives]
            assert [other.probability for other in shown] == pytest.approx([exp(p) for _, p, _ in told.alternatives])
            assert card.rank == (ids.index(told.token) + 1 if told.token in ids else None)
            if ids and told.token not in ids:
                assert [other.chosen for other in card.alternatives] == [False] * len(ids) + [True]
                assert card.alternatives[-1].probability == card.probability
            seen += 1
    assert seen > 150
    sampled = trace.requests[1].samples[1]
    cards = [token_card(trace.requests[1], 1, i, step_with(trace, time)) for i, time in enumerate(sampled.token_times)]
    assert {card.rank for card in cards} > {None, 1}, "some tokens were likely, some were not among the recorded"


def test_a_token_without_recorded_alternatives_has_none(trace: Trace) -> None:
    card = token_card(trace.requests[2], 0, 3, step_with(trace, trace.requests[2].token_times[3]))
    assert (card.alternatives, card.rank, rank_words(card)) == ((), None, "")


def test_no_such_token_is_an_error(trace: Trace) -> None:
    view = trace.requests[0]
    for index in (-1, len(view.tokens)):
        with pytest.raises(IndexError, match=f"token {index} of {len(view.tokens)}"):
            token_card(view, 0, index, None)


def test_classes_of_probability_by_the_borders() -> None:
    chances = [1.0, 0.81, 0.79, 0.51, 0.49, 0.21, 0.19, 0.051, 0.049, 1e-9]
    assert token_classes([log(p) for p in chances]).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert len(legend(TokenMode.PROBABILITY)) == len(LIKELY) + 1


def test_classes_of_the_whole_answer_follow_each_token(trace: Trace) -> None:
    view = trace.requests[0]
    expected = [sum(exp(p) < border for border in LIKELY) for p in view.logprobs]
    assert token_classes(view.logprobs).tolist() == expected
    assert len(set(expected)) > 3


def test_times_are_judged_by_the_median_gap(trace: Trace) -> None:
    view = trace.requests[0]
    times = list(view.token_times)
    gaps = [b - a for a, b in pairwise(times)]
    middle = median(gaps)
    waits = Waits.of(view.submitted, view.token_times)
    assert waits.median == pytest.approx(middle)
    assert waits.seconds.tolist() == pytest.approx([times[0] - view.submitted, *gaps])
    assert waits.classes().tolist() == [FIRST, *(sum(gap > border * middle for border in SLOW) for gap in gaps)]


def test_a_stall_and_tokens_that_come_together_are_told_apart() -> None:
    waits = Waits.of(1.0, [3.0, 3.1, 3.1, 3.2, 3.3, 4.0, 4.0, 4.1])
    assert waits.seconds == pytest.approx([2.0, 0.1, 0.1, 0.1, 0.7, 0.1])
    assert waits.classes().tolist() == [FIRST, 0, TOGETHER, 0, 0, STALL, STALL + TOGETHER, 0]


def test_a_delivered_batch_is_one_emission(batch: Trace) -> None:
    for view in batch.requests.values():
        times = set(view.token_times)
        assert len(times) == 1, "the whole answer came at once"
        waits = Waits.of(view.submitted, view.token_times)
        assert isnan(waits.median)
        assert waits.classes().tolist() == [FIRST] + [FIRST + TOGETHER] * (len(view.tokens) - 1)
        for i in (0, len(view.tokens) - 1):
            card = token_card(view, 0, i, step_with(batch, view.token_times[i]))
            assert card.together == len(view.tokens)
            assert card.wait == pytest.approx(times.copy().pop() - view.submitted)
            assert card_words(card, 0.0)[0].endswith(f"with {len(view.tokens) - 1} others")


def test_tokens_of_a_batch_that_was_cut_short_came_with_the_end(told_runs: ToldRuns) -> None:
    trace = told_runs.cut
    told = replay(trace)
    assert any(each.step is None for tokens in told.values() for each in tokens)
    for (request, branch), tokens in told.items():
        view = trace.requests[request]
        for i, each in enumerate(tokens):
            card = token_card(view, branch, i, step_with(trace, each.time))
            assert (card.token, card.text, card.step, card.time) == (each.token, each.text, each.step, each.time)
            assert ("came with the end" in card_words(card, 0.0)[2]) == (each.step is None)


def test_times_of_one_token_and_of_none() -> None:
    assert Waits.of(0.0, [0.5]).classes().tolist() == [FIRST]
    assert Waits.of(0.0, []).classes().tolist() == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" fox", "␣fox"), ("a\n\n", "a⏎⏎"), ("\t\r", "⇥␍"), ("\N{ZERO WIDTH JOINER}x", "⟨200D⟩x"),
        ("狐狸 🦊", "狐狸␣🦊"), ("\x07", "⟨0007⟩"), ("", ""),
    ],
)  # fmt: skip
def test_what_cannot_be_seen_is_told(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_units_are_those_of_a_document() -> None:
    text = "a狐🦊\r\né\ud83d"
    assert shown_units(text).tolist() == [1, 1, 2, 0, 1, 1, 1]
    assert np.sum(shown_units("")) == 0


@pytest.mark.parametrize(
    ("value", "words"), [(1.0, "100.0 %"), (0.0123, "1.2 %"), (0.0003, "0.03 %"), (1e-9, "< 0.01 %")]
)
def test_small_probabilities_keep_a_digit(value: float, words: str) -> None:
    assert share(value) == words


def test_the_card_tells_what_the_grammar_allowed_and_what_would_rather_have_been_said(engine: Engine) -> None:
    trace = engine.begin(EngineConfig(max_running=2))
    chat = [{"role": "user", "content": "Tell me a story about a fox and a kite."}]
    held, free = SamplingParams(max_tokens=9, temperature=0, regex="[0-9]{3}, [a-z]+"), SamplingParams(max_tokens=3)
    streams = [engine.submit(chat, params) for params in (held, free)]
    completions = [stream.result(timeout=30) for stream in streams]
    told = []
    for completion in completions:
        view = trace.requests[completion.request]
        steps = [step_with(trace, time) for time in view.samples[0].token_times]
        told += [grammar_words(token_card(view, 0, i, step, 3072)) for i, step in enumerate(steps)]
    count = len(completions[0].token_ids)
    assert told[count:] == [""] * 3, "nobody asked"
    first = told[0]
    assert re.fullmatch(r"\d+ of 3,072 tokens allowed; the model would rather have said “.+” \([\d.<]+ %\)", first)
    (step, place) = next((s, 0) for s in trace.steps if len(s.rather_token))
    assert visible(step.rather_text[place]) in first
    assert grammar_words(token_card(trace.requests[completions[0].request], 0, 0, None)) == ""
