"""Served chats of a model whose template begins an answer amid thoughts, by one engine and by a fleet."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import resources
from engine import EngineConfig, EngineProcess, ModelSpec
from engine.core.face import EngineFace
from engine.serving import ServingSettings
from engine.serving.fleet import local_fleet
from tests.engine.serving.conftest import calling

CONFIG = EngineConfig(max_running=4, token_budget=256, kv_memory=8 << 20)
FOX = [{"role": "user", "content": "Tell me a story about a fox."}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("thinking") / "model"
    shutil.copytree(resources.path("models/stories-draft"), made)
    template = made / "chat_template.jinja"
    template.write_text(template.read_text().replace("<|assistant|>' }}", "<|assistant|><think>\\n' }}"))
    return made


@pytest.mark.parametrize("replicas", [1, 2])
def test_thoughts_that_the_template_begins_are_told_apart_unless_a_grammar_knows_none(
    folder: Path, replicas: int
) -> None:
    def engine() -> EngineFace:
        if replicas > 1:
            return local_fleet(ModelSpec(str(folder)), CONFIG, replicas, threads=1)
        return EngineProcess(ModelSpec(str(folder)), CONFIG, threads=1)

    with engine() as served, calling(served, ServingSettings(port=0)) as http:

        def asked(**response_format: object) -> Any:
            body = {"model": "demo", "messages": FOX, "max_tokens": 60, "temperature": 0}
            answer = http.post("/v1/chat/completions", json=body | {"response_format": response_format})
            return answer.json()

        told = asked(type="regex", regex="[a-z ]{12}\n</think>\n\n[A-Z][a-z ]{10}")
        message = told["choices"][0]["message"]
        assert 0 < len(message["reasoning_content"]) <= 12
        assert len(message["content"]) == 11
        assert 0 < told["usage"]["completion_tokens_details"]["reasoning_tokens"] < told["usage"]["completion_tokens"]
        told = asked(type="choice", choices=["yes", "no"])
        assert told["choices"][0]["message"]["content"] in ("yes", "no")
        assert "reasoning_content" not in told["choices"][0]["message"]
        assert "completion_tokens_details" not in told["usage"]
