"""What Prometheus reads, by the names that vLLM has for it."""

from engine.serving.metrics.observer import Observer
