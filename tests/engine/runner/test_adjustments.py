"""Logits are changed as transformers' processors change them, in their order, for the rows that ask."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine import InvalidInput, SamplingParams
from engine.decoding.constraints import Grammars, Matcher
from engine.decoding.detokenizer import ByteLevelVocabulary
from engine.decoding.token_rules import MOST_BANNED, banned_sequences, token_rules
from engine.runner.sampling.adjustments import ruled_out
from engine.runner.sampling.sampler import Sampler
from engine.scheduler.request import Branch
from tests.engine.decoding.tokenizer_kinds import tokenizer
from tests.engine.kernels.sampling_case import CPU, make_branch, make_logits
from tests.engine.rules_reference import Rules

DEMO = tokenizer("demo")
VOCABULARY, EOS = 3072, 2
PROMPT = (5, 9, 9, 31)
GRAMMARS = Grammars(DEMO, VOCABULARY, [EOS])
WAYS: dict[str, dict[str, Any]] = {
    "frequency": {"frequency_penalty": 0.7},
    "presence, rewarded": {"presence_penalty": -1.5},
    "all penalties": {"frequency_penalty": 0.4, "presence_penalty": 0.9, "repetition_penalty": 1.4},
    "bias": {"logit_bias": {7: 6.0, 11: -100.0, 400: 5}},
    "no end yet": {"min_tokens": 3, "logit_bias": {EOS: 50.0}},
    "bad words": {"bad_words": ["fox", "the old bridge", "a"], "repetition_penalty": 1.2},
    "all at once": {
        "frequency_penalty": 1.0, "presence_penalty": 0.5, "repetition_penalty": 0.8, "logit_bias": {3: 4.0, EOS: 9.0},
        "min_tokens": 2, "bad_words": ["tree"],
    },
    "a grammar": {"regex": "[a-z ]{40}", "repetition_penalty": 1.3, "frequency_penalty": 0.5},
    "none": {"repetition_penalty": 1.3},
}  # fmt: skip


def encode(text: str) -> list[int]:
    found: list[int] = DEMO(text, add_special_tokens=False).input_ids
    return found


def ruled_branch(params: SamplingParams, slot: int, seed: int = 0) -> Branch:
    branch = make_branch(params, slot, tokens=PROMPT, seed=seed)
    branch.request.rules = token_rules(params, encode, [EOS], VOCABULARY)
    (branch.matcher,) = GRAMMARS.matchers(params, 1)
    branch.ruled = branch.request.rules is not None or branch.matcher is not None
    return branch


def reference_of(params: SamplingParams) -> Rules:
    return Rules(params, EOS, banned_sequences(params.bad_words, encode), ByteLevelVocabulary(DEMO))


def advance(branch: Branch, token: int) -> None:
    branch.tokens.append(token)
    if branch.matcher is not None:
        assert branch.matcher.advance(token)


def places(branches: Sequence[Branch]) -> list[int]:
    """Where the tokens that are drawn for them will stand."""
    return [len(branch.tokens) + branch.in_flight - 1 for branch in branches]


def logits_in(turn: int, rows: int) -> Tensor:
    """The same few tokens are the likeliest in every turn, and the first of `bad_words` among them."""
    logits = make_logits(rows, VOCABULARY, turn, spread=1.5)
    logits[:, [7, 11, 40, 75, 278, 400, *encode(" fox"), *encode("the old bridge")]] += 6
    return logits


@pytest.mark.parametrize("name", WAYS)
def test_greedy_choices_are_those_of_the_reference(name: str) -> None:
    params = SamplingParams(temperature=0, **WAYS[name])
    branch, expected, sampler = ruled_branch(params, 0), reference_of(params), Sampler(1, VOCABULARY, CPU)
    sampler.begin(branch)
    for turn in range(8):
        logits = logits_in(turn, 1)
        wanted = expected(PROMPT, branch.tokens[len(PROMPT) :], logits[0])
        sampled = sampler(logits, [branch], places([branch]))
        assert int(sampled.tokens) == int(wanted.argmax())
        torch.testing.assert_close(sampled.logprobs[0], logits[0].log_softmax(-1)[int(sampled.tokens)])
        advance(branch, int(sampled.tokens))


def test_rows_get_what_they_ask_for_whatever_their_batch_mates_ask_for() -> None:
    ways = [SamplingParams(temperature=t, **way) for t in (0, 0.9) for way in WAYS.values()]
    order = torch.randperm(len(ways), generator=torch.Generator().manual_seed(1)).tolist()
    together = [ruled_branch(p, slot, seed) for seed, (p, slot) in enumerate(zip(ways, order))]
    sampler = Sampler(len(ways), VOCABULARY, CPU)
    for branch in together:
        sampler.begin(branch)
    alone = [(Sampler(1, VOCABULARY, CPU), ruled_branch(p, 0, seed)) for seed, p in enumerate(ways)]
    for i, (lone, branch) in enumerate(alone):
        branch.index = together[i].index
        lone.begin(branch)
    for turn in range(4):
        logits = logits_in(turn, len(ways))
        tokens = sampler(logits, together, places(together)).tokens.tolist()
        for i, (lone, branch) in enumerate(alone):
            assert int(lone(logits[i : i + 1], [branch], places([branch])).tokens) == tokens[i]
            advance(branch, tokens[i])
            advance(together[i], tokens[i])


def test_a_branch_that_comes_back_to_another_slot_counts_what_it_has_said() -> None:
    params = SamplingParams(temperature=0, frequency_penalty=1.0)
    branch, expected, sampler = ruled_branch(params, 0), reference_of(params), Sampler(2, VOCABULARY, CPU)
    sampler.begin(ruled_branch(params, 1))
    said = [7, 7, 11, 7]
    branch.tokens += said
    branch.slot = 1
    sampler.begin(branch)
    logits = logits_in(0, 1)
    logits[0, 7] += 2.5
    assert (
        int(sampler(logits, [branch], places([branch])).tokens) == int(expected(PROMPT, said, logits[0]).argmax()) != 7
    )


def test_a_token_in_flight_completes_a_bad_word_too() -> None:
    """One step behind, the host does not know the last token: the device's is compared."""
    params = SamplingParams(temperature=0, bad_words=["the old bridge"])
    *begun, before, last = encode("the old bridge")
    assert begun
    branch, sampler = ruled_branch(params, 0), Sampler(1, VOCABULARY, CPU)
    branch.tokens += begun
    branch.in_flight = 2
    logits = make_logits(1, VOCABULARY, 1)
    logits[0, last] = 50
    for drawn_before, refused in ((before, True), (before + 1, False)):
        previous = sampler.adjust.previous([branch], torch.tensor([drawn_before, 0]))
        assert previous is not None
        assert (int(sampler(logits, [branch], places([branch]), None, previous).tokens) != last) is refused
    branch.tokens[-1] += 1  # the word had not begun
    previous = sampler.adjust.previous([branch], torch.tensor([before, 0]))
    assert int(sampler(logits, [branch], places([branch]), None, previous).tokens) == last


def test_nothing_is_taken_from_the_device_where_nobody_asks() -> None:
    sampler = Sampler(2, VOCABULARY, CPU)
    known = ruled_branch(SamplingParams(bad_words=["fox"]), 0)
    other = ruled_branch(SamplingParams(frequency_penalty=1.0), 1)
    other.in_flight = 2
    assert sampler.adjust.previous([known, other], torch.zeros(3, dtype=torch.long)) is None


# Masks.


def followed(pattern: str, said: Sequence[int]) -> Matcher:
    (matcher,) = GRAMMARS.matchers(SamplingParams(regex=pattern), 1)
    assert matcher is not None
    for token in said:
        assert matcher.advance(token)
    return matcher


@pytest.mark.parametrize("temperature", [0, 0.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_was_allowed_and_what_the_model_would_rather_have_said_is_told(
    temperature: float, dtype: torch.dtype
) -> None:
    ways = [{"regex": "[0-9]{3}"}, {}, {"choices": ["yes", "no"]}, {"logit_bias": {9: 1.0}}, {"regex": ".*"}]
    branches = [ruled_branch(SamplingParams(temperature=temperature, **w), i) for i, w in enumerate(ways)]  # type: ignore[arg-type]
    logits = make_logits(len(ways), VOCABULARY, 4).to(dtype)
    logits[4, EOS] = logits[4, 40] = -50.0
    if temperature == 0:
        branches[3].request.rules, branches[3].ruled = None, False  # all greedy: the compiled choice serves
    sampled = Sampler(len(ways), VOCABULARY, CPU)(logits, branches, places(branches))
    assert sampled.masked is not None
    told = sampled.masked.told()
    assert sorted(told) == [0, 2, 4]
    for row in told:
        allowed = reference_of(branches[row].request.params).allowed([], VOCABULARY) if row != 4 else None
        top = int(logits[row].argmax())
        count, rather = told[row]
        if allowed is None:
            assert rather is None, "anything may come"
            assert count > 2800
            continue
        assert count == int(allowed.sum())
        assert bool(allowed[int(sampled.tokens[row])])
        assert rather is not None
        assert rather[0] == top
        assert rather[1] == pytest.approx(float(logits[row].float().log_softmax(-1)[top]), abs=1e-4)
    if temperature == 0:
        expected = logits.float().log_softmax(-1).gather(-1, sampled.tokens.long()[:, None])[:, 0]
        torch.testing.assert_close(sampled.logprobs, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("limits", [{"top_k": 50}, {"top_p": 0.9}, {"top_k": 50, "top_p": 0.9}])
def test_a_grammar_that_allows_less_than_top_k_needs_no_sort(
    limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    branches = [
        ruled_branch(SamplingParams(temperature=0.9, regex="[0-9]{3}", **limits), i, i)  # type: ignore[arg-type]
        for i in range(20)
    ]
    logits = make_logits(len(branches), VOCABULARY, 4)

    def said() -> list[int]:
        found: list[int] = Sampler(len(branches), VOCABULARY, CPU)(logits, branches, places(branches)).tokens.tolist()
        return found

    with monkeypatch.context() as sorting:
        sorting.setattr("engine.runner.sampling.drawing.CANDIDATES", VOCABULARY)
        sorting.setattr(torch.Tensor, "topk", lambda *_: pytest.fail("not among the highest alone"))
        if "top_k" not in limits:
            expected = said()
        else:
            expected = None
    monkeypatch.setattr("engine.runner.sampling.drawing._descending", lambda *_: pytest.fail("all are sorted"))
    found = said()
    assert expected is None or found == expected
    allowed = reference_of(branches[0].request.params).allowed([], VOCABULARY)
    assert all(bool(allowed[token]) for token in found)
    assert len(set(found)) > 2


def test_masks_rule_out_alike_on_every_device() -> None:
    bits = np.array([[5, 0, -(2**31)], [0, 0, 0]], np.int32)
    logits = torch.zeros(2, 90)
    out = ruled_out(logits, bits)
    assert (out[0] == 0).nonzero()[:, 0].tolist() == [0, 2]
    assert torch.equal(out[1], logits[1]), "a row that has given up is left to end"
    wide = ruled_out(torch.zeros(2, 96), bits)
    assert (wide[0] == 0).nonzero()[:, 0].tolist() == [0, 2, 95]


def test_bad_words_are_their_tokens_after_a_space_and_without() -> None:
    found = banned_sequences(["fox", " fox", "the"], encode)
    assert set(found) >= {tuple(encode("fox")), tuple(encode(" fox")), tuple(encode(" the"))}
    with pytest.raises(InvalidInput, match=r"^bad_words: .* at most 1,024 are looked for"):
        banned_sequences([f"{i}" for i in range(MOST_BANNED + 1)], encode)


def test_a_bias_of_a_token_that_the_model_has_not_is_refused() -> None:
    with pytest.raises(InvalidInput, match=re.escape("logit_bias: token id 3072 is not in [0, 3072)")):
        token_rules(SamplingParams(logit_bias={3072: 1.0}), encode, [EOS], VOCABULARY)  # type: ignore[arg-type]
