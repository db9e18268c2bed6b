"""A sweep: one workload at growing batch sizes or request rates; where it bends, and what to take under an SLO."""

import random
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import isfinite, log2
from statistics import median
from typing import Any

from engine.compare.comparison import csv_text, escaped, json_text
from engine.compare.host import EngineHost
from engine.compare.lane import Lane
from engine.compare.lane_grammar import lane_names
from engine.compare.lane_run import LaneEvent, LaneRun, Track, check_runs
from engine.config.checks import InvalidInput, check
from engine.config.specs import SOLITARY_MODES
from engine.trace.measures.formulas import MEASURES
from engine.trace.measures.metrics import Metrics, measure
from engine.trace.measures.slo import SLO_NAMES, Slo, seconds_text
from engine.workloads.distributions import Times
from engine.workloads.workload import Workload

LEAST_BEND = 0.05
"""How far a knee lies above the chord, as a share of the range of throughputs: less is noise, not a bend."""

COLUMNS = ("output_throughput", "average_latency", "ttft.p99", "tpot.p99", "itl.p99", "e2e.p99")


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One setting of one lane: `setting` is a batch size or a rate in requests a second."""

    series: int
    setting: float
    lane: Lane
    workload: Workload


@dataclass(frozen=True, slots=True)
class SweepOutcome:
    """What a point measured, a repeat each; `error` says why nothing was."""

    point: SweepPoint
    metrics: tuple[Metrics, ...] = ()
    error: str = ""

    def value(self, key: str) -> float | None:
        """The median of a measure over the repeats."""
        values = [v for each in self.metrics if (v := MEASURES[key].read(each)) is not None]
        return median(values) if values else None

    @property
    def throughput(self) -> float:
        return self.value("output_throughput") or 0.0

    def broken(self, slo: Slo) -> list[str]:
        """The limits that the 99th percentile is above; all of them where a request was not completed."""
        if any(m.completed < m.requests for m in self.metrics):
            return list(slo.limits)
        return [name for name, limit in slo.limits.items() if (self.value(f"{name}.p99") or 0.0) > limit]


@dataclass(frozen=True, slots=True)
class Recommendation:
    """`outcome` is the one to take, None where none keeps the SLO; `reason` is a sentence."""

    outcome: SweepOutcome | None
    reason: str


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What became of every point. `lanes` are the series, `by_rate` tells rates from batch sizes."""

    workload: Workload
    lanes: tuple[Lane, ...]
    by_rate: bool
    outcomes: tuple[SweepOutcome, ...]
    slo: Slo
    cancelled: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The series' labels: a mode has no size of its own where sizes are swept."""
        return lane_names(self.lanes, size=self.by_rate)

    def series(self, lane: int) -> list[SweepOutcome]:
        """A lane's measured points, by setting."""
        found = [o for o in self.outcomes if o.point.series == lane and o.metrics]
        return sorted(found, key=lambda o: o.point.setting)

    def knee(self, lane: int) -> SweepOutcome | None:
        """Where more batching begins to pay less, by the rule of `knee`; None where the curve does not bend."""
        points = self.series(lane)
        at = knee([o.point.setting for o in points], [o.throughput for o in points])
        return None if at is None else points[at]

    def recommend(self, lane: int) -> Recommendation:
        """The quickest point that keeps the SLO; without an SLO the knee, and without a knee the quickest."""
        points = self.series(lane)
        if not points:
            return Recommendation(None, "nothing was measured")
        kept = [o for o in points if not o.broken(self.slo)]
        if not kept:
            nearest = min(points, key=lambda o: (len(o.broken(self.slo)), -o.throughput))
            has = ", ".join(self._latency(nearest, name) for name in nearest.broken(self.slo))
            return Recommendation(
                None, f"none keeps {self.slo.text()}; the nearest is {self.label(nearest)} with {has}"
            )
        bend = self.knee(lane) if not self.slo.limits else None
        best = bend or max(kept, key=lambda o: o.throughput)
        said = [f"{self.label(best)}: {MEASURES['output_throughput'].text(best.throughput)}"]
        said += [self._latency(best, name) for name in self.slo.limits or (self._telling,)]
        more = [o for o in points if o.point.setting > best.point.setting and o.throughput > best.throughput]
        if not more:
            last = best is points[-1]
            why = "the largest that was tried" if last else "no larger one gives more"
        else:
            gain = more[0].throughput / best.throughput - 1
            why = f"{self.label(more[0])} gives {100 * gain:.0f} % more but {self._price(best, more[0])}"
        return Recommendation(best, f"{', '.join(said)}{' (the knee)' if bend else ''}; {why}")

    def label(self, outcome: SweepOutcome) -> str:
        return f"{outcome.point.setting:g} req/s" if self.by_rate else f"{outcome.point.setting:g}"

    def _latency(self, outcome: SweepOutcome, name: str) -> str:
        return f"p99 {SLO_NAMES[name].removeprefix('p99 ')} {seconds_text(outcome.value(f'{name}.p99') or 0.0)}"

    def _price(self, best: SweepOutcome, more: SweepOutcome) -> str:
        broken = more.broken(self.slo)
        if broken:
            return "breaks " + " and ".join(Slo(**{name: self.slo.limits[name]}).text() for name in broken)
        before, after = (o.value(f"{self._telling}.p99") or 0.0 for o in (best, more))
        if not before:
            return "costs latency"
        what = SLO_NAMES[self._telling].removeprefix("p99 ")
        return f"changes p99 {what} by {100 * (after / before - 1):+,.0f} %"

    @property
    def _telling(self) -> str:
        """What more load costs where no limit is set: larger batches make steps longer, higher rates make queues."""
        return "ttft" if self.by_rate else "itl"

    def marks(self, outcome: SweepOutcome) -> list[str]:
        """Of "knee" and "recommended", what a point is."""
        lane = outcome.point.series
        named = {"knee": self.knee(lane), "recommended": self.recommend(lane).outcome}
        return [name for name, marked in named.items() if marked is outcome]

    # What is written.

    def text(self) -> str:
        """A line a point in columns, the failures, and each lane's recommendation."""
        table = self._table()
        widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
        lines: list[str] = []
        name = ""
        for line in table:
            cells = [f"{line[0]:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(line[1:-1], widths[1:]))]
            if line[0] != name:
                lines += [""] if lines else []
                name = line[0]
            lines.append("  ".join([*cells, line[-1]]).rstrip())
        lines += ["", *(f"{n}: {self.recommend(i).reason}" for i, n in enumerate(self.names))]
        return "\n".join(lines)

    def markdown(self) -> str:
        head, *lines = [list(map(escaped, line)) for line in self._table()]
        rule = ["---", *["---:"] * (len(head) - 2), "---"]
        table = "\n".join("| " + " | ".join(line) + " |" for line in [head, rule, *lines])
        return table + "\n\n" + "\n".join(f"{n}: {self.recommend(i).reason}" for i, n in enumerate(self.names))

    @property
    def asked(self) -> list[str]:
        """The measures that are there where there are limits, and where an hour has a price."""
        priced = any(o.value("cost") is not None for o in self.outcomes)
        return ["goodput"] * bool(self.slo.limits) + ["cost"] * priced

    def _table(self) -> list[list[str]]:
        keys = [key for key in COLUMNS if not (self.by_rate and key == "average_latency")]  # it is a full batch's
        measures = [MEASURES[key] for key in [*keys, *self.asked]]
        table = [["lane", "rate" if self.by_rate else "batch", *(m.name for m in measures), ""]]
        for o in sorted(self.outcomes, key=lambda o: (o.point.series, o.point.setting)):
            cells = [m.text(o.value(m.key)) for m in measures]
            said = f"failed: {o.error}" if o.error and not o.metrics else ", ".join(self.marks(o))
            table.append([self.names[o.point.series], f"{o.point.setting:g}", *cells, said])
        return table

    def csv(self) -> str:
        """A line a point with every measure, numbers as they are."""
        lines = [["lane", "rate" if self.by_rate else "batch", "repeats", "marks", "error", *MEASURES]]
        for o in self.outcomes:
            values = [o.value(key) for key in MEASURES]
            about = [self.names[o.point.series], f"{o.point.setting:g}", str(len(o.metrics)), " ".join(self.marks(o))]
            lines.append([*about, o.error, *("" if v is None else repr(v) for v in values)])
        return csv_text(lines)

    def to_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload.name,
            "requests": len(self.workload),
            "by": "rate" if self.by_rate else "batch",
            "slo": self.slo.limits,
            "cancelled": self.cancelled,
            "lanes": [{"name": n, "recommendation": self.recommend(i).reason} for i, n in enumerate(self.names)],
            "points": [
                {
                    "lane": o.point.series,
                    "setting": o.point.setting,
                    "error": o.error,
                    "marks": self.marks(o),
                    "measures": {key: o.value(key) for key in MEASURES} if o.metrics else None,
                    "repeats": [m.to_json() for m in o.metrics],
                }
                for o in self.outcomes
            ],
        }

    def json(self) -> str:
        return json_text(self.to_json())


@dataclass(frozen=True, slots=True)
class SweepFinished:
    result: SweepResult


SweepEvent = LaneEvent | SweepFinished


class Sweep:
    """Each lane at every batch size, or at every rate of requests a second (Poisson arrivals, the same for all lanes).

    `points` are played in their order; events number them as lanes. Without `kv_tokens` and `kv_memory` each pool is
    as large as its batch could fill, within the free memory. Raises InvalidInput for what cannot be swept.
    """

    def __init__(
        self,
        workload: Workload,
        lanes: Sequence[Lane],
        *,
        sizes: Sequence[int] = (),
        rates: Sequence[float] = (),
        repeats: int = 1,
        slo: Slo | None = None,
        price: float = 0.0,
        kv_tokens: int | None = None,
        kv_memory: int | None = None,
        seed: int = 0,
    ) -> None:
        check_runs(workload, repeats, kv_tokens, kv_memory)
        if not lanes:
            raise InvalidInput("no lanes: name a mode to sweep")
        if bool(sizes) == bool(rates):
            raise InvalidInput("give batch sizes or request rates, one of the two")
        for size in sizes:
            check(size >= 1, "size", size, "must be at least 1")
        for rate in rates:
            check(isfinite(rate) and rate > 0, "rate", rate, "must be above 0 requests a second")
        for lane in lanes:
            if sizes and lane.server is not None:
                raise InvalidInput(f"{lane.server.place} has a batch size of its own: sweep its rates")
            if sizes and lane.config.mode in SOLITARY_MODES:
                raise InvalidInput(f"{lane.config.mode} runs one request at a time, whatever the size: sweep its rates")
        self.workload, self.by_rate, self.repeats = workload, bool(rates), repeats
        self.lanes = tuple(lane.adapted(workload) for lane in lanes)
        self.slo, self.price, self.kv_tokens, self.kv_memory = slo or Slo(), price, kv_tokens, kv_memory
        settings = sorted(set(rates or sizes))
        points = [self._point(i, setting, seed) for setting in settings for i in range(len(lanes))]
        if len({lane.spec for lane in self.lanes}) > 1:  # a model is loaded once, not once a setting
            points.sort(key=lambda p: p.series)
        self.points = tuple(points)

    def _point(self, series: int, setting: float, seed: int) -> SweepPoint:
        lane = self.lanes[series]
        if not self.by_rate:
            return SweepPoint(series, setting, lane.with_batch(int(setting)), self.workload)
        times = Times("poisson", setting).draw(len(self.workload), random.Random(seed))
        arrivals = tuple(replace(a, time=t) for a, t in zip(self.workload.arrivals, times))
        return SweepPoint(series, setting, lane, replace(self.workload, arrivals=arrivals))

    def play(self, host: EngineHost, tell: Callable[[SweepEvent], None], cancelled: threading.Event) -> SweepResult:
        """Runs the sweep in the caller's thread; `tell` is called on it too. Points that fail are kept as failed.
        Setting `cancelled` ends the point under way; what was measured is in the result. The host stays open."""
        track = Track(host, tell, cancelled, self.kv_tokens, self.kv_memory)
        outcomes: list[SweepOutcome] = []
        played = 0
        with closing(track):
            for index, point in enumerate(self.points):
                lane_runs: list[LaneRun] = []
                for repeat in range(self.repeats):
                    if not cancelled.is_set():
                        lane_runs.append(track.play(index, repeat, point.lane, point.workload))
                played += sum(not r.cancelled for r in lane_runs)
                metrics = tuple(
                    measure(r.trace, self.slo, price=self.price)
                    for r in lane_runs
                    if r.finished and r.trace is not None
                )
                error = next((r.error for r in lane_runs if r.error), "") if not metrics else ""
                if metrics or error:
                    outcomes.append(SweepOutcome(point, metrics, error))
        cut_short = played < self.repeats * len(self.points)
        result = SweepResult(self.workload, self.lanes, self.by_rate, tuple(outcomes), self.slo, cut_short)
        tell(SweepFinished(result))
        return result


def sizes_up_to(largest: int) -> tuple[int, ...]:
    """1, 2, 4 … and the largest itself."""
    return (*(1 << i for i in range((largest - 1).bit_length())), largest)


def knee(settings: Sequence[float], throughputs: Sequence[float]) -> int | None:
    """The point that lies farthest above the chord, from the first to the last, of log2(setting) against throughput
    (after Satopää et al. 2011, "Finding a 'Kneedle' in a Haystack"); None with fewer than three, or without a bend."""
    reach = max(throughputs, default=0.0) - min(throughputs, default=0.0)
    if len(settings) < 3 or reach <= 0:
        return None
    first, last = log2(settings[0]), log2(settings[-1])
    rise = throughputs[-1] - throughputs[0]
    above = [
        (y - throughputs[0] - rise * (log2(x) - first) / (last - first)) / reach for x, y in zip(settings, throughputs)
    ]
    best = max(range(len(above)), key=above.__getitem__)
    return best if above[best] > LEAST_BEND else None
