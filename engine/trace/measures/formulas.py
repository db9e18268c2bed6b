"""Every measure with its name, unit and formula: for tooltips, `--help` and the table of a comparison."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, log10
from textwrap import wrap
from typing import Any

from engine.trace.measures.metrics import Metrics
from engine.trace.measures.slo import seconds_text

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

    @property
    def inside(self) -> bool:
        """Whether a server's clients cannot know it."""
        return self.group in ("work", "KV memory") or self.key == "average_latency"

    def read(self, metrics: Metrics) -> float | None:
        """None where there is none, and where it is not known from outside."""
        if metrics.outside and self.inside:
            return None
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


_SPREAD = {"mean": "mean", "p50": "50th percentile", "p95": "95th percentile", "p99": "99th percentile"}
# A line each: key, name, unit, which way is better, formula; `.*` stands for the kinds of a spread.
_TABLE = """
throughput:
completed | completed |  | higher | requests that ended with stop or length
duration | run time | s | lower | D = last token − first submit
output_throughput | output throughput | tok/s | higher | Σ n / D
total_throughput | total throughput | tok/s | higher | Σ (prompt tokens + n) / D
request_throughput | request throughput | req/s | higher | completed / D
goodput | goodput | req/s | higher | completed requests that meet every limit of the SLO / D
cost | cost of tokens | a million | lower | price of an hour × D / 3600 / Σ n × 10⁶, of output tokens
thought_share | thoughts | % |  | tokens before the first of each answer, where the model thinks / Σ n
latency:
ttft.* | TTFT | s | lower | f − s, over requests
ttfo.* | TTFO | s | lower | first token of the answer, behind the thoughts of a model that thinks − s, over requests
tpot.* | TPOT | s | lower | (l − f) / (n − 1), over requests with n ≥ 2
itl.* | ITL | s | lower | the gaps between consecutive emissions (tokens of one step are one), over all gaps
gaps_within | gaps within the target | % | higher | gaps no longer than target_itl / all gaps
e2e.* | E2E latency | s | lower | l − s, over requests
longest_stall | longest stall | s | lower | the largest gap between consecutive emissions of one request
average_latency | average latency | s | lower | batch × D / Σ n, batch = min(slots, samples): of one full batch, \
    total time / tokens of a sequence
work:
steps | steps |  | lower | steps that computed rows
mean_rows | rows a step | rows |  | row-steps / steps
wasted_row_share | wasted row-steps | % | lower | (held rows + rows whose every token was thrown away) / row-steps
idle_share | idle slot-steps | % | lower | (slots × steps − row-steps) / (slots × steps)
padding_share | padding | % | lower | pad tokens / all tokens the model was given
useful_share | useful tokens | % | higher | tokens the model was given that were neither padding nor thrown away / \
    all it was given
wasted_tokens | wasted tokens |  | lower | computed and thrown away: held rows, rows past a stop, recomputation
reused_tokens | reused tokens |  | higher | tokens whose K and V were there already: of a prefix that was kept, or \
    of another sample's prompt
offloaded_tokens | tokens from the host |  | higher | reused tokens whose K and V the pool had forgotten, and host \
    memory kept
acceptance_rate | acceptance rate | % | higher | drafted tokens that were kept / drafted tokens
accepted_length | accepted length | tokens | higher | 1 + kept drafted tokens / rows that verified any: \
    what such a row brings, its own token included
draft_speedup | speed-up by drafts | × | higher | time that the tokens of steps with drafts would have taken one a row \
    and step / time of those steps, drafting included; a step's cost without drafts is read off the line through the \
    times of all steps without prompts against their tokens
activated_experts | activated experts | % |  | mean over steps of the experts that any token was sent to / all \
    experts of all layers
expert_imbalance | expert imbalance | × | lower | mean over steps of the tokens that each layer sends to the experts \
    of its busiest rank / an even share of them, all layers together
preemptions | preemptions |  | lower | times a running request lost its KV blocks
swapped_blocks | host copies |  | lower | KV blocks copied to host memory, and back: of preempted \
    requests, and of prefixes that are offloaded
swap_time | host copying | s | lower | time of all steps in which blocks were copied to host memory and back
outside_forward | outside the forward | % | lower | 1 − time in the model's forward / time of all steps
KV memory:
kv.waste | KV waste | % | lower | mean over the time in which requests are there, of (reserved + internal + \
    external) / (used + reserved + internal + external) tokens
kv.used | KV used | % | higher | mean over time of the share that holds computed tokens
kv.reserved | KV reserved | % | lower | mean over time of the share kept for tokens still to come
kv.internal | KV internal | % | lower | mean over time of the share that is held and can never be filled
kv.external | KV external | % | lower | mean over time of the share that is free, but of no use to the head of the \
    queue
"""


def _measures() -> Iterator[Measure]:
    group = ""
    for line in filter(None, _TABLE.splitlines()):
        if line.endswith(":"):
            group = line[:-1]
            continue
        key, name, unit, better, formula = (" ".join(cell.split()) for cell in line.split("|"))
        if key.endswith(".*"):
            for kind, words in _SPREAD.items():
                yield Measure(key[:-1] + kind, f"{name} {kind}", f"{words} of {formula}", unit, better, group)
        else:
            yield Measure(key, name, formula, unit, better, group)


MEASURES = {m.key: m for m in _measures()}


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
