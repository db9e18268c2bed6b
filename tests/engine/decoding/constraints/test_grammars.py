"""Grammars are compiled once, followed token by token, and refused with the reason."""

import importlib.util
import json
import re
import threading
from typing import Any

import pytest
from pydantic import BaseModel, Field
from transformers import PreTrainedTokenizerFast

from engine import InvalidInput, SamplingParams
from engine.decoding.constraints import Grammars, Matcher, allowed_bits
from engine.decoding.detokenizer import ByteLevelVocabulary
from tests.engine.decoding.tokenizer_kinds import tokenizer
from tests.engine.rules_reference import Rules, tokens_of

DEMO = tokenizer("demo")
VOCABULARY, EOS = 3072, 2
WORDS = ByteLevelVocabulary(DEMO)


@pytest.fixture
def grammars() -> Grammars:
    return Grammars(DEMO, VOCABULARY, [EOS])


def matcher_of(grammars: Grammars, **params: Any) -> Matcher:
    (matcher,) = grammars.matchers(SamplingParams(**params), 1)
    assert matcher is not None
    return matcher


def encode(text: str) -> list[int]:
    found: list[int] = DEMO(text, add_special_tokens=False).input_ids
    return found


def allowed(matcher: Matcher, vocabulary: int = VOCABULARY) -> list[int]:
    return tokens_of(allowed_bits([matcher], vocabulary))[0]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"regex": "[A-Z][a-z]+ the (fox|owl), aged [1-9]"}, "Pip the owl, aged 3"),
        ({"regex": "a*b?"}, "aaab"),
        ({"choices": ["maybe", "maybe not", "yes"]}, "maybe not"),
        ({"choices": ["1 + 1 = 2?", "a|b", "(c)", "\\d", "new\nline"]}, "a|b"),
        ({"choices": ["new\nline", "x"]}, "new\nline"),
    ],
)
def test_at_every_token_what_may_come_is_what_a_search_through_all_texts_finds(
    grammars: Grammars, params: dict[str, Any], text: str
) -> None:
    """But where a text is bound to come: then it comes in the tokenizer's own tokens."""
    matcher, reference = matcher_of(grammars, **params), Rules(SamplingParams(**params), EOS, (), WORDS)
    said: list[int] = []
    for token in encode(text):
        expected = reference.allowed(said, VOCABULARY).nonzero()[:, 0].tolist()
        found = allowed(matcher)
        assert found == expected or (found == [token] and token in expected)
        assert matcher.advance(token)
        said.append(token)
    assert EOS in allowed(matcher), "all of it was said"
    assert matcher.ended == (allowed(matcher) == [EOS])


def test_matchers_of_one_grammar_go_their_own_ways(grammars: Grammars) -> None:
    one, other = grammars.matchers(SamplingParams(choices=("yes", "no")), 2)
    assert one is not None
    assert other is not None
    assert one.advance(encode("yes")[0])
    assert allowed(one) != allowed(other)
    assert tokens_of(allowed_bits([other, one], VOCABULARY)) == [allowed(other), allowed(one)]


def test_a_grammar_is_compiled_once(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_one = Grammars._compile

    def counted(self: Grammars, name: str, grammar: str, given: object) -> Any:
        compiled.append(grammar)
        return compile_one(self, name, grammar, given)

    monkeypatch.setattr(Grammars, "_compile", counted)
    threads = [threading.Thread(target=matcher_of, args=(grammars,), kwargs={"regex": "a+"}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    matcher_of(grammars, regex="b+")
    assert compiled == ["a+", "b+"]


def test_a_request_without_a_grammar_has_no_matcher(grammars: Grammars) -> None:
    assert grammars.matchers(SamplingParams(), 3) == [None] * 3


class Story(BaseModel):
    hero: str = Field(max_length=20)
    age: int = Field(ge=1, le=99)


def test_a_schema_is_taken_as_a_mapping_a_text_and_a_pydantic_model(grammars: Grammars) -> None:
    text = '{"hero": "Pip", "age": 7}'
    schema = Story.model_json_schema()
    for given in (schema, json.dumps(schema), Story):
        params = SamplingParams(json_schema=given)  # type: ignore[arg-type]
        assert json.loads(params.json_schema or "") == schema
        matcher = matcher_of(grammars, json_schema=given)
        for token in encode(text):
            assert matcher.advance(token)
        assert matcher.ended
        assert Story.model_validate_json(text).age == 7
    wrong = matcher_of(grammars, json_schema=Story)
    assert not all(wrong.advance(token) for token in encode('{"hero": "Pip", "age": 700}'))
    assert wrong.fault
    assert allowed(wrong) == [], "it has given up"


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"regex": "("}, "regex='(': unclosed group"),
        ({"regex": "a{2,1}"}, "regex='a{2,1}': invalid repetition count range"),
        ({"json_schema": {"type": "strin"}}, "Invalid type: strin"),
        ({"json_schema": {"type": "array", "uniqueItems": True}}, 'no output can be held to "uniqueItems"'),
        ({"json_schema": {"$ref": "#/nope"}}, "Pointer '/nope' does not exist"),
        (
            {"json_schema": {"type": "string", "minLength": 5, "maxLength": 2}},
            "minLength (5) is greater than maxLength",
        ),
        ({"json_schema": {"type": "string", "pattern": "("}}, "unclosed group"),
    ],
)
def test_what_is_wrong_with_a_grammar_is_said(grammars: Grammars, params: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(told)) as error:
        grammars.matchers(SamplingParams(**params), 1)
    assert str(error.value).startswith(next(iter(params)) + "=")
    assert "\n" not in str(error.value)


def test_without_the_library_its_extra_is_named(grammars: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.decoding.constraints.grammars.find_spec", lambda name: None)
    for params in ({"regex": "a"}, {"choices": ["a"]}, {"json_schema": {}}):
        remedy = f"{next(iter(params))}: llguidance is not installed: pip install 'batchscope[constrained]'"
        with pytest.raises(InvalidInput, match=re.escape(remedy)):
            grammars.matchers(SamplingParams(**params), 1)  # type: ignore[arg-type]
    assert importlib.util.find_spec("llguidance") is not None
    assert grammars.matchers(SamplingParams(), 1) == [None]


def test_a_model_with_more_rows_or_fewer_than_its_tokenizer_gets_masks_of_its_own_width() -> None:
    for vocabulary in (3072 + 40, 3000):
        matcher = matcher_of(Grammars(DEMO, vocabulary, [EOS]), regex=".*")
        found = allowed(matcher, vocabulary)
        assert EOS in found
        assert len(found) > 2800
        assert max(found) < min(vocabulary, 3072)


def test_a_tokenizer_that_is_not_fast_is_refused() -> None:
    class Slow:
        backend_tokenizer = None

    with pytest.raises(InvalidInput, match="need a fast tokenizer"):
        matcher_of(Grammars(Slow(), 10, [2]), regex="a")


def test_a_grammar_can_end_where_the_model_has_no_end_of_text() -> None:
    endless = PreTrainedTokenizerFast(tokenizer_object=DEMO.backend_tokenizer)
    matcher = matcher_of(Grammars(endless, VOCABULARY, []), choices=["yes"])
    for token in encode("yes"):
        assert matcher.advance(token)
    assert matcher.ended


# What a person gives.


@pytest.mark.parametrize(
    ("params", "name"),
    [
        ({"frequency_penalty": 101}, "frequency_penalty"),
        ({"presence_penalty": float("nan")}, "presence_penalty"),
        ({"min_tokens": 257}, "min_tokens"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {3: 101}}, "logit_bias"),
        ({"logit_bias": [(3, 1), (3, 2)]}, "logit_bias"),
        ({"logit_bias": {True: 1}}, "logit_bias"),
        ({"logit_bias": 3}, "logit_bias"),
        ({"bad_words": ("",)}, "bad_words"),
        ({"choices": [1]}, "choices"),
        ({"regex": 3}, "regex"),
        ({"json_schema": "{"}, "json_schema"),
        ({"json_schema": [1]}, "json_schema"),
        ({"json_schema": {"a": {1, 2}}}, "json_schema"),
        ({"json_schema": int}, "json_schema"),
        ({"regex": "a", "choices": ["b"]}, "regex and choices"),
        ({"regex": "a", "ignore_eos": True}, "ignore_eos"),
        ({"choices": "a", "min_tokens": 1}, "min_tokens"),
        ({"json_schema": {}, "bad_words": "a"}, "bad_words"),
    ],
)
def test_values_that_no_rule_can_be_made_of_are_refused_by_name(params: dict[str, Any], name: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^{name}="):
        SamplingParams(**params)


def test_what_is_given_is_kept_in_one_form() -> None:
    params = SamplingParams(logit_bias={"7": 1, 9: -2.5}, stop="fox", choices=["a", "b"], regex="")  # type: ignore[arg-type]
    assert params.logit_bias == ((7, 1.0), (9, -2.5))
    assert params.stop == ("fox",)
    assert params.choices == ("a", "b")
    assert params.regex is None
    assert params.constrained
    assert params.with_(temperature=0) == params.with_(temperature=0.0)
    assert hash(params) == hash(params.with_())


def test_many_rows_are_answered_by_several_threads_as_few_are_by_one(
    grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    matchers = [matcher_of(grammars, regex=f"[a-{end}]+") for end in "bdfhj"]
    alone = allowed_bits(matchers, VOCABULARY)
    monkeypatch.setattr("engine.decoding.constraints.matcher.SHARED", 1)
    assert tokens_of(allowed_bits(matchers, VOCABULARY)) == tokens_of(alone)
    assert len(set(map(len, tokens_of(alone)))) == len(matchers)
