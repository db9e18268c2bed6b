"""What a notebook shows of a trace, and the tables that it works with."""

from __future__ import annotations

import importlib
from html import escape
from typing import Any

from engine.config import InvalidInput
from engine.export.report import parts
from engine.export.report.page import sheet
from engine.export.report.series import RunSeries
from engine.export.report.words import headline, workload_words
from engine.export.source import Source
from engine.export.tables import TABLES
from engine.trace import Trace, measure


class NotebookView:
    """The face that `Trace` shows in a notebook."""

    def html(self, trace: Trace) -> str:
        """The run's header, its measures at a glance and its timeline; no script, since notebooks run none that they do
        not trust."""
        if not len(trace.records):
            return "<p>a trace without a record yet</p>"
        source = Source.of_trace(trace)
        body = f'<h1>{escape(source.title)}</h1><p class="bs-quiet">{escape(headline(trace))}<br>'
        body += f"{escape(workload_words(source))}</p>"
        if len(trace.records.step_ends):
            body += parts.figures(measure(trace)) + parts.timelines(source, [RunSeries.of(trace)])
        return f'<style>{sheet("report.css")}</style><div class="batchscope bs-notebook">{body}</div>'

    def to_pandas(self, trace: Trace, what: str) -> Any:
        """A DataFrame of requests, steps or metrics. Raises InvalidInput for another table, or without pandas."""
        if what not in TABLES:
            raise InvalidInput(f"to_pandas({what!r}): there are {', '.join(TABLES)}")
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise InvalidInput("to_pandas makes tables of pandas: pip install 'batchscope[export]'") from None
        return pandas.DataFrame(TABLES[what](trace))


Trace.notebook = NotebookView()  # a trace knows nobody that looks at it
