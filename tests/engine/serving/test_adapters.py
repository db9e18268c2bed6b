"""A server's adapters are models of their own to its clients, by one engine and by a fleet."""

from typing import Any

import pytest

import resources
from engine import EngineConfig, EngineProcess, Lane, ModelSpec, SamplingParams, Workload
from engine.compare import LocalHost, Race
from engine.compare.remote import Server
from engine.core.face import EngineFace
from engine.serving import ServingSettings
from engine.serving.fleet import local_fleet
from tests.engine.adapters_case import ALL, linear_paths, save_adapter
from tests.engine.serving.conftest import calling, serving

CONFIG = EngineConfig(max_running=4, token_budget=256, kv_memory=8 << 20)
FOX = [{"role": "user", "content": "Tell me a story about a fox."}]


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    root, sizes = tmp_path_factory.mktemp("adapters"), linear_paths(resources.path("models/stories-5m"), ALL)
    folders = (str(save_adapter(root / name, sizes, 4, seed, 0.05)) for seed, name in enumerate(("one", "two")))
    return ModelSpec("demo", adapters=tuple(folders))


@pytest.mark.parametrize("replicas", [1, 2])
def test_they_are_asked_for_as_models(spec: ModelSpec, replicas: int) -> None:
    def engine() -> EngineFace:
        return (
            local_fleet(spec, CONFIG, replicas, threads=1) if replicas > 1 else EngineProcess(spec, CONFIG, threads=1)
        )

    with engine() as served, calling(served, ServingSettings(port=0)) as http:

        def said(model: str) -> str:
            body = {"model": model, "messages": FOX, "max_tokens": 12, "temperature": 0}
            answer = http.post("/v1/chat/completions", json=body).json()
            assert answer["model"] == model
            return answer["choices"][0]["message"]["content"]

        told = [(each["id"], each.get("parent")) for each in http.get("/v1/models").json()["data"]]
        assert told == [("demo", None), ("one", "demo"), ("two", "demo")]
        assert http.get("/v1/models/two").json()["parent"] == "demo"
        answers = [said(name) for name in ("demo", "one", "two")]
        assert len(set(answers)) == 3
        assert [said(name) for name in ("demo", "one", "two")] == answers
        refused: Any = http.post("/v1/completions", json={"model": "three", "prompt": "A fox"})
        assert refused.status_code == 404
        assert refused.json()["error"]["message"] == (
            "the model 'three' is not served here; 'demo', 'one' and 'two' are"
        )
        assert http.get("/v1/models/three").status_code == 404
        assert http.post("/tokenize", json={"model": "one", "prompt": "A fox"}).status_code == 200


def test_a_race_asks_a_server_for_them(spec: ModelSpec) -> None:
    """Beside a lane of this engine, with the same tokens."""
    params = SamplingParams(max_tokens=10, temperature=0, ignore_eos=True)
    workload = Workload.at_once("both", [FOX] * 3, params).through(("one", "", "two"))
    with EngineProcess(spec, CONFIG, threads=1) as engine, serving(engine, ServingSettings(port=0)) as server:
        lanes = [Lane(CONFIG, spec), Lane(CONFIG, server=Server(server.address, "demo"))]
        import threading

        with LocalHost(1) as host:
            result = Race(workload, lanes, kv_tokens=2048).play(host, lambda event: None, threading.Event())
    here, there = (
        [view.text for view in run.trace.requests.values()] for run in result.lane_runs if run.trace is not None
    )
    assert len(set(here)) == 3
    assert here == there
