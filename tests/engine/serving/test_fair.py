"""Fair shares among keys: who floods a server keeps nobody else waiting, behind one engine or a fleet."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2

from engine import EngineConfig, EngineProcess, ModelSpec, SamplingParams, Submission, Trace
from engine.serving import KeyFile, ServingSettings, made_key
from engine.serving.fleet import local_fleet
from tests.engine.serving.conftest import calling
from tests.waiting import until

FLOOD, FEW = 12, 2
CONFIG = EngineConfig(max_running=2, token_budget=64, admission="fair", kv_memory=8 << 20)


def last_of_the_few(trace: Trace) -> int:
    """How many were over before the last of them."""
    ends = sorted(trace.requests.values(), key=lambda view: view.ended or 0.0)
    return max(place for place, view in enumerate(ends) if view.label == "few")


def test_a_key_that_floods_a_server_keeps_no_other_waiting(tmp_path: Path) -> None:
    keys = {}
    for name in ("flood", "few"):
        keys[name], kept = made_key(name)
        KeyFile(tmp_path / "keys.json").add(kept)
    settings = ServingSettings(port=0, keys=tmp_path / "keys.json", per_key=FLOOD)
    with EngineProcess(ModelSpec("demo"), CONFIG, threads=1) as engine, calling(engine, settings) as http:

        def asked(name: str, tokens: int) -> int:
            body = {"model": "demo", "prompt": "Once", "max_tokens": tokens, "ignore_eos": True}
            headers = {"Authorization": f"Bearer {keys[name]}"}
            answer: httpx2.Response = http.post("/v1/completions", json=body, headers=headers)
            return answer.status_code

        with ThreadPoolExecutor(FLOOD + FEW) as pool:
            sent = [pool.submit(asked, "flood", 40) for _ in range(FLOOD)]
            until(lambda: len(engine.trace.requests) == FLOOD)
            sent += [pool.submit(asked, "few", 4) for _ in range(FEW)]
            assert {future.result() for future in sent} == {200}
        assert last_of_the_few(engine.trace) < FLOOD / 2


def test_a_fleet_tells_its_engines_whose_a_request_is() -> None:
    with local_fleet(ModelSpec("demo"), CONFIG, 1, threads=1) as fleet:
        params = SamplingParams(max_tokens=40, ignore_eos=True)
        asked = [Submission("Once", params, label="flood") for _ in range(FLOOD)]
        asked += [Submission("Once", params.with_(max_tokens=4), label="few") for _ in range(FEW)]
        for stream in fleet.submit_many(asked):
            stream.result(timeout=60)
        assert last_of_the_few(fleet.trace) < FLOOD / 2
