"""langchain-openai against the server, where it is installed: it has 110 MB, so that no extra brings it."""

import asyncio
from typing import Any

import pytest

from engine.serving import Server

pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
pytestmark = pytest.mark.filterwarnings("default")

STORY = [("system", "You tell stories."), ("human", "Tell me of a fox.")]


@pytest.fixture(scope="module")
def chat(server: Server) -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(
        model="demo", base_url=f"{server.address}/v1", api_key="none", temperature=0, max_tokens=24, max_retries=0
    )


def test_an_answer_its_stream_and_its_usage(chat: Any) -> None:
    whole = chat.invoke(STORY)
    parts = list(chat.stream(STORY, stream_usage=True))
    assert len(parts) > 5
    assert "".join(part.content for part in parts) == whole.content != ""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    assert total.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"] == 24
    assert total.response_metadata["finish_reason"] == whole.response_metadata["finish_reason"] == "length"


def test_batches_stop_strings_and_logprobs(chat: Any) -> None:
    one = chat.invoke(STORY).content
    assert [answer.content for answer in chat.batch([STORY] * 4)] == [one] * 4
    stop = one.split()[3]
    assert chat.bind(stop=[stop]).invoke(STORY).content == one.partition(stop)[0]
    told = chat.bind(logprobs=True, top_logprobs=2).invoke(STORY).response_metadata["logprobs"]["content"]
    assert "".join(token["token"] for token in told) == one


def test_it_works_from_asyncio(chat: Any) -> None:
    async def both() -> tuple[str, str]:
        parts = [part.content async for part in chat.astream(STORY)]
        return (await chat.ainvoke(STORY)).content, "".join(parts)

    whole, streamed = asyncio.run(both())
    assert whole == streamed


def test_an_answer_that_has_a_shape(chat: Any) -> None:
    schema = {
        "title": "story",
        "description": "A story.",
        "type": "object",
        "properties": {"hero": {"type": "string", "enum": ["fox", "owl"]}},
        "required": ["hero"],
        "additionalProperties": False,
    }
    found = chat.with_structured_output(schema, method="json_schema").invoke(STORY)
    assert found["hero"] in ("fox", "owl")


def test_what_is_refused_is_the_clients_exception(chat: Any) -> None:
    from openai import BadRequestError, NotFoundError

    with pytest.raises(BadRequestError, match="tools is not supported"):
        chat.bind(tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}]).invoke(STORY)
    with pytest.raises(NotFoundError, match="not served here"):
        chat.bind(model="other").invoke(STORY)
