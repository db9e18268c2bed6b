"""The sink that sends spans and measures by OTLP over HTTP; OpenTelemetry's SDK batches and retries."""

import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import Metric

from engine.serving.exchange import Facts
from engine.serving.otlp import names
from engine.serving.otlp.attributes import attributes, common, operation
from engine.serving.settings import OtlpSettings

CLOSING = 5.0  # seconds that the last spans may take
SAID = 60.0  # seconds between two lines on a collector that takes nothing
LOGGERS = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.sdk._shared_internal",
)


class Seldom(logging.Filter):
    """Lets a line through now and then: the SDK says at each try that a collector is away."""

    def __init__(self) -> None:
        super().__init__()
        self._said = -SAID

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now - self._said < SAID:
            return False
        self._said = now
        return True


class Otlp:
    """A sink of requests that are over: each is a span `chat MODEL` or `text_completion MODEL` with children `queue`,
    `prefill` and `decode`, in the client's trace where it sent a `traceparent`. What no collector takes is dropped."""

    def __init__(self, settings: OtlpSettings) -> None:
        self._text = settings.text
        named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        resource = Resource.create({} if named else {"service.name": names.PROVIDER})
        self._exporters: list[OTLPSpanExporter | OTLPMetricExporter] = []
        self._spans = TracerProvider(resource=resource, shutdown_on_exit=False)
        if _asked("TRACES"):
            spans = OTLPSpanExporter(endpoint=_endpoint(settings, "traces"))
            self._exporters.append(spans)
            self._spans.add_span_processor(BatchSpanProcessor(spans))
        readers = []
        if _asked("METRICS"):
            measured = OTLPMetricExporter(endpoint=_endpoint(settings, "metrics"))
            self._exporters.append(measured)
            readers.append(PeriodicExportingMetricReader(measured))
        self._measures = MeterProvider(readers, resource, shutdown_on_exit=False)
        self._tracer = self._spans.get_tracer(names.PROVIDER)
        meter = self._measures.get_meter(names.PROVIDER)

        def histogram(name: str, told: str, bounds: list[float]) -> Any:
            return meter.create_histogram(name, "s", told, explicit_bucket_boundaries_advisory=bounds)

        self._duration = histogram(names.DURATION, "From a request's arrival to its end.", names.DURATION_BUCKETS)
        self._ttft = histogram(names.TTFT, "From a request's arrival to its first token.", names.TTFT_BUCKETS)
        self._tpot = histogram(names.TPOT, "A sample's mean time a token after the first.", names.TPOT_BUCKETS)
        self._seldom = Seldom()
        for name in LOGGERS:
            logging.getLogger(name).addFilter(self._seldom)
        self._propagator = TraceContextTextMapPropagator()

    def take(self, facts: Sequence[Facts]) -> None:
        for one in facts:
            self._trace(one)
            said = common(one)
            self._duration.record(one.latency, said)
            if one.ttft is not None:
                self._ttft.record(one.ttft, said)
            if one.per_token is not None:
                self._tpot.record(one.per_token, said)

    def _trace(self, facts: Facts) -> None:
        given = {"traceparent": facts.traceparent, "tracestate": facts.tracestate}
        parent = self._propagator.extract({name: value for name, value in given.items() if value})
        span = self._tracer.start_span(
            f"{operation(facts)} {facts.model}",
            parent,
            SpanKind.SERVER,
            attributes(facts, self._text),
            start_time=_nanoseconds(facts.received),
        )
        if facts.status >= 500:
            span.set_status(Status(StatusCode.ERROR, facts.error))
        if span.is_recording():
            inside = set_span_in_context(span)
            moments = facts.received, facts.scheduled, facts.first, facts.last
            for name, begin, end in zip(("queue", "prefill", "decode"), moments, moments[1:]):
                if begin is not None and end is not None:
                    part = self._tracer.start_span(name, inside, start_time=_nanoseconds(begin))
                    part.end(_nanoseconds(end))
        span.end(_nanoseconds(facts.ended))

    def lose(self, count: int) -> None:
        """They are in no trace; the request log counts them."""

    def collect(self) -> Iterable[Metric]:
        return ()

    def close(self) -> None:
        """Sends what is left, where that takes no longer than a moment."""

        def end() -> None:
            self._spans.shutdown()
            self._measures.shutdown()

        last = threading.Thread(target=end, name="otlp-close", daemon=True)
        last.start()
        last.join(CLOSING)
        if last.is_alive():
            for exporter in self._exporters:
                exporter.shutdown()  # ends its waits between two tries
            last.join(1)
        for name in LOGGERS:
            logging.getLogger(name).removeFilter(self._seldom)


def _asked(kind: str) -> bool:
    return os.environ.get(f"OTEL_{kind}_EXPORTER", "otlp") != "none"


def _endpoint(settings: OtlpSettings, path: str) -> str | None:
    """None: the exporter asks the environment."""
    return f"{settings.url.rstrip('/')}/v1/{path}" if settings.url is not None else None


def _nanoseconds(moment: float) -> int:
    return round(moment * 1e9)
