"""The observer's counts in Prometheus' text format."""

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from engine.serving.metrics.observer import REASONS, Observer

ENGINE = "0"
LABELS = "model_name", "engine"


class _Told(Collector):
    def __init__(self, observer: Observer, more: Iterable[Metric]) -> None:
        self._seen, self._more = observer, more

    def collect(self) -> Iterator[Metric]:
        with self._seen.lock:
            yield from [*self._gauges(), *self._counters(), *self._histograms()]
        yield from self._more

    @property
    def _whose(self) -> list[str]:
        return [self._seen.model, ENGINE]

    def _gauges(self) -> Iterator[Metric]:
        seen, header = self._seen, self._seen.header
        running = min(seen.running, seen.samples)
        yield self._gauge("num_requests_running", "Samples that hold a slot.", running)
        yield self._gauge("num_requests_waiting", "Samples that wait for one.", seen.waiting)
        told = "Samples that wait, by what the head of the queue waits for: capacity, or its turn (deferred)."
        by_reason = GaugeMetricFamily("vllm:num_requests_waiting_by_reason", told, labels=[*LABELS, "reason"])
        for reason, counts in (("capacity", seen.capacity), ("deferred", not seen.capacity)):
            by_reason.add_metric([*self._whose, reason], seen.waiting if counts else 0)
        yield by_reason
        used = 1 - seen.free / header.blocks if header.blocks else 0.0
        yield self._gauge("kv_cache_usage_perc", "Share of the KV blocks that have an owner, from 0 to 1.", used)
        config = header.config
        about: dict[str, object] = {"block_size": config.block_size, "num_gpu_blocks": header.blocks}
        about |= {"enable_prefix_caching": config.prefix_caching, "cache_dtype": config.kv_dtype}
        info = GaugeMetricFamily("vllm:cache_config_info", "The KV cache as it was made.", labels=[*LABELS, *about])
        info.add_metric([*self._whose, *map(str, about.values())], 1)
        yield info

    def _counters(self) -> Iterator[Metric]:
        seen = self._seen
        external = seen.looked_up - seen.reused + seen.from_host if seen.header.config.offload_prefixes else 0
        for name, told, value in (
            ("prefix_cache_queries", "Tokens of prompts that were looked up in the prefix cache.", seen.looked_up),
            ("prefix_cache_hits", "Those of them that were there.", seen.reused - seen.from_host),
            ("external_prefix_cache_queries", "Those looked up in host memory.", external),
            ("external_prefix_cache_hits", "Those of them that were there.", seen.from_host),
            ("num_preemptions", "Samples that made way for others.", seen.preemptions),
            ("prompt_tokens", "Tokens of prompts that were answered.", seen.prompt_tokens),
            ("prompt_tokens_cached", "Tokens of prompts that needed no computing.", seen.reused),
            ("generation_tokens", "Tokens that were generated.", seen.generated),
        ):
            counter = CounterMetricFamily(f"vllm:{name}", told, labels=LABELS)
            counter.add_metric(self._whose, value)
            yield counter
        ends = CounterMetricFamily("vllm:request_success", "Samples that ended.", labels=[*LABELS, "finished_reason"])
        for reason in REASONS.values():
            ends.add_metric([*self._whose, reason], seen.ends[reason])
        yield ends

    def _histograms(self) -> Iterator[Metric]:
        seen = self._seen
        for name, told, values in (
            ("iteration_tokens_total", "Tokens that a step computed.", seen.step_tokens),
            ("time_to_first_token_seconds", "From a request's arrival to its first token.", seen.ttft),
            ("inter_token_latency_seconds", "Between two tokens of a sample.", seen.itl),
            ("request_time_per_output_token_seconds", "A sample's mean time a token after the first.", seen.tpot),
            ("e2e_request_latency_seconds", "From arrival to end.", seen.e2e),
            ("request_queue_time_seconds", "From arrival to the first step.", seen.queue),
            ("request_prefill_time_seconds", "From the first step to the first token.", seen.prefill),
            ("request_decode_time_seconds", "From the first token to the last.", seen.decode),
            ("request_inference_time_seconds", "From the first step to the last token.", seen.inference),
            ("request_prompt_tokens", "Tokens of a prompt.", seen.prompts),
            ("request_generation_tokens", "Tokens of an answer.", seen.answers),
            ("request_params_n", "Samples that a request asks for.", seen.ns),
            ("request_params_max_tokens", "The most tokens that a request asks for.", seen.limits),
        ):
            histogram = HistogramMetricFamily(f"vllm:{name}", told, labels=LABELS)
            histogram.add_metric(self._whose, values.cumulative, values.sum)
            yield histogram

    def _gauge(self, name: str, told: str, value: float) -> Metric:
        gauge = GaugeMetricFamily(f"vllm:{name}", told, labels=LABELS)
        gauge.add_metric(self._whose, value)
        return gauge


def exposition(observer: Observer, more: Iterable[Metric] = ()) -> bytes:
    """All of it and more, in the text format 0.0.4."""
    registry = CollectorRegistry()
    registry.register(_Told(observer, list(more)))
    return generate_latest(registry)
