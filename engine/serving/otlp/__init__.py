"""Requests as OpenTelemetry's spans and measures, over HTTP, by the GenAI conventions. Extra `otel`."""

from engine.serving.otlp.otlp import Otlp
