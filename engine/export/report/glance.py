"""A run at a glance, as a notebook shows it."""

from html import escape

from engine.export.report import parts
from engine.export.report.page import sheet
from engine.export.report.series import RunSeries
from engine.export.report.words import headline, workload_words
from engine.export.source import Source
from engine.trace import Trace, measure


def glance(trace: Trace) -> str:
    """The run's header, its measures at a glance and its timeline; no script, since notebooks run none that they do not
    trust."""
    if not len(trace.records):
        return "<p>a trace without a record yet</p>"
    source = Source.of_trace(trace)
    body = f'<h1>{escape(source.title)}</h1><p class="bs-quiet">{escape(headline(trace))}<br>'
    body += f"{escape(workload_words(source))}</p>"
    if len(trace.records.step_ends):
        body += parts.figures(measure(trace)) + parts.timelines(source, [RunSeries.of(trace)])
    return f'<style>{sheet("report.css")}</style><div class="batchscope bs-notebook">{body}</div>'
