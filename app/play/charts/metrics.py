"""The live charts' metrics: where each one's lines come from, how its figure reads, and the formula behind it."""

import math
from dataclasses import dataclass, field

import numpy as np
from PySide6.QtGui import QColor

from app.language import digits, tr
from app.play.charts.series import BIN, ChartSeries, Extremes, Percentiles
from app.plot.scales import tick_words
from app.ui.look import theme
from app.ui.look.theme import Theme
from app.words import bytes_words, duration, number
from engine.trace import Array, Metrics, ratio_text

Line = tuple[Array, Array]  # the lowest and highest value of each bin


@dataclass(slots=True)
class Drawing:
    """Lines and a band, over all bins so far; `top` fixes the axis, NaN leaves it to what is in sight."""

    lines: list[Line] = field(default_factory=list)
    band: Line | None = None
    top: float = math.nan


class Metric:
    """One chart: `title` with its unit, and the `formula` for its tooltip."""

    def __init__(self, name: str, title: str, formula: str, hue: float | None = None) -> None:
        self.name, self.title, self.formula, self.hue = name, title, formula, hue

    def color(self, t: Theme) -> QColor:
        return t.text if self.hue is None else theme.oklch(t.lightness, t.chroma, self.hue)

    def shown(self, series: ChartSeries) -> bool:
        return True

    def drawing(self, series: ChartSeries) -> Drawing:
        """The lines over all bins."""
        raise NotImplementedError

    def figure(self, series: ChartSeries, time: float) -> tuple[str, str]:
        """The value at a time as a number and its unit; empty when there is none."""
        raise NotImplementedError

    def level(self, series: ChartSeries, time: float, run: Metrics | None) -> float:
        """Where the figure on show stands on the axis, that of `run` where it is over; NaN where on none."""
        return math.nan

    def last(self, run: Metrics) -> tuple[str, tuple[str, str]] | None:
        """A title, and a figure with its unit, for a run that is over; None leaves them as they are."""
        return None

    def short(self, title: str) -> str:
        """The title, where it has too little room."""
        return title

    def tick(self, value: float) -> str:
        return tick_words(value)


def at(values: Array, place: int) -> float:
    """A column's value at a bin; its last one beyond the end, NaN before anything."""
    return float(values[min(place, len(values) - 1)]) if len(values) else math.nan


class Throughput(Metric):
    def color(self, t: Theme) -> QColor:
        return t.accent

    def drawing(self, series: ChartSeries) -> Drawing:
        rate = series.rate()
        return Drawing([(rate, rate)])

    def _rate(self, series: ChartSeries, time: float) -> float:
        rate, place = series.rate(), int(time / BIN)
        if not len(rate):
            return math.nan
        latest = place >= int(series.now / BIN)
        return series.live_rate if latest else at(rate, place) if place < len(rate) + 4 else 0.0

    def level(self, series: ChartSeries, time: float, run: Metrics | None) -> float:
        return self._rate(series, time) if run is None else run.output_throughput

    def figure(self, series: ChartSeries, time: float) -> tuple[str, str]:
        value = self._rate(series, time)
        return ("", "") if math.isnan(value) else (number(value), tr("tok/s"))

    def last(self, run: Metrics) -> tuple[str, tuple[str, str]] | None:
        return self.title, (number(run.output_throughput), tr("tok/s"))


class Latency(Metric):
    """A median line with the band up to p95, and a second one where a target is set; p99 is in the tooltip."""

    def source(self, series: ChartSeries) -> Percentiles:
        return series.ttft if self.name == "ttft" else series.itl

    def drawing(self, series: ChartSeries) -> Drawing:
        source = self.source(series)
        source.settle(series.now)
        lines = [(source[0], source[0])]
        if self.name == "itl" and series.target.count:
            series.target.add(series.now, series.target.last)
            lines.append((series.target[0], series.target[1]))
        return Drawing(lines, (source[0], source[1]))

    def _last(self, series: ChartSeries, place: int) -> int:
        """The latest bin with a value, not after `place`; -1 when there is none."""
        known = np.flatnonzero(~np.isnan(self.source(series)[0][max(0, place - 239) : place + 1]))
        return int(known[-1]) + max(0, place - 239) if len(known) else -1

    def figure(self, series: ChartSeries, time: float) -> tuple[str, str]:
        last = self._last(series, int(time / BIN))
        text, _, unit = duration(float(self.source(series)[0][last])).partition(" ") if last >= 0 else ("", "", "")
        return text, unit

    def level(self, series: ChartSeries, time: float, run: Metrics | None) -> float:
        if run is not None:
            return (run.ttft if self.name == "ttft" else run.itl).p50
        last = self._last(series, int(time / BIN))
        return float(self.source(series)[0][last]) if last >= 0 else math.nan

    def last(self, run: Metrics) -> tuple[str, tuple[str, str]] | None:
        spread = run.ttft if self.name == "ttft" else run.itl
        text, _, unit = duration(spread.p50).partition(" ")
        title = f"{self.name.upper()}  p50 · p99 {duration(spread.p99)}"
        if self.name == "itl" and run.gaps_within is not None:
            title = tr("ITL  p50 · {percent:.0f} % in time", percent=100 * run.gaps_within)
        return (title, (text, unit)) if spread.p99 else None

    def short(self, title: str) -> str:
        """Without the spread at its end."""
        return title.partition(" · " if " · " in title else "  ")[0]

    def percentiles(self, series: ChartSeries, time: float) -> str:
        last, source = self._last(series, int(time / BIN)), self.source(series)
        quantiles = enumerate(source.QUANTILES) if last >= 0 else ()
        return " · ".join(f"p{q} {duration(float(source[i][last]))}" for i, q in quantiles)

    def tick(self, value: float) -> str:
        return "0" if not value else digits(f"{value * 1000:,.4g} ms" if value < 0.9995 else f"{value:,.4g} s")


class Requests(Metric):
    def drawing(self, series: ChartSeries) -> Drawing:
        return Drawing([(s[0], s[1]) for s in (series.running, series.waiting)])

    def figure(self, series: ChartSeries, time: float) -> tuple[str, str]:
        then = series.tally.at(time)
        return (digits(f"{then.running:,} · {then.waiting:,}"), "") if then.requests else ("", "")

    def last(self, run: Metrics) -> tuple[str, tuple[str, str]] | None:
        return tr("{title} · rows wasted", title=self.title), (f"{100 * run.wasted_row_share:.3g}", "%")

    def short(self, title: str) -> str:
        return title if title == self.title else tr("Rows wasted")


class Drafts(Metric):
    """There where tokens are drafted."""

    def shown(self, series: ChartSeries) -> bool:
        return series.drafts.count > 0

    def drawing(self, series: ChartSeries) -> Drawing:
        length = series.accepted_length()
        return Drawing([(length, length)])

    def figure(self, series: ChartSeries, time: float) -> tuple[str, str]:
        value = at(series.accepted_length(), int(time / BIN))
        return ("", "") if math.isnan(value) else (f"{value:.2f}", tr("tokens"))

    def last(self, run: Metrics) -> tuple[str, tuple[str, str]] | None:
        if run.acceptance_rate is None:
            return None
        kept = tr("{title} · drafts kept {percent:.0f} %", title=self.title, percent=100 * run.acceptance_rate)
        if run.draft_speedup is not None:
            kept = tr("{kept}, speed {times}", kept=kept, times=ratio_text(run.draft_speedup))
        return kept, (f"{run.accepted_length:.2f}", tr("tokens"))

    def short(self, title: str) -> str:
        return title.partition(" · ")[0]


class Blocks(Metric):
    def drawing(self, series: ChartSeries) -> Drawing:
        least, most = series.used[0], series.used[1]
        filled = series.blocks > 0 and 2 * np.nanmax(most, initial=0.0) >= series.blocks
        return Drawing([(least, most)], top=float(series.blocks) if filled else math.nan)

    def figure(self, series: ChartSeries, time: float) -> tuple[str, str]:
        used = series.used_at(time)
        if used is None:
            return "", ""
        return f"{used:,}", tr("of {all:,}", all=series.blocks) if series.blocks else ""

    def last(self, run: Metrics) -> tuple[str, tuple[str, str]] | None:
        return (
            (tr("{title} · waste", title=self.title), (f"{100 * run.kv.waste:.3g}", "%"))
            if run.kv is not None
            else None
        )

    def short(self, title: str) -> str:
        return title if title == self.title else tr("KV waste")


class Load(Metric):
    """How busy a processor is; its memory stands beside the figure."""

    def source(self, series: ChartSeries) -> tuple[Extremes, Extremes]:
        return (series.gpu, series.gpu_memory) if self.name == "gpu" else (series.cpu, series.memory)

    def shown(self, series: ChartSeries) -> bool:
        return self.name != "gpu" or series.gpu.count > 0

    def drawing(self, series: ChartSeries) -> Drawing:
        busy, _ = self.source(series)
        return Drawing([(busy[0], busy[1])], top=100.0 if self.name == "gpu" else 100.0 * (series.cores or 1))

    def figure(self, series: ChartSeries, time: float) -> tuple[str, str]:
        busy, memory = (at(s[2], int(time / BIN)) for s in self.source(series))
        return ("", "") if math.isnan(busy) else (f"{busy:.0f} %", bytes_words(memory))

    def tick(self, value: float) -> str:
        return f"{value:.0f} %" if value else "0"


def all_metrics() -> list[Metric]:
    """The charts from top to bottom."""
    ttft = tr("TTFT = first token − submit, over the last 5 s")
    itl = tr("ITL = gaps between emissions, pooled, over the last 1 s")
    kept = tr("1 + kept drafted tokens ÷ rows that verified any, last 1 s")
    running = tr("requests that hold a slot · requests that wait for one, after each step")
    used = tr("blocks of the pool that hold keys and values; a block is so many tokens of one request")
    return [
        Throughput("throughput", tr("Throughput"), tr("output tokens of the last second ÷ 1 s")),
        Latency("ttft", tr("Time to first token  p50–p95"), ttft, 155),
        Latency("itl", tr("Inter-token latency  p50–p95"), itl, 80),
        Requests("requests", tr("Running · waiting"), running),
        Drafts("drafts", tr("Tokens a verified row"), kept, 120),
        Blocks("blocks", tr("KV blocks used"), used, 195),
        Load("cpu", tr("CPU · memory"), tr("100 % a core; memory of the engine's process"), 300),
        Load("gpu", tr("GPU · memory"), tr("share of time in which the GPU was busy; memory in use on it"), 330),
    ]
