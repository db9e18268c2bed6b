"""The parts of a report as HTML: measures, charts, facts. A notebook shows some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from engine.compare import Comparison, MeasureRow
from engine.export.report.figures import SHADES, Line, legend, lines, shades_of, shares, timeline
from engine.export.report.series import RunSeries
from engine.export.source import Source
from engine.trace import MEASURES, Array, Metrics, timings
from engine.trace.measures.slo import seconds_text

FIGURES = ("output_throughput", "ttft.p50", "ttft.p95", "itl.p99", "e2e.p50", "duration")  # they stand at the top
KV_KINDS = ("used", "reserved", "internal", "external")
GLYPHS = {words: f"bs-shade-{shade.name.lower()}" for shade, words in SHADES.items()}


def figures(metrics: Metrics) -> str:
    """The measures that people look at first, large."""
    cells = [("requests completed", f"{metrics.completed:,}", f"of {metrics.requests:,}")]
    for measure in map(MEASURES.__getitem__, FIGURES):
        value, _, unit = measure.text(measure.read(metrics)).partition(" ")
        cells.append((measure.name, value, unit))
    told = (
        f"<div><dt>{escape(words)}</dt><dd>{value} <small>{unit}</small></dd></div>" for words, value, unit in cells
    )
    return f'<dl class="bs-figures">{"".join(told)}</dl>'


def facts(told: Iterable[tuple[str, str]]) -> str:
    rows = (f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in told)
    return f'<dl class="bs-facts">{"".join(rows)}</dl>'


def figure(title: str, chart: str, beside: str = "") -> str:
    quiet = f'<span class="bs-quiet">{escape(beside)}</span>' if beside and not beside.startswith("<") else beside
    return f'<figure class="bs-sheet"><figcaption><h3>{escape(title)}</h3>{quiet}</figcaption>{chart}</figure>'


def pair(*given: str) -> str:
    return f'<div class="bs-pair">{"".join(filter(None, given))}</div>'


# -- measures ---------------------------------------------------------------------------------------------------------


def measures_table(comparison: Comparison) -> str:
    """A row a measure; of one run with its formula, of several a column each, the best strong, beside it the ratio to
    the first."""
    alone = len(comparison.names) == 1
    rows, group = [], ""
    for row in comparison.rows:
        if not any(cell.values for cell in row.cells):
            continue
        if row.measure.group != group:
            group = row.measure.group
            rows.append(
                f'<tr class="bs-group"><th colspan="{3 if alone else 1 + len(comparison.names)}">{group}</th></tr>'
            )
        cells = "".join(_cell(row, lane) for lane in range(len(comparison.names)))
        formula = f'<td class="bs-words">{escape(row.measure.formula)}</td>' if alone else ""
        rows.append(
            f'<tr><td title="{escape(row.measure.formula)}">{escape(row.measure.name)}</td>{cells}{formula}</tr>'
        )
    lanes = (
        ["<th></th>"] if alone else [f'<th class="bs-{i % 8}">{escape(n)}</th>' for i, n in enumerate(comparison.names)]
    )
    head = f"<th>measure</th>{''.join(lanes)}" + ('<th class="bs-words">formula</th>' if alone else "")
    table = f'<table class="bs-table"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    remarks = "".join(f"<p>{escape(remark)}</p>" for remark in comparison.remarks)
    return f'<div class="bs-scroll">{table}</div>{remarks}'


def _cell(row: MeasureRow, lane: int) -> str:
    value, spread, ratio = map(escape, row.cell(lane))
    quiet = " ".join(filter(None, (spread, ratio)))
    value = f"<b>{value}</b>" if row.best == lane else value
    return f"<td>{f'<small>{quiet}</small>' if quiet else ''}{value}</td>"


def formulas(comparison: Comparison) -> str:
    rows = [(row.measure.name, row.measure.formula) for row in comparison.rows if any(c.values for c in row.cells)]
    return f"<details data-print><summary>How each is computed</summary>{facts(rows)}</details>"


# -- charts -----------------------------------------------------------------------------------------------------------


def timelines(source: Source, series: Sequence[RunSeries]) -> str:
    """A timeline a lane, on one clock."""
    longest = max(each.duration for each in series)
    shades = [SHADES[shade] for shade in shades_of(series)]
    told = legend(shades, GLYPHS)
    drawn = []
    for i, ((name, _), each) in enumerate(zip(source.first, series)):
        chart = timeline(each, longest).replace("<svg ", f'<svg data-lane="{i}" ', 1)
        one = len(series) == 1
        title = "Slots over time" if one else name
        ends = seconds_text(each.duration)
        drawn.append(figure(title, chart, told if one else f"done after {ends}"))
    return ("" if len(series) == 1 else told) + "".join(drawn)


def run_charts(source: Source, series: RunSeries) -> str:
    """Of one run: its tokens a second, its queue, its KV memory, its waits."""
    end = series.duration
    running, waiting = series.most(series.running), series.most(series.waiting)
    when, kinds = series.most(series.kv)
    kv = [Line(kind, when, kinds[:, i], f"bs-{kind}") for i, kind in enumerate(KV_KINDS) if kinds[:, i].any()]
    times = timings(source.runs[0].trace)
    queue = Line("running", *running, "bs-running"), Line("waiting", *waiting, "bs-waiting")
    spread = ("TTFT", _finite(times.ttft), "bs-ttft"), ("gaps", times.gap, "bs-gaps")
    rate = Line("tokens a second", *series.rate(), "bs-tokens")
    return pair(
        figure("Tokens a second", lines("tokens a second over time", [rate], end, steps=True)),
        figure("Requests", lines("running and waiting over time", queue, end, steps=True), _legend(queue)),
        figure("KV memory, tokens", lines("KV tokens by kind", kv, end, stacked=True), _legend(kv)) if kv else "",
        figure("Waits: share that is at most so long", shares("TTFT and gaps", spread), _named(spread)),
    )


def race_charts(source: Source, series: Sequence[RunSeries]) -> str:
    """Of several runs: tokens so far, queues, first tokens and gaps, a line a lane."""
    longest = max(each.duration for each in series)
    lanes = [(name, f"bs-{source.names.index(name) % 8}") for name, _ in source.first]
    tokens = [Line(name, *each.emitted_so_far(), role) for (name, role), each in zip(lanes, series)]
    queue = [Line(name, *each.most(each.waiting), role) for (name, role), each in zip(lanes, series)]
    times = [timings(trace) for _, trace in source.first]

    def spread(of: str) -> list[tuple[str, Array, str]]:
        return [(name, _finite(getattr(each, of)), role) for (name, role), each in zip(lanes, times)]

    told = _legend(tokens)
    return told + pair(
        figure("Tokens so far", lines("tokens over time, by lane", tokens, longest)),
        figure("Requests that wait", lines("waiting over time, by lane", queue, longest, steps=True, ends=False)),
        figure("Time to first token: share that is at most so long", shares("TTFT by lane", spread("ttft"))),
        figure("Gaps between tokens: share that is at most so long", shares("gaps by lane", spread("gap"))),
    )


def _finite(values: Array) -> Array:
    """Without those of requests that did not get that far."""
    return values[np.isfinite(values)]


def _legend(given: Sequence[Line]) -> str:
    return legend([line.name for line in given], {line.name: line.role for line in given})


def _named(given: Sequence[tuple[str, Array, str]]) -> str:
    return legend([name for name, _, _ in given], {name: role for name, _, role in given})
