"""One HTML file that holds all it shows: it asks no network for anything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from itertools import islice
from pathlib import Path
from urllib.parse import quote

import resources
from engine.compare import Comparison, compare, compare_race
from engine.export.report import parts
from engine.export.report.series import RunSeries
from engine.export.report.words import (
    headline,
    machine_facts,
    model_facts,
    prompt_words,
    request_words,
    setting_facts,
    workload_words,
)
from engine.export.reproduction import all_commands, batchscope_version, citation, created
from engine.export.source import Source
from engine.trace import Trace, measure, request_metrics
from engine.trace.measures.slo import seconds_text

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"  # it asks nobody
LISTED = 200  # requests in the table of a run
TOLD = 4_000  # requests of a lane that a pointer is told about


def report(source: Source) -> str:
    """The report of a run, of several, or of a race. Of a lane's repeats the charts show the first, the table all."""
    comparison = compare_race(source.race) if source.race is not None else _compared(source)
    series = [RunSeries.of(trace) for _, trace in source.first]
    trace = source.runs[0].trace
    body = [
        f"<h1>{escape(source.title)}</h1>",
        f'<p class="bs-quiet">{escape(headline(trace))}<br>{escape(workload_words(source))} · {created(trace)}</p>',
    ]
    if source.alone:
        body += [parts.figures(measure(trace)), "<h2>What happened</h2>"]
        body += [parts.timelines(source, series), parts.run_charts(source, series[0])]
        body += ["<h2>Measures</h2>", parts.measures_table(comparison), _requests(trace)]
    else:
        body += [_winner(comparison), "<h2>On one clock</h2>", parts.timelines(source, series)]
        body += ["<h2>Lane by lane</h2>", parts.race_charts(source, series)]
        body += ["<h2>Measures</h2>", parts.measures_table(comparison), parts.formulas(comparison)]
    body += ["<h2>Machine and settings</h2>", _settings(source)]
    body += ["<h2>The same again</h2>", _again(source)]
    body += ["<h2>Citation</h2>", _code(citation(source))]
    made = f"Made by Batchscope {batchscope_version()}. This file holds all that it shows and asks no network."
    return _document(source.title, "".join(body) + f"<footer>{made}</footer>", source)


def write_report(source: Source, path: Path) -> None:
    """Raises OSError."""
    path.write_text(report(source), encoding="utf-8", errors="replace")


def sheet(name: str) -> str:
    """What the report's folder of the resources holds."""
    return resources.path(f"report/{name}").read_text(encoding="utf-8")


def _document(title: str, body: str, source: Source) -> str:
    told = [
        {str(id): request_words(view) for id, view in islice(trace.requests.items(), TOLD)} for _, trace in source.first
    ]
    data = json.dumps(told, ensure_ascii=False).replace("<", "\\u003c")
    icon = "data:image/svg+xml," + quote(resources.path("icons/batchscope.svg").read_text(encoding="utf-8"))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)} – Batchscope</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<link rel="icon" href="{icon}"><style>{sheet("report.css")}</style></head>\n'
        f'<body class="batchscope"><main>{body}</main><div id="bs-tip"></div>'
        f'<script id="bs-requests" type="application/json">{data}</script><script>{sheet("report.js")}</script>'
        "</body></html>\n"
    )


def _winner(comparison: Comparison) -> str:
    """Which lane gave the most tokens a second, and how many times the slowest's."""
    row = comparison.row("output_throughput")
    told = [(cell.value, name) for cell, name in zip(row.cells, comparison.names) if cell.value] if row else []
    if len(told) < 2 or row is None:
        return ""
    (least, slowest), (most, fastest) = min(told), max(told)
    return (
        f'<dl class="bs-figures"><div><dt>{escape(fastest)} over {escape(slowest)}, tokens a second</dt>'
        f"<dd>× {most / least:.2f} <small>{row.measure.text(most)} to {row.measure.text(least)}</small></dd></div></dl>"
    )


def _compared(source: Source) -> Comparison:
    return compare(source.names, [[measure(trace) for trace in source.of_lane(i)] for i in range(len(source.names))])


def _settings(source: Source) -> str:
    """Model and machine of all, and each lane's settings; where a lane had another model or machine, that too."""
    first = source.first[0][1].header
    model, machine = list(model_facts(first)), list(machine_facts(first))
    if source.alone:
        return parts.facts([*model, *machine, *setting_facts(first)])
    each = []
    for name, trace in source.first:
        file = next((run.file for run in source.runs if run.trace is trace), "")
        own = [("file", file)] if file else []
        own += [fact for fact in model_facts(trace.header) if fact not in model]
        own += [fact for fact in machine_facts(trace.header) if fact not in machine]
        own += setting_facts(trace.header)
        each.append(f'<h3 class="bs-lane">{escape(name)}</h3>{parts.facts(own)}')
    return parts.facts([*model, *machine]) + "".join(each)


def _again(source: Source) -> str:
    says = "The first command takes the prompts, their times and their sampling out of the run’s file; the second "
    says += "sends them again, through the same settings with the same KV memory."
    return f'<p class="bs-quiet">{says}</p>{"".join(_code(*pair) for pair in all_commands(source))}'


def _code(*lines: str) -> str:
    return f'<div class="bs-code"><pre>{escape(chr(10).join(lines))}</pre><button data-copy>Copy</button></div>'


def _requests(trace: Trace) -> str:
    """The first requests, a row each."""
    views = list(islice(trace.requests.values(), LISTED))
    rows = []
    for view in views:
        told = request_metrics(view)
        times = (seconds_text(v) if v is not None else "–" for v in (told.ttft, told.tpot, told.e2e))
        cells = (*times, f"{told.prompt_tokens:,}", f"{told.output_tokens:,}", str(view.reason or view.state))
        words = f'<td class="bs-words">{escape(prompt_words(view, 60))}</td>'
        rows.append(f"<tr><td>#{view.request}</td>{''.join(f'<td>{c}</td>' for c in cells)}{words}</tr>")
    names: Sequence[str] = ("request", "TTFT", "TPOT", "E2E", "tokens in", "out", "ended")
    head = "".join(f"<th>{name}</th>" for name in names) + '<th class="bs-words">prompt</th>'
    table = f'<table class="bs-table"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    of = f"The first {LISTED} of {len(trace.requests):,} requests" if len(trace.requests) > LISTED else "All requests"
    return f'<details><summary>{of}</summary><div class="bs-scroll">{table}</div></details>'
