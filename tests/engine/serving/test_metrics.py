"""Prometheus reads what the trace says, by vLLM's names."""

from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from engine import Engine, EngineConfig, EngineProcess, ModelSpec, SamplingParams
from engine.serving import ServingSettings
from engine.serving.metrics.observer import Observer
from engine.trace import timings
from tests.engine.serving.conftest import calling, serving

BODY: dict[str, Any] = {"model": "demo", "prompt": "Once upon a time there was", "temperature": 0}
NAMES = """num_requests_running num_requests_waiting num_requests_waiting_by_reason kv_cache_usage_perc
cache_config_info prefix_cache_queries prefix_cache_hits external_prefix_cache_queries external_prefix_cache_hits
num_preemptions prompt_tokens prompt_tokens_cached generation_tokens request_success iteration_tokens_total
time_to_first_token_seconds inter_token_latency_seconds
request_time_per_output_token_seconds e2e_request_latency_seconds request_queue_time_seconds
request_prefill_time_seconds request_decode_time_seconds request_inference_time_seconds request_prompt_tokens
request_generation_tokens request_params_n request_params_max_tokens""".split()


@pytest.fixture(scope="module")
def told() -> tuple[dict[str, Any], Any]:
    """The families after six requests, one of which had failed at the door, and the trace's own times."""
    config = EngineConfig(max_running=8, token_budget=512, prefix_caching=True, kv_memory=8 << 20)
    with EngineProcess(ModelSpec("demo"), config, threads=1) as engine, serving(engine, ServingSettings(port=0)) as one:
        with httpx2.Client(base_url=one.address, timeout=30, trust_env=False) as http:
            for most in (1, 7, 30, 30):
                body = BODY | {"max_tokens": most, "ignore_eos": True, "prompt": "fox and kite " * 20}
                assert http.post("/v1/completions", json=body).status_code == 200
            http.post("/v1/completions", json=BODY | {"max_tokens": 10, "n": 3, "ignore_eos": True})
            assert http.post("/v1/completions", json=BODY | {"max_tokens": 0}).status_code == 400
            answer = http.get("/metrics")
            assert answer.headers["content-type"].startswith("text/plain; version=")
            families = {family.name: family for family in text_string_to_metric_families(answer.text)}
        return families, timings(engine.trace)


def value(families: dict[str, Any], name: str, sample: str = "", **labels: str) -> float:
    wanted = {"model_name": "demo", "engine": "0", **labels}
    found = families[f"vllm:{name}"].samples
    (one,) = [s for s in found if s.name == f"vllm:{name}{sample}" and s.labels == wanted]
    return float(one.value)


def test_all_names_are_there(told: tuple[dict[str, Any], Any]) -> None:
    assert sorted(told[0]) == sorted(f"vllm:{name}" for name in NAMES)


def test_counts_and_times_are_the_traces(told: tuple[dict[str, Any], Any]) -> None:
    families, times = told
    assert value(families, "generation_tokens", "_total") == times.output_tokens.sum() == 98
    assert value(families, "prompt_tokens", "_total") == times.prompt_tokens.sum()
    assert value(families, "request_success", "_total", finished_reason="length") == 7
    assert value(families, "request_success", "_total", finished_reason="abort") == 0
    ttft = "time_to_first_token_seconds"
    assert value(families, ttft, "_count") == 5
    assert value(families, ttft, "_sum") == pytest.approx(times.ttft.sum())
    assert value(families, "inter_token_latency_seconds", "_count") == 98 - 7
    assert value(families, "inter_token_latency_seconds", "_sum") == pytest.approx(times.gap.sum())
    assert value(families, "request_generation_tokens", "_bucket", le="10.0") == 5
    assert value(families, "request_params_n", "_bucket", le="2.0") == 4
    assert value(families, "request_params_max_tokens", "_sum") == 1 + 7 + 30 + 30 + 10


def test_what_was_cached_is_counted(told: tuple[dict[str, Any], Any]) -> None:
    families, times = told
    cached = value(families, "prompt_tokens_cached", "_total")
    assert value(families, "prefix_cache_queries", "_total") == times.prompt_tokens.sum()
    prompt = int(times.prompt_tokens[0])
    assert cached == value(families, "prefix_cache_hits", "_total") == 3 * ((prompt - 1) // 16 * 16)


def test_nothing_is_left_running(told: tuple[dict[str, Any], Any]) -> None:
    families, _ = told
    for name in ("num_requests_running", "num_requests_waiting"):
        assert value(families, name) == 0
    assert 0 <= value(families, "kv_cache_usage_perc") < 0.01
    parts = ("queue", "prefill", "decode")
    whole = sum(value(families, f"request_{part}_time_seconds", "_sum") for part in parts)
    assert whole > 0
    assert value(families, "iteration_tokens_total", "_count") > 60


def test_what_came_back_from_host_memory_is_counted_apart() -> None:
    config = EngineConfig(max_running=2, kv_memory=3 << 20, prefix_caching=True, offload_prefixes=True)
    with (
        EngineProcess(ModelSpec("demo"), config, threads=1) as engine,
        calling(engine, ServingSettings(port=0)) as http,
    ):
        for app in (*range(5), *range(5)):
            body = BODY | {"prompt": f"fox {app} and kite " * 40, "max_tokens": 2}
            assert http.post("/v1/completions", json=body).status_code == 200
        told = http.get("/metrics").text
        families = {family.name: family for family in text_string_to_metric_families(told)}
    hits, below = (value(families, f"{where}prefix_cache_hits", "_total") for where in ("", "external_"))
    assert below > 0
    assert hits + below == value(families, "prompt_tokens_cached", "_total")
    asked = value(families, "prefix_cache_queries", "_total")
    assert value(families, "external_prefix_cache_queries", "_total") == asked - hits


@pytest.mark.parametrize("depth", [0, 1])
def test_no_hit_is_counted_twice_where_requests_make_way_and_come_back(depth: int) -> None:
    with Engine(ModelSpec("demo"), threads=1) as engine:
        memory = 24 * 8 * engine.card.kv_token_bytes
        values: dict[str, Any] = {"depth": depth, "cuda_graphs": False, "offload_prefixes": True}
        trace = engine.begin(EngineConfig("chunked", 6, 256, 8, memory, prefix_caching=True, **values))
        seen, last = Observer(trace, "demo"), 0
        streams = [engine.submit([9 + n % 3] * 31, SamplingParams(max_tokens=40, ignore_eos=True)) for n in range(8)]
        for stream in streams:
            stream.result(timeout=60)
            hits = seen.reused - seen.from_host
            assert hits >= last
            last = hits
    assert seen.preemptions
    assert seen.from_host <= sum(len(step.found_below) for step in trace.steps) * 8
