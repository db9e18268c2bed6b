"""Every measure with its name, unit and formula: for tooltips, `--help` and the table of a comparison."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, log10
from textwrap import wrap
from typing import Any

from engine.trace.metrics import Metrics
from engine.trace.slo import seconds_text

SYMBOLS = (
    "s submit, f first token, l last token, n output tokens of a request; D wall time from the first submit to the "
    "last token; a row-step is one row computed in one step"
)


@dataclass(frozen=True, slots=True)
class Measure:
    """`key` is the value's place in Metrics. `unit` is "s", "%" (of a share from 0 to 1), another unit or "" for a
    count. `better` is "higher", "lower" or "", where neither is."""

    key: str
    name: str
    formula: str
    unit: str = ""
    better: str = ""
    group: str = ""

    def read(self, metrics: Metrics) -> float | None:
        value: Any = metrics
        for name in self.key.split("."):
            value = None if value is None else getattr(value, name)
        return None if value is None else float(value)

    def text(self, value: float | None) -> str:
        """A value with its unit, for people."""
        if value is None:
            return "–"
        match self.unit:
            case "s":
                return seconds_text(value)
            case "%":
                return f"{100 * value:,.1f} %"
            case "":
                return f"{value:,.0f}"
            case "rows":
                return f"{value:,.1f}"
            case unit:
                return f"{value:,.{sum(abs(value) < border for border in (99.95, 9.995, 0.9995))}f} {unit}"


def _spread(key: str, name: str, formula: str, over: str) -> list[Measure]:
    kinds = {"mean": "mean", "p50": "50th percentile", "p95": "95th percentile", "p99": "99th percentile"}
    return [
        Measure(f"{key}.{kind}", f"{name} {kind}", f"{words} of {formula}, over {over}", "s", "lower", "latency")
        for kind, words in kinds.items()
    ]


MEASURES = {
    m.key: m
    for m in [
        Measure("completed", "completed", "requests that ended with stop or length", "", "higher", "throughput"),
        Measure("duration", "run time", "D = last token − first submit", "s", "lower", "throughput"),
        Measure("output_throughput", "output throughput", "Σ n / D", "tok/s", "higher", "throughput"),
        Measure("total_throughput", "total throughput", "Σ (prompt tokens + n) / D", "tok/s", "higher", "throughput"),
        Measure("request_throughput", "request throughput", "completed / D", "req/s", "higher", "throughput"),
        Measure(
            "goodput", "goodput", "completed requests that meet every limit of the SLO / D", "req/s", "higher",
            "throughput",
        ),
        *_spread("ttft", "TTFT", "f − s", "requests"),
        *_spread("tpot", "TPOT", "(l − f) / (n − 1)", "requests with n ≥ 2"),
        *_spread("itl", "ITL", "the gaps between consecutive emissions (tokens of one step are one)", "all gaps"),
        *_spread("e2e", "E2E latency", "l − s", "requests"),
        Measure(
            "longest_stall", "longest stall", "the largest gap between consecutive emissions of one request", "s",
            "lower", "latency",
        ),
        Measure(
            "average_latency", "average latency",
            "batch × D / Σ n, batch = min(slots, samples): of one full batch, total time / tokens of a sequence", "s",
            "lower", "latency",
        ),
        Measure("steps", "steps", "steps that computed rows", "", "lower", "work"),
        Measure("mean_rows", "rows a step", "row-steps / steps", "rows", "", "work"),
        Measure(
            "wasted_row_share", "wasted row-steps",
            "(held rows + rows whose every token was thrown away) / row-steps", "%", "lower", "work",
        ),
        Measure(
            "idle_share", "idle slot-steps", "(slots × steps − row-steps) / (slots × steps)", "%", "lower", "work"
        ),
        Measure("padding_share", "padding", "pad tokens / all tokens the model was given", "%", "lower", "work"),
        Measure(
            "useful_share", "useful tokens",
            "tokens the model was given that were neither padding nor thrown away / all it was given", "%", "higher",
            "work",
        ),
        Measure(
            "wasted_tokens", "wasted tokens", "computed and thrown away: held rows, rows past a stop, recomputation",
            "", "lower", "work",
        ),
        Measure(
            "reused_tokens", "reused tokens",
            "tokens whose K and V were there already: of a prefix that was kept, or of another sample's prompt",
            "", "higher", "work",
        ),
        Measure("preemptions", "preemptions", "times a running request lost its KV blocks", "", "lower", "work"),
        Measure(
            "outside_forward", "outside the forward", "1 − time in the model's forward / time of all steps", "%",
            "lower", "work",
        ),
        Measure(
            "kv.waste", "KV waste",
            "mean over time of (reserved + internal + external) / (used + reserved + internal + external) tokens", "%",
            "lower", "KV memory",
        ),
        Measure(
            "kv.used", "KV used", "mean over time of the share that holds computed tokens", "%", "higher", "KV memory"
        ),
        Measure(
            "kv.reserved", "KV reserved", "mean over time of the share kept for tokens still to come", "%", "lower",
            "KV memory",
        ),
        Measure(
            "kv.internal", "KV internal", "mean over time of the share that is held and can never be filled", "%",
            "lower", "KV memory",
        ),
        Measure(
            "kv.external", "KV external",
            "mean over time of the share that is free, but of no use to the head of the queue", "%", "lower",
            "KV memory",
        ),
    ]
}  # fmt: skip


def ratio_text(ratio: float) -> str:
    """A ratio with three digits: "×0.0281", "×2.38", "×129"."""
    if not ratio:
        return "×0"
    return f"×{ratio:,.{max(0, 2 - floor(log10(abs(ratio))))}f}"


def formulas() -> str:
    """All measures with their formulas, a line each, for `--help`."""
    lines: dict[str, str] = {}
    for m in MEASURES.values():
        _, _, kind = m.key.partition(".")
        if kind == "mean":
            lines[f"{m.name}, p50, p95, p99"] = m.formula.removeprefix("mean of ")
        elif kind not in ("p50", "p95", "p99"):
            lines[m.name] = m.formula
    width = max(map(len, lines)) + 2
    return "\n".join([*wrap(SYMBOLS, 100), "", *(f"{name:<{width}}{formula}" for name, formula in lines.items())])
