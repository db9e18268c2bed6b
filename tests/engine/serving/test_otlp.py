"""Spans and measures arrive at a collector, as OpenTelemetry's protocol has them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from openai import OpenAI
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from engine import EngineProcess
from engine.serving import OtlpSettings, ServingSettings
from engine.serving.otlp import names, otlp
from tests.engine.serving.conftest import serving

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
STORY: Any = [{"role": "user", "content": "Tell me of a fox."}]


class Collector(ThreadingHTTPServer):
    """Takes what is sent, or answers with `status`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.spans, self.metrics = 200, [], []
        self.bodies: list[bytes] = []
        self.resources: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def take(self, path: str, body: bytes) -> None:
        self.bodies.append(body)
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(plain(resource.resource.attributes))
                self.spans += [span for scope in resource.scope_spans for span in scope.spans]
        else:
            assert path == "/v1/metrics"
            for measured in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics += [metric for scope in measured.scope_metrics for metric in scope.metrics]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.server.status == 200:
            self.server.take(self.path, body)
        self.send_response(self.server.status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def plain(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(part) for part in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()
    thread = threading.Thread(target=collector.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield collector
    finally:
        collector.shutdown()
        thread.join()
        collector.server_close()


@contextmanager
def traced(engine: EngineProcess, url: str, text: bool = False) -> Iterator[OpenAI]:
    """All is sent when it is left."""
    with (
        serving(engine, ServingSettings(port=0, otlp=OtlpSettings(url, text))) as server,
        OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0) as client,
    ):
        yield client


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-langfuse-ingestion-version=4")


def test_a_request_is_a_span_in_the_clients_trace_with_its_parts(engine: EngineProcess) -> None:
    header = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=opaque"}
    with collecting() as collector, traced(engine, collector.url) as client:
        answer = client.chat.completions.create(
            model="demo",
            messages=STORY,
            max_tokens=12,
            temperature=0.5,
            seed=3,
            n=2,
            stop=["zebra"],
            extra_body={"ignore_eos": True, "top_k": 2**62},
            extra_headers=header,
        )
        with pytest.raises(Exception, match="max_tokens"):
            client.completions.create(model="demo", prompt="Once", max_tokens=0)
    spans = {span.name: span for span in collector.spans}
    assert set(spans) == {"chat demo", "queue", "prefill", "decode", "text_completion demo"}
    whole, other = spans["chat demo"], spans["text_completion demo"]
    assert (whole.trace_id.hex(), whole.parent_span_id.hex()) == (TRACE, PARENT)
    assert whole.trace_state == "vendor=opaque"
    assert other.trace_id.hex() != TRACE
    parts = [spans[name] for name in ("queue", "prefill", "decode")]
    assert {part.parent_span_id for part in parts} == {whole.span_id}
    edges = [
        whole.start_time_unix_nano,
        *(edge for p in parts for edge in (p.start_time_unix_nano, p.end_time_unix_nano)),
    ]
    assert edges == sorted(edges)
    assert edges[1] == edges[0]
    assert edges[-1] <= whole.end_time_unix_nano <= time.time_ns()
    said, usage = plain(whole.attributes), answer.usage
    assert usage is not None
    assert {name: said[name] for name in said if name != names.LANGFUSE_FIRST} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "batchscope",
        "gen_ai.request.model": "demo",
        "gen_ai.request.max_tokens": 12,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1.0,
        "gen_ai.request.top_k": 2**62,
        "gen_ai.request.seed": 3,
        "gen_ai.request.choice.count": 2,
        "gen_ai.request.frequency_penalty": 0.0,
        "gen_ai.request.presence_penalty": 0.0,
        "gen_ai.response.id": answer.id,
        "gen_ai.response.model": "demo",
        "gen_ai.response.finish_reasons": ["length", "length"],
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": said["gen_ai.usage.cache_read.input_tokens"],
        "gen_ai.usage.output_tokens": 24,
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 200,
        "langfuse.observation.type": "generation",
    }
    assert plain(other.attributes)["error.type"] == "invalid_value"
    assert collector.resources[0]["service.name"] == "batchscope"


def test_measures_arrive_by_their_names(engine: EngineProcess) -> None:
    with collecting() as collector, traced(engine, collector.url) as client:
        for _ in range(3):
            client.chat.completions.create(model="demo", messages=STORY, max_tokens=4, extra_body={"ignore_eos": True})
    found = {metric.name: metric for metric in collector.metrics}
    assert set(found) == {
        "gen_ai.server.request.duration",
        "gen_ai.server.time_to_first_token",
        "gen_ai.server.time_per_output_token",
    }
    for metric in found.values():
        (point,) = metric.histogram.data_points
        assert (point.count, metric.unit) == (3, "s")
        assert 0 < point.sum < 30
        assert plain(point.attributes)["gen_ai.operation.name"] == "chat"
    assert list(found[names.DURATION].histogram.data_points[0].explicit_bounds) == names.DURATION_BUCKETS


def test_texts_are_sent_when_that_is_asked(engine: EngineProcess) -> None:
    with collecting() as collector, traced(engine, collector.url, text=True) as client:
        answer = client.chat.completions.create(model="demo", messages=STORY, max_tokens=6, stop=["zebra"])
    (whole,) = [span for span in collector.spans if span.name == "chat demo"]
    said = plain(whole.attributes)
    assert said["langfuse.observation.output"] == answer.choices[0].message.content
    assert said["langfuse.observation.input"] == '[{"role": "user", "content": "Tell me of a fox."}]'
    assert said["gen_ai.request.stop_sequences"] == ["zebra"]


@pytest.mark.parametrize("status", [503, None])
def test_a_collector_that_fails_or_is_not_there_stops_no_answer(
    engine: EngineProcess, status: int | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(otlp, "CLOSING", 0.5)
    with collecting() as collector:
        collector.status = status or 200
        with traced(engine, collector.url if status else "http://127.0.0.1:1") as client:
            for _ in range(5):
                begun = time.monotonic()
                assert client.completions.create(model="demo", prompt="Once", max_tokens=2).choices
                assert time.monotonic() - begun < 5
    assert collector.spans == []
    assert len([record for record in caplog.records if record.name.startswith("opentelemetry.exporter")]) == 1


def test_the_environment_says_where_and_whether(engine: EngineProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_METRICS_EXPORTER", "none")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "stories")
        with (
            serving(engine, ServingSettings(port=0, otlp=OtlpSettings())) as server,
            OpenAI(base_url=f"{server.address}/v1", api_key="none") as client,
        ):
            client.completions.create(model="demo", prompt="Once", max_tokens=2)
    assert collector.resources[0]["service.name"] == "stories"
    assert len(collector.spans) == 4
    assert collector.metrics == []
