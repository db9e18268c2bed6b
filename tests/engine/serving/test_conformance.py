"""OpenAI's own client is answered as it expects, and with what the engine says."""

import asyncio
import json
import re
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from engine import EngineProcess, SamplingParams
from engine.serving import Server

FOX: list[Any] = [{"role": "user", "content": "Tell me a story about a fox and a kite."}]
GREEDY: dict[str, Any] = {"model": "demo", "messages": FOX, "max_tokens": 40, "temperature": 0}


def test_models_are_listed_and_found(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["demo"]
    assert client.models.retrieve("demo").owned_by == "batchscope"
    with pytest.raises(openai.NotFoundError, match="'other' is not served here; 'demo' is"):
        client.models.retrieve("other")


def test_an_answer_is_what_the_engine_says(client: OpenAI, engine: EngineProcess) -> None:
    answer = client.chat.completions.create(**GREEDY)
    said = engine.submit(FOX, SamplingParams(max_tokens=40, temperature=0)).result(timeout=20)
    (choice,) = answer.choices
    assert (choice.message.content, choice.message.role, choice.finish_reason) == (said.text, "assistant", "length")
    assert answer.usage is not None
    prompt = len(engine.encode(FOX))
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (prompt, 40)
    assert answer.usage.total_tokens == prompt + 40
    assert (answer.object, answer.model) == ("chat.completion", "demo")


def test_a_streams_parts_join_to_the_answer_and_say_who_speaks_first(client: OpenAI) -> None:
    whole = client.chat.completions.create(**GREEDY)
    parts = list(client.chat.completions.create(**GREEDY, stream=True, stream_options={"include_usage": True}))
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(p.choices[0].delta.content or "" for p in parts[:-1]) == whole.choices[0].message.content
    assert [p.choices[0].finish_reason for p in parts[:-1]][-1] == "length"
    assert (parts[-1].choices, parts[-1].usage) == ([], whole.usage)
    assert all(p.usage is None for p in parts[:-1])
    assert len({p.id for p in parts}) == 1


def test_many_async_streams_at_once_say_what_each_says_alone(server: Server) -> None:
    async def told(client: AsyncOpenAI, seed: int) -> str:
        stream = await client.chat.completions.create(
            model="demo", messages=FOX, max_tokens=30, temperature=1, seed=seed, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def all_of_them() -> tuple[list[str], list[str]]:
        async with AsyncOpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client:
            together = await asyncio.gather(*(told(client, seed) for seed in range(12)))
            return together, [await told(client, seed) for seed in range(12)]

    together, alone = asyncio.run(all_of_them())
    assert together == alone
    assert len(set(alone)) == 12, "other seeds, other texts"


def test_samples_have_their_index_and_seeds_repeat(client: OpenAI) -> None:
    sampled = GREEDY | {"temperature": 1.0, "seed": 7, "n": 3}
    first, again = (client.chat.completions.create(**sampled) for _ in range(2))
    texts = [choice.message.content for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2]
    assert texts == [choice.message.content for choice in again.choices]
    assert len(set(texts)) == 3
    joined = ["", "", ""]
    for part in client.chat.completions.create(**sampled, stream=True):
        joined[part.choices[0].index] += part.choices[0].delta.content or ""
    assert joined == texts
    assert first.usage is not None
    assert first.usage.completion_tokens == 120


def test_a_stop_string_is_cut_and_is_the_reason(client: OpenAI) -> None:
    whole = client.chat.completions.create(**GREEDY).choices[0].message.content or ""
    stop = whole[40:46]
    cut = client.chat.completions.create(**GREEDY, stop=stop).choices[0]
    assert (cut.message.content, cut.finish_reason) == (whole[: whole.index(stop)], "stop")
    parts = client.chat.completions.create(**GREEDY, stop=[stop, "never said"], stream=True)
    assert "".join(p.choices[0].delta.content or "" for p in parts) == whole[: whole.index(stop)]


def test_log_probabilities_are_the_engines(client: OpenAI, engine: EngineProcess) -> None:
    stream = engine.submit(FOX, SamplingParams(max_tokens=6, temperature=0, logprobs=3))
    said = stream.result(timeout=20)
    given = GREEDY | {"max_tokens": 6, "logprobs": True, "top_logprobs": 3}
    for streamed in (False, True):
        if streamed:
            parts = list(client.chat.completions.create(**given, stream=True))
            content = [t for p in parts if (told := p.choices[0].logprobs) for t in told.content or []]
        else:
            told = client.chat.completions.create(**given).choices[0].logprobs
            content = (told and told.content) or []
        assert [t.logprob for t in content] == pytest.approx(said.logprobs, abs=1e-4)
        assert "".join(t.token for t in content).strip() == said.text
        assert [bytes(t.bytes or []).decode() for t in content] == [t.token for t in content]
        likely = [[(o.token, round(o.logprob, 3)) for o in t.top_logprobs] for t in content]
        own = [beside for delta in stream.deltas for beside in delta.alternatives]
        assert likely == [[(text, round(value, 3)) for _, value, text in beside] for beside in own]
        assert {len(others) for others in likely} == {3}


def test_completions_take_texts_and_tokens_one_or_many(client: OpenAI, engine: EngineProcess) -> None:
    ids = engine.encode("Once upon a time")
    given: dict[str, Any] = {"model": "demo", "temperature": 0, "max_tokens": 8}
    text = client.completions.create(prompt="Once upon a time", **given)
    tokens = client.completions.create(prompt=ids, **given)
    both = client.completions.create(prompt=["Once upon a time", "The cat"], n=2, **given)
    mixed = client.completions.create(prompt=[ids, ids], **given)
    assert text.choices[0].text == tokens.choices[0].text == both.choices[0].text == both.choices[1].text
    assert [choice.index for choice in both.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in mixed.choices] == [text.choices[0].text] * 2
    echoed = client.completions.create(prompt=ids, echo=True, **given).choices[0].text
    assert echoed == "Once upon a time" + text.choices[0].text
    parts = client.completions.create(prompt="Once upon a time", echo=True, stream=True, **given)
    assert "".join(part.choices[0].text for part in parts) == echoed
    assert len(client.completions.create(model="demo", prompt="Once", temperature=0).choices[0].text) > 0


def test_completions_tell_tokens_with_their_places(client: OpenAI) -> None:
    answer = client.completions.create(model="demo", prompt="Once", max_tokens=6, temperature=0, logprobs=2)
    (choice,) = answer.choices
    told = choice.logprobs
    assert told is not None
    assert told.tokens
    assert told.token_logprobs
    assert told.text_offset
    assert told.top_logprobs
    assert "".join(told.tokens) == choice.text
    assert [choice.text[at:].startswith(piece) for at, piece in zip(told.text_offset, told.tokens)] == [True] * 6
    assert [max(beside.values()) for beside in told.top_logprobs] == pytest.approx(told.token_logprobs, abs=1e-4)
    assert {len(beside) for beside in told.top_logprobs} == {2}


def test_what_openai_has_no_word_for_goes_in_the_extra_body(client: OpenAI) -> None:
    def said(**extra: Any) -> str:
        given = {"model": "demo", "prompt": "Once", "max_tokens": 12, "temperature": 1, "seed": 3}
        return client.completions.create(**given, extra_body=extra).choices[0].text  # type: ignore[call-overload,no-any-return]

    greedy = client.completions.create(model="demo", prompt="Once", max_tokens=12, temperature=0).choices[0].text
    assert said(top_k=1) == said(min_p=1.0) == said(top_p=1e-9) == greedy != said()
    given: dict[str, Any] = {"model": "demo", "prompt": "Once", "max_tokens": 200, "temperature": 0}
    long = client.completions.create(**given, extra_body={"ignore_eos": True})
    assert long.usage is not None
    assert long.usage.completion_tokens == 200
    other = client.completions.create(**given, extra_body={"ignore_eos": True, "repetition_penalty": 3.0})
    assert other.choices[0].text != long.choices[0].text


def test_bias_and_penalties_move_what_is_said(client: OpenAI, engine: EngineProcess) -> None:
    given: dict[str, Any] = {"model": "demo", "prompt": "Once", "max_tokens": 4, "temperature": 0}
    (fox,) = engine.encode(" fox")[-1:]
    forced = client.completions.create(**given, logit_bias={str(fox): 100}).choices[0].text
    assert forced == engine.pieces([fox])[0] * 4
    penalized = client.completions.create(
        **given, logit_bias={str(fox): 100}, frequency_penalty=2.0, presence_penalty=2
    )
    assert penalized.choices[0].text == forced


def test_answers_follow_a_schema_a_pattern_or_choices(client: OpenAI) -> None:
    schema = {"type": "object", "properties": {"hero": {"enum": ["fox", "cow"]}}, "required": ["hero"]}
    wanted: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "story", "schema": schema, "strict": True}}

    def said(form: dict[str, Any], most: int = 60) -> str:
        given = GREEDY | {"max_tokens": most, "response_format": form}
        return client.chat.completions.create(**given).choices[0].message.content or ""

    assert json.loads(said(wanted))["hero"] in ("fox", "cow")
    assert said({"type": "regex", "regex": "[0-9]{3}"}).isdecimal()
    assert said({"type": "choice", "choices": ["yes", "no"]}) in ("yes", "no")
    assert said({"type": "json_object"}).startswith("{")
    assert (
        said({"type": "text"})
        == client.chat.completions.create(**GREEDY | {"max_tokens": 60}).choices[0].message.content
    )


def test_tokens_are_counted_and_read_as_the_engine_does(http: Any, engine: EngineProcess) -> None:
    told = http.post("/tokenize", json={"model": "demo", "prompt": "Once upon a time"}).json()
    assert told == {"count": len(told["tokens"]), "max_model_len": 1024, "tokens": engine.encode("Once upon a time")}
    assert http.post("/tokenize", json={"messages": FOX}).json()["tokens"] == engine.encode(FOX)
    assert http.post("/detokenize", json={"tokens": told["tokens"]}).json() == {"prompt": "Once upon a time"}


def test_without_a_limit_an_answer_may_fill_the_context(http: Any, engine: EngineProcess) -> None:
    long = [{"role": "user", "content": "fox " * 900}]
    body = {"model": "demo", "messages": long, "temperature": 0, "ignore_eos": True}
    for limit in ({}, {"max_tokens": 2**62}):
        answer = http.post("/v1/chat/completions", json=body | limit).json()
        assert answer["choices"][0]["finish_reason"] == "length"
        assert answer["usage"]["total_tokens"] == 1024


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"model": "gpt-9"}, openai.NotFoundError, "'gpt-9' is not served here; 'demo' is"),
        ({"temperature": -1}, openai.BadRequestError, "temperature=-1.0: must be between 0"),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens=0"),
        ({"seed": 2**63}, openai.BadRequestError, "must fit in 64 bits"),
        ({"messages": []}, openai.BadRequestError, "messages: "),
        ({"messages": [{"role": "user", "content": " "}]}, openai.BadRequestError, "no message of the user"),
        (
            {"tools": [{"type": "function", "function": {"name": "f"}}]},
            openai.BadRequestError,
            "tools is not supported",
        ),
        ({"extra_body": {"colour": 1}}, openai.BadRequestError, "colour is no field of this request"),
        ({"extra_body": {"top_k": "5"}}, openai.BadRequestError, "top_k: Input should be a valid integer"),
        ({"top_logprobs": 3}, openai.BadRequestError, "top_logprobs needs logprobs"),
        ({"stop": [""]}, openai.BadRequestError, "stop: must be a text"),
        ({"n": 41}, openai.BadRequestError, "n: 41 answers at once; the server takes 40"),
        ({"logit_bias": {"99999": 1}}, openai.BadRequestError, "99999"),
        ({"response_format": {"type": "yaml"}}, openai.BadRequestError, "response_format"),
        ({"messages": [{"role": "user", "content": "a b " * 2000}]}, openai.BadRequestError, "context of 1,024"),
    ],
)
def test_what_cannot_be_answered_is_told_as_the_clients_own_error(
    client: OpenAI, wrong: dict[str, Any], error: type[openai.APIStatusError], words: str
) -> None:
    with pytest.raises(error) as told:
        client.chat.completions.create(**GREEDY | wrong)
    assert words in str(told.value)
    body: Any = told.value.body
    assert set(body) == {"message", "type", "param", "code"}


THINKS = "<think>\n[a-z ]{40}\n</think>\n\n[A-Z][a-z ]{20}"


def test_what_a_model_thinks_is_told_beside_its_answer(client: OpenAI) -> None:
    asked = GREEDY | {"max_tokens": 60, "extra_body": {"response_format": {"type": "regex", "regex": THINKS}}}
    whole = client.chat.completions.create(**asked)
    parts = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    message = whole.choices[0].message
    thoughts = str(message.model_extra["reasoning_content"])  # type: ignore[index]
    assert 30 < len(thoughts.strip()) <= 40
    assert message.content is not None
    assert re.fullmatch("[A-Z][a-z ]{20}", message.content)
    deltas = [part.choices[0].delta for part in parts[:-1]]
    assert "".join(delta.content or "" for delta in deltas) == message.content
    assert "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas) == thoughts
    spoken = [bool(delta.content) for delta in deltas if delta.content or (delta.model_extra or {})]
    assert spoken == sorted(spoken), "thoughts come first"
    assert not spoken[0]
    for usage in (whole.usage, parts[-1].usage):
        assert usage is not None
        assert usage.completion_tokens_details is not None
        assert 8 < (usage.completion_tokens_details.reasoning_tokens or 0) < usage.completion_tokens - 2
    again = [*FOX, {"role": "assistant", "content": message.content, "reasoning_content": thoughts}, *FOX]
    kept = [*FOX, {"role": "assistant", "content": message.content}, *FOX]
    said = [client.chat.completions.create(**GREEDY | {"messages": each}).choices[0].message for each in (again, kept)]
    assert said[0] == said[1], "thoughts that are sent back are not read"
    text = client.completions.create(
        model="demo", prompt="Once", max_tokens=60, extra_body={"response_format": {"type": "regex", "regex": THINKS}}
    )
    assert text.choices[0].text.startswith("<think>\n"), "a completion's text is as it was written"
